//! Laws of operator times: no call beats the hardware, and every number is a number.

mod common;

use preflop_core::time::TimeModel;
use preflop_core::units::Bytes;
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;

/// The model as it ships, read once.
fn model() -> &'static TimeModel {
    static MODEL: std::sync::OnceLock<TimeModel> = std::sync::OnceLock::new();
    MODEL.get_or_init(TimeModel::embedded)
}

proptest! {
    // The same cases in every run: a law that fails must fail for whoever looks next, too.
    #![proptest_config(ProptestConfig {
        cases: 2000,
        rng_seed: proptest::test_runner::RngSeed::Fixed(20_261_115),
        ..ProptestConfig::default()
    })]

    /// Every figure of a prediction is finite, the time is positive and lies in its interval.
    #[test]
    fn predictions_are_numbers(call in common::call(), gpu in common::gpu()) {
        let p = model().predict(&call, &gpu);
        for x in [p.time.0, p.low.0, p.high.0, p.flops.0, p.dram.0, p.l2.0, p.l1.0, p.launches] {
            prop_assert!(x.is_finite() && x >= 0.0, "{call:?} on {}: {p:?}", gpu.name);
        }
        prop_assert!(p.time.0 > 0.0);
        prop_assert!(p.low <= p.time && p.time <= p.high, "{call:?} on {}: {p:?}", gpu.name);
    }

    /// No call is faster than the arithmetic it needs at the datasheet peak (Winograd and FFT need less).
    #[test]
    fn arithmetic_bounds_the_time(call in common::call(), gpu in common::gpu()) {
        let p = model().predict(&call, &gpu);
        let peak = gpu.peak(call.dtype).max(gpu.plain_peak(call.dtype));
        let bound = call.flops() / peak / TimeModel::shortcut(&call);
        prop_assert!(p.time.0 >= bound.0 * (1.0 - 1e-9), "{call:?} on {}: {:?} < {bound:?}", gpu.name, p.time);
    }

    /// No call is faster than its compulsory bytes at the datasheet bandwidth, less what the L2 may hold over
    /// from the call before.
    #[test]
    fn bytes_bound_the_time(call in common::call(), gpu in common::gpu()) {
        let p = model().predict(&call, &gpu);
        let traffic = call.traffic();
        let compulsory = (traffic.read.max(traffic.written) - gpu.l2_size).max(Bytes::ZERO);
        let bound = compulsory / gpu.dram;
        prop_assert!(p.time.0 >= bound.0 * (1.0 - 1e-9), "{call:?} on {}: {:?} < {bound:?}", gpu.name, p.time);
    }

    /// No call is faster than an empty kernel.
    #[test]
    fn the_floor_bounds_the_time(call in common::call(), gpu in common::gpu()) {
        let p = model().predict(&call, &gpu);
        prop_assert!(p.time.0 >= gpu.kernel_floor.0 * (1.0 - 1e-9), "{call:?} on {}: {:?}", gpu.name, p.time);
    }

    /// Whatever the row reader accepts can be predicted, however large.
    #[test]
    fn accepted_rows_can_be_predicted(row in common::bent_row(), dtype in common::dtype(), gpu in common::gpu()) {
        let (op, phase, shape) = row;
        if let Ok(call) = preflop_core::ops::row::parse(op, phase, dtype, &shape) {
            let p = model().predict(&call, &gpu);
            for x in [p.time.0, p.low.0, p.high.0, p.flops.0, p.dram.0, p.l2.0, p.l1.0] {
                prop_assert!(x.is_finite() && x >= 0.0, "{call:?} on {}: {p:?}", gpu.name);
            }
        }
    }
}

/// Doubling one size, with alignment and kernel kept, makes few calls faster, and hardly any by more than a few per cent. (`preflop-fit laws`
/// counts on the calls of measured networks.)
#[test]
fn few_calls_get_faster_as_a_size_doubles() {
    let config = ProptestConfig {
        rng_seed: proptest::test_runner::RngSeed::Fixed(20_261_118),
        ..ProptestConfig::default()
    };
    let mut runner = proptest::test_runner::TestRunner::new(config);
    let (mut asked, mut faster, mut much) = (0, 0, Vec::new());
    while asked < 20_000 {
        let (call, gpu) = (common::call(), common::gpu()).new_tree(&mut runner).unwrap().current();
        for (_, larger) in call.doubled() {
            if model().same_kernel(&call, &larger, &gpu) {
                let (small, large) =
                    (model().predict(&call, &gpu).time.0, model().predict(&larger, &gpu).time.0);
                asked += 1;
                faster += usize::from(large < small * (1.0 - 1e-9));
                if large < 0.95 * small {
                    much.push(format!("{} {call:?}: {small:e} {large:e}", gpu.name));
                }
            }
        }
    }

    assert!(20 * faster <= asked, "{faster} of {asked}");
    assert!(125 * much.len() <= asked, "{}: {much:#?}", much.len());
}
