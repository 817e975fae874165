//! The iteration from GPU and host time: neither is free, and they overlap.

use preflop_schedule::HostModel;
use preflop_units::Seconds;

/// Time with anything on the GPU (a union, not a sum), and the host's own time without waits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sides {
    /// GPU.
    pub gpu_wall: Seconds,
    /// Host.
    pub host: Seconds,
}

/// The iteration elsewhere: the measured one, changed as the rule of [`HostModel::join`] changes.
///
/// `T_d = T_o * join(G_d, H_d) / join(G_o, H_o)`, so that nothing changes where neither side does, and what the
/// rule does not know of this program stays in proportion.
///
/// Where: T iteration; G GPU wall time; H host time; o origin; d destination.
pub fn elsewhere(model: &HostModel, measured: Seconds, here: Sides, there: Sides) -> Seconds {
    let join = |s: Sides| model.join(s.gpu_wall, s.host);
    let before = join(here);
    if before.0 > 0.0 { measured * (join(there) / before) } else { measured }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_change_is_no_change() {
        let here = Sides { gpu_wall: Seconds(0.03), host: Seconds(0.02) };
        assert_eq!(elsewhere(&HostModel::START, Seconds(0.031), here, here), Seconds(0.031));
    }

    #[test]
    fn a_host_bound_job_gains_nothing_from_a_faster_gpu() {
        let here = Sides { gpu_wall: Seconds(0.01), host: Seconds(0.1) };
        let there = Sides { gpu_wall: Seconds(0.001), ..here };
        let t = elsewhere(&HostModel::START, Seconds(0.1), here, there);
        assert!((t.0 / 0.1 - 1.0).abs() < 1e-5);
    }
}
