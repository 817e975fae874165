//! Laws of operator times: no call beats the hardware, and every number is a number.

mod common;

use preflop_core::time::TimeModel;
use preflop_core::units::Bytes;
use proptest::prelude::*;

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

    /// Doubling every size never makes a call faster by more than a few per cent.
    #[test]
    fn larger_calls_take_longer(call in common::call(), gpu in common::gpu()) {
        if let Some(half) = call.halved() {
            let (whole, half) = (model().predict(&call, &gpu).time, model().predict(&half, &gpu).time);
            prop_assert!(whole.0 >= 0.95 * half.0, "{call:?} on {}: {whole:?} against {half:?}", gpu.name);
        }
    }

    /// The same on the GPU that was measured, whose corrections are taken whole.
    #[test]
    fn larger_calls_take_longer_where_measured(call in common::call()) {
        let gpu = preflop_core::gpu::catalog::find("h200").unwrap();
        if let Some(half) = call.halved() {
            let (whole, half) = (model().predict(&call, &gpu).time, model().predict(&half, &gpu).time);
            prop_assert!(whole.0 >= 0.95 * half.0, "{call:?}: {whole:?} against {half:?}");
        }
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
