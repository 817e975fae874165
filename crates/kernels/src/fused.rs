//! Kernels that a compiler fused: time from bytes and from work per place, by the way the kernel walks.
//!
//! ```text
//! t      = start + (stream_t^3 + issue_t^3)^(1/3)
//! stream_t = stream (1 + narrow) bytes / DRAM
//! issue_t  = places (element + load loads + store stores + extras) / lanes
//! ```
//!
//! Where `places` is results x values reduced for each, `lanes` the instructions per second of all lanes (SMs x 128 x clock), and
//! `extras` what functions, random numbers, atomic additions, gradients of max pooling and one-pass softmax add at each place. Bytes are Inductor's
//! own count, no more than the tensors hold.
//!
//! Constants: `python/bench/fit_fused.py` over 7,822 launches of 11 compiled networks on an H200 (PyTorch 2.11,
//! `data/measured/h200/compiled.csv.gz`). The sum of fused kernels of a network that was left out of the fit is off by 10.2 % in the mean of 22 runs; with the
//! network in it by 8.5 %.

use preflop_gpu::Gpu;
use preflop_ops::{Fused, FusedForm};
use preflop_units::math::Elementary as _;

/// What one form costs.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Constants {
    /// Seconds before the first byte and after the last.
    start: f64,
    /// Time of the bytes over their time at copy bandwidth.
    stream: f64,
    /// Lane instructions of a place.
    element: f64,
    /// Of a load at it.
    load: f64,
    /// Of a store.
    store: f64,
}

const POINTWISE: Constants =
    Constants { start: 1.27e-6, stream: 0.887, element: 30.5, load: 1.82, store: 0.35 };
const TILED: Constants = Constants { start: 1.59e-6, stream: 0.818, element: 0.271, load: 2.28, store: 20.8 };
const PERSISTENT: Constants =
    Constants { start: 1.42e-6, stream: 0.898, element: 0.364, load: 16.6, store: 0.299 };
const LOOPED_INNER: Constants =
    Constants { start: 3.45e-6, stream: 1.42, element: 0.0284, load: 1.6, store: 11.4 };
const LOOPED_OUTER: Constants =
    Constants { start: 2.02e-6, stream: 1.14, element: 0.0756, load: 5.77, store: 9.01 };
/// Nothing was measured: one pass over the bytes.
const TEMPLATE: Constants = Constants { start: 2e-6, stream: 1.15, element: 0.0, load: 0.0, store: 0.0 };

/// Lane instructions that a place adds for each function, for random numbers, for an atomic addition, for the gradient of max
/// pooling, for a one-pass softmax.
const FUNCTION: f64 = 11.1;
const RANDOM: f64 = 147.0;
const ATOMIC: f64 = 1390.0;
const POOLING_GRADIENT: f64 = 194.0;
const ONLINE_SOFTMAX: f64 = 17.8;
/// What a transpose of rows a few values wide adds to the time of its bytes: most of each sector is not used.
const NARROW: f64 = 3.75;
/// Lanes of one SM that issue in a clock.
const LANES_PER_SM: f64 = 128.0;

/// Terms of a fused kernel's time, in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Terms {
    /// Start and end.
    pub start: f64,
    /// Bytes at DRAM.
    pub stream: f64,
    /// Instructions.
    pub issue: f64,
}

impl Terms {
    /// The whole.
    pub fn time(&self) -> f64 {
        self.start + (self.stream.powi(3) + self.issue.powi(3)).cube_root()
    }
}

fn constants(form: FusedForm) -> Constants {
    match form {
        FusedForm::Pointwise => POINTWISE,
        FusedForm::Tiled => TILED,
        FusedForm::Persistent => PERSISTENT,
        FusedForm::LoopedInner => LOOPED_INNER,
        FusedForm::LoopedOuter => LOOPED_OUTER,
        FusedForm::Template => TEMPLATE,
    }
}

/// 90 % of the measured launches lie between these factors of their time.
pub fn spread(form: FusedForm) -> [f64; 2] {
    match form {
        FusedForm::Pointwise => [0.71, 1.29],
        FusedForm::Tiled => [0.77, 1.77],
        FusedForm::Persistent => [0.70, 1.55],
        FusedForm::LoopedInner => [0.67, 1.71],
        FusedForm::LoopedOuter => [0.64, 1.32],
        FusedForm::Template => [0.5, 4.0],
    }
}

/// What a launch takes on a GPU.
pub fn terms(fused: &Fused, gpu: &Gpu) -> Terms {
    let c = constants(fused.form);
    let flag = |on: bool, cost: f64| if on { cost } else { 0.0 };
    let traits = fused.traits;
    let extras = FUNCTION * f64::from(traits.functions)
        + flag(traits.random, RANDOM)
        + flag(traits.atomics, ATOMIC)
        + flag(traits.pooling_gradient, POOLING_GRADIENT)
        + flag(traits.online_softmax, ONLINE_SOFTMAX);
    let each = if fused.form == FusedForm::Template {
        0.0
    } else {
        c.element + c.load * f64::from(fused.loads) + c.store * f64::from(fused.stores) + extras
    };
    let lanes = f64::from(gpu.sm_count) * LANES_PER_SM * gpu.boost_clock.0;
    let bytes = fused.traffic().total().0;
    Terms {
        start: c.start,
        stream: c.stream * (1.0 + flag(traits.narrow, NARROW)) * bytes / gpu.dram_sustained.0,
        issue: fused.places() * each / lanes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use preflop_gpu::catalog;
    use preflop_ops::FusedTraits;

    fn relu(elements: u64) -> Fused {
        Fused {
            form: FusedForm::Pointwise,
            read: 2 * elements,
            written: 2 * elements,
            elements,
            reduced: 1,
            loads: 1,
            stores: 1,
            traits: FusedTraits::default(),
        }
    }

    #[test]
    fn a_large_pointwise_kernel_takes_the_time_of_its_bytes() {
        let h200 = catalog::find("h200").unwrap();
        // 2^28 values of 2 bytes read and written: 1.0737 GB / 4.3 TB/s x 0.887 = 221.5 us; instructions 2^28 x 32.67 / 33.45e12 =
        // 262.2 us; (221.5^3 + 262.2^3)^(1/3) = 307.0 us, and 1.27 us.
        let t = terms(&relu(1 << 28), &h200).time() * 1e6;
        assert!((t - 308.2).abs() < 1.0, "{t}");
    }

    #[test]
    fn time_never_falls_as_bytes_or_places_grow() {
        let h200 = catalog::find("h200").unwrap();
        let mut last = 0.0;
        for power in 0..34 {
            let t = terms(&relu(1 << power), &h200).time();
            assert!(t >= last);
            last = t;
        }
    }

    #[test]
    fn less_bandwidth_takes_longer() {
        let [h200, l4] = ["h200", "l4"].map(|n| catalog::find(n).unwrap());
        assert!(terms(&relu(1 << 24), &l4).time() > terms(&relu(1 << 24), &h200).time());
    }
}
