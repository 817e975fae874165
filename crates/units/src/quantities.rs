//! Physical quantities as newtypes: SI inside, only the meaningful operators exist.
//!
//! `Bytes / BytesPerSecond = Seconds` compiles, `Bytes / FlopsPerSecond` does not.

use serde::{Deserialize, Serialize};
use std::ops::{Add, AddAssign, Div, Mul, Sub};

macro_rules! quantity {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub f64);

        impl $name {
            /// Nothing of it.
            pub const ZERO: Self = Self(0.0);

            /// The larger of the two; a NaN loses.
            #[must_use]
            pub fn max(self, other: Self) -> Self {
                Self(self.0.max(other.0))
            }

            /// The smaller of the two; a NaN loses.
            #[must_use]
            pub fn min(self, other: Self) -> Self {
                Self(self.0.min(other.0))
            }
        }

        impl Add for $name {
            type Output = Self;
            fn add(self, other: Self) -> Self {
                Self(self.0 + other.0)
            }
        }

        impl AddAssign for $name {
            fn add_assign(&mut self, other: Self) {
                self.0 += other.0;
            }
        }

        impl Sub for $name {
            type Output = Self;
            fn sub(self, other: Self) -> Self {
                Self(self.0 - other.0)
            }
        }

        impl Mul<f64> for $name {
            type Output = Self;
            fn mul(self, factor: f64) -> Self {
                Self(self.0 * factor)
            }
        }

        impl Div<f64> for $name {
            type Output = Self;
            fn div(self, divisor: f64) -> Self {
                Self(self.0 / divisor)
            }
        }

        impl Div<$name> for $name {
            /// The ratio of two like quantities is a plain number.
            type Output = f64;
            fn div(self, other: Self) -> f64 {
                self.0 / other.0
            }
        }

        impl std::iter::Sum for $name {
            fn sum<I: Iterator<Item = Self>>(items: I) -> Self {
                Self(items.map(|x| x.0).sum())
            }
        }
    };
}

quantity!(
    /// A time in seconds.
    Seconds
);
quantity!(
    /// An amount of data in bytes.
    Bytes
);
quantity!(
    /// Floating-point operations; a fused multiply-add counts as two.
    Flops
);
quantity!(
    /// A bandwidth in bytes per second.
    BytesPerSecond
);
quantity!(
    /// A compute rate in floating-point operations per second.
    FlopsPerSecond
);
quantity!(
    /// A clock frequency in hertz.
    Hertz
);

impl Div<BytesPerSecond> for Bytes {
    type Output = Seconds;
    fn div(self, rate: BytesPerSecond) -> Seconds {
        Seconds(self.0 / rate.0)
    }
}

impl Div<FlopsPerSecond> for Flops {
    type Output = Seconds;
    fn div(self, rate: FlopsPerSecond) -> Seconds {
        Seconds(self.0 / rate.0)
    }
}

impl Seconds {
    /// From microseconds.
    pub fn from_us(us: f64) -> Self {
        Self(us * 1e-6)
    }
    /// In microseconds.
    pub fn us(self) -> f64 {
        self.0 * 1e6
    }
    /// In milliseconds.
    pub fn ms(self) -> f64 {
        self.0 * 1e3
    }
}

impl Bytes {
    /// From binary mebibytes.
    pub fn from_mib(mib: f64) -> Self {
        Self(mib * 1_048_576.0)
    }
    /// In binary mebibytes.
    pub fn mib(self) -> f64 {
        self.0 / 1_048_576.0
    }
}

impl BytesPerSecond {
    /// From decimal gigabytes per second, as vendors give bandwidth.
    pub fn from_gbs(gbs: f64) -> Self {
        Self(gbs * 1e9)
    }
    /// In decimal gigabytes per second.
    pub fn gbs(self) -> f64 {
        self.0 / 1e9
    }
}

impl FlopsPerSecond {
    /// From teraflops per second.
    pub fn from_tflops(tflops: f64) -> Self {
        Self(tflops * 1e12)
    }
    /// In teraflops per second.
    pub fn tflops(self) -> f64 {
        self.0 / 1e12
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_over_bandwidth_is_time() {
        // 4.8 GB at 4.8 TB/s = 1 ms
        let t = Bytes(4.8e9) / BytesPerSecond::from_gbs(4800.0);
        assert!((t.ms() - 1.0).abs() < 1e-12);
    }

    #[test]
    fn a_gib_is_not_a_gb() {
        assert!((Bytes(1e9).mib() - 953.674_316).abs() < 1e-5);
    }
}
