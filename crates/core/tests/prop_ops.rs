//! Laws of operator rows: what is valid survives a round trip, what is not gives one line and no panic.

mod common;

use preflop_core::OpCall;
use preflop_core::ops::row;
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// A call survives JSON.
    #[test]
    fn calls_round_trip(call in common::call()) {
        let text = serde_json::to_string(&call).expect("a call is JSON");
        let back: OpCall = serde_json::from_str(&text).expect("its JSON is a call");
        prop_assert_eq!(back, call);
    }

    /// FLOPs and bytes of a valid row are finite; it moves something.
    #[test]
    fn work_is_a_number(call in common::call()) {
        let (flops, traffic) = (call.flops().0, call.traffic());
        prop_assert!(flops.is_finite() && flops >= 0.0, "{call:?}");
        prop_assert!(traffic.read.0 >= 0.0 && traffic.written.0 > 0.0, "{call:?}");
        prop_assert!(traffic.total().0.is_finite(), "{call:?}");
    }

    /// Any four texts give a call or one line.
    #[test]
    fn any_text_is_safe(op in ".*", phase in ".*", dtype in ".*", shape in ".*") {
        let known = row::parse("conv2d", "fwd", "fp32", &shape);
        for result in [row::parse(&op, &phase, &dtype, &shape), known] {
            if let Err(error) = result {
                prop_assert!(!error.to_string().is_empty());
            }
        }
    }

    /// Sizes near the limits give a call whose work is a number, or one line.
    #[test]
    fn large_sizes_are_safe(row in common::bent_row(), dtype in common::dtype()) {
        let (op, phase, shape) = row;
        if let Ok(call) = row::parse(op, phase, dtype, &shape) {
            prop_assert!(call.flops().0.is_finite() && call.traffic().total().0.is_finite(), "{call:?}");
        }
    }

    /// Any keys with any values give a call or one line that is not empty.
    #[test]
    fn any_shape_is_safe(
        op in proptest::sample::select(row::OPS.to_vec()),
        phase in proptest::sample::select(vec!["fwd", "bwd", "dgrad", "wgrad"]),
        shape in common::odd_shape(),
    ) {
        match row::parse(op, phase, "bf16", &shape) {
            Ok(call) => prop_assert!(call.flops().0.is_finite() && call.traffic().total().0.is_finite()),
            Err(error) => {
                let text = error.to_string();
                prop_assert!(!text.is_empty() && !text.contains('\n'), "{text}");
            }
        }
    }
}
