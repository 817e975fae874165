//! The iteration from GPU and host time: neither is free, and they overlap.

use crate::units::Seconds;

/// Exponent of the overlap rule, fitted on the H200 iterations (docs/accuracy.md; 58 rows, mean error 6.0 %).
const P: f64 = 6.0;

/// Time that neither hides: the first launch and the last wait. Same fit.
const REST: Seconds = Seconds(0.095e-3);

/// `(gpu^6 + host^6)^(1/6) + 0.095 ms`.
///
/// Where: gpu the time with anything on the GPU (a union, not a sum); host the host's own time without waits.
pub fn rule(gpu: Seconds, host: Seconds) -> Seconds {
    let large = gpu.max(host);
    if large.0 <= 0.0 {
        return REST;
    }
    // Scaled by the larger one so that no power overflows.
    let (g, h) = (gpu / large, host / large);
    large * (g.powf(P) + h.powf(P)).powf(1.0 / P) + REST
}

/// The iteration elsewhere: the measured one, changed as the rule changes.
///
/// `T_d = T_o * rule(G_d, H_d) / rule(G_o, H_o)`, so that nothing changes where neither time does, and what the
/// rule does not know of this program stays in proportion.
pub fn elsewhere(measured: Seconds, here: (Seconds, Seconds), there: (Seconds, Seconds)) -> Seconds {
    measured * (rule(there.0, there.1) / rule(here.0, here.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_larger_one_rules() {
        let r = |g, h| rule(Seconds(g), Seconds(h)).0 - REST.0;
        assert!((r(1.0, 0.1) - 1.0).abs() < 1e-6);
        assert!((r(0.1, 1.0) - 1.0).abs() < 1e-6);
        // Equal times: 2^(1/6) = 1.1225
        assert!((r(1.0, 1.0) - 1.122_462).abs() < 1e-6);
    }

    #[test]
    fn no_change_is_no_change() {
        let here = (Seconds(0.03), Seconds(0.02));
        assert_eq!(elsewhere(Seconds(0.031), here, here), Seconds(0.031));
    }
}
