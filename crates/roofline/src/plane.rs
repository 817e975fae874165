//! Geometry of the time plane: x is bytes (byte time on top), y is FLOPs (FLOP time on the right), both
//! logarithmic with decades of one length.

use super::bounds::Work;
use super::machine::{Level, Machine, Pipe};
use preflop_units::Seconds;
use preflop_units::math::Elementary as _;
use serde::Serialize;

/// A point of the plane.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Point {
    /// Bytes.
    pub bytes: f64,
    /// FLOPs.
    pub flops: f64,
}

/// One roof and one level of a machine: the plane they span.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Plane {
    /// `P` in FLOP/s.
    pub peak: f64,
    /// `W` in B/s.
    pub bandwidth: f64,
}

impl Plane {
    /// The plane of a pipe and a level; `None` if the machine does not know the level's bandwidth.
    pub fn of(machine: &Machine, pipe: Pipe, level: Level) -> Option<Self> {
        Some(Self { peak: machine.peak(pipe).0, bandwidth: machine.bandwidth(level)?.0 })
    }

    /// `MB = P/W` in FLOP per byte.
    pub fn balance(&self) -> f64 {
        self.peak / self.bandwidth
    }

    /// Where the work stands: `(B, F)`. `None` for work without FLOPs or bytes: that goes on the rug.
    pub fn complexity(work: &Work, level: Level) -> Option<Point> {
        let point = Point { bytes: work.bytes(level)?.0, flops: work.total_flops().0 };
        (point.bytes > 0.0 && point.flops > 0.0).then_some(point)
    }

    /// Where its time stands, on the same diagonal.
    ///
    /// With `AI = F/B`: `AI > MB`: FLOP time = t, byte time = t MB/AI; else byte time = t, FLOP time = t AI/MB.
    pub fn time_point(&self, complexity: Point, time: Seconds) -> Point {
        let relative = complexity.flops / complexity.bytes / self.balance();
        let (byte_time, flop_time) =
            if relative > 1.0 { (time.0 / relative, time.0) } else { (time.0, time.0 * relative) };
        Point { bytes: byte_time * self.bandwidth, flops: flop_time * self.peak }
    }

    /// Corner of the box of `launches` launches: `(W N t0, P N t0)`. Work inside is overhead-bound.
    pub fn launch_corner(&self, launches: f64, overhead: Seconds) -> Point {
        self.corner(overhead * launches)
    }

    /// Corner of the iso-time curve, on the balance diagonal.
    pub fn corner(&self, time: Seconds) -> Point {
        Point { bytes: self.bandwidth * time.0, flops: self.peak * time.0 }
    }
}

/// Whole powers of ten just outside `[low, high]`.
pub fn decades(low: f64, high: f64) -> (f64, f64) {
    let below = low.max(f64::MIN_POSITIVE).decimal_log().floor();
    let above = high.max(f64::MIN_POSITIVE).decimal_log().ceil();
    (10f64.power(below), 10f64.power(above.max(below + 1.0)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::study::{TENSOR, machine};

    fn plane() -> Plane {
        Plane::of(&machine(), TENSOR, Level::Dram).unwrap()
    }

    #[test]
    fn the_time_point_stays_on_its_diagonal() {
        let p = plane();
        // MB = 106.49e12 / 828.8e9 = 128.5
        assert!((p.balance() - 128.487).abs() < 1e-3);
        for (bytes, flops) in [(81.95e6, 28.72e9), (1e6, 1e6)] {
            let point = Point { bytes, flops };
            let t = p.time_point(point, Seconds(1e-3));
            assert!(((t.flops / t.bytes) / (flops / bytes) - 1.0).abs() < 1e-12);
            // The slower of the two axes shows the time itself.
            let shown = (t.bytes / p.bandwidth).max(t.flops / p.peak);
            assert!((shown - 1e-3).abs() < 1e-15);
        }
    }

    #[test]
    fn work_at_the_roof_does_not_move() {
        let p = plane();
        let point = Point { bytes: 1e6, flops: 1e9 };
        // AI 1000 > MB: t_F = 1e9 / 106.49e12
        let t = p.time_point(point, Seconds(1e9 / 106.49e12));
        assert!((t.bytes / 1e6 - 1.0).abs() < 1e-12 && (t.flops / 1e9 - 1.0).abs() < 1e-12);
    }

    #[test]
    fn the_launch_box_of_the_studys_lstm() {
        // 277 x 4.2 us x 828.8 GB/s = 964.2 MB
        let corner = plane().launch_corner(277.0, Seconds::from_us(4.2));
        assert!((corner.bytes / 964.226e6 - 1.0).abs() < 1e-5);
        assert!((corner.flops / corner.bytes / plane().balance() - 1.0).abs() < 1e-12);
    }

    #[test]
    fn decades_surround() {
        assert_eq!(decades(2.0, 300.0), (1.0, 1000.0));
        assert_eq!(decades(10.0, 10.0), (10.0, 100.0));
    }
}
