//! Elementary functions that give the same bits everywhere.
//!
//! The standard library takes these from the platform: a terminal, a Mac and a browser would then differ in the last bits, and by more
//! where a tree's threshold lies between. These come from one implementation (the `libm` crate) on every platform; square roots,
//! sums and products are exact by IEEE 754 and need no such care.

/// Elementary functions of a number.
pub trait Elementary {
    /// e^x.
    #[must_use]
    fn exponential(self) -> Self;
    /// 2^x.
    #[must_use]
    fn power_of_two(self) -> Self;
    /// x^y.
    #[must_use]
    fn power(self, y: Self) -> Self;
    /// ln x.
    #[must_use]
    fn natural_log(self) -> Self;
    /// log2 x.
    #[must_use]
    fn binary_log(self) -> Self;
    /// log10 x.
    #[must_use]
    fn decimal_log(self) -> Self;
    /// The cube root of x.
    #[must_use]
    fn cube_root(self) -> Self;
    /// sqrt(x^2 + y^2).
    #[must_use]
    fn hypotenuse(self, y: Self) -> Self;
}

impl Elementary for f64 {
    fn exponential(self) -> Self {
        libm::exp(self)
    }
    fn power_of_two(self) -> Self {
        libm::exp2(self)
    }
    fn power(self, y: Self) -> Self {
        libm::pow(self, y)
    }
    fn natural_log(self) -> Self {
        libm::log(self)
    }
    fn binary_log(self) -> Self {
        libm::log2(self)
    }
    fn decimal_log(self) -> Self {
        libm::log10(self)
    }
    fn cube_root(self) -> Self {
        libm::cbrt(self)
    }
    fn hypotenuse(self, y: Self) -> Self {
        libm::hypot(self, y)
    }
}

impl Elementary for f32 {
    fn exponential(self) -> Self {
        libm::expf(self)
    }
    fn power_of_two(self) -> Self {
        libm::exp2f(self)
    }
    fn power(self, y: Self) -> Self {
        libm::powf(self, y)
    }
    fn natural_log(self) -> Self {
        libm::logf(self)
    }
    fn binary_log(self) -> Self {
        libm::log2f(self)
    }
    fn decimal_log(self) -> Self {
        libm::log10f(self)
    }
    fn cube_root(self) -> Self {
        libm::cbrtf(self)
    }
    fn hypotenuse(self, y: Self) -> Self {
        libm::hypotf(self, y)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_agree_with_the_platform_to_fifteen_digits() {
        let close = |a: f64, b: f64| assert!((a - b).abs() <= 1e-15 * b.abs().max(1.0), "{a} {b}");
        for i in 1..2000 {
            let x = f64::from(i) * 0.0137;
            close(x.natural_log(), x.ln());
            close(x.binary_log(), x.log2());
            close(x.cube_root(), x.cbrt());
            close((-x).exponential(), (-x).exp());
            close((x / 30.0).power_of_two(), (x / 30.0).exp2());
            close((x / 30.0).power(0.7), (x / 30.0).powf(0.7));
            close(x.hypotenuse(1.0) / 30.0, x.hypot(1.0) / 30.0);
        }
        // Powers of two are exact both ways: 2^10 = 1024.
        assert_eq!(1024.0_f64.binary_log(), 10.0);
        assert_eq!(10.0_f64.power_of_two(), 1024.0);
        assert_eq!(1024.0_f32.binary_log(), 10.0);
    }
}
