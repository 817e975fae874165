//! Laws of the DeLTA model that hold for any layer and machine.

// The helpers of a test file are test code too.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use preflop_core::Dtype;
use preflop_core::delta::{Bottleneck, EdgeTiles, Fig6, Layer, Machine, Readings, TilePolicy, evaluate};
use preflop_core::explore::{Scales, pareto};
use preflop_core::gpu::catalog;
use proptest::prelude::*;

prop_compose! {
    fn any_layer()(
        batch in 1u64..300,
        channels in (1u64..200, 1u64..300, 1u64..5),
        map in (1u64..120, 1u64..120),
        filter in (1u64..8, 1u64..8),
        stride in (1u64..5, 1u64..5),
        pad in (0u64..4, 0u64..4),
        dilation in (1u64..4, 1u64..4),
        element_bytes in prop::sample::select(vec![0.5, 1.0, 2.0, 4.0, 8.0]),
    ) -> Layer {
        Layer {
            batch,
            ci: channels.0 * channels.2,
            co: channels.1 * channels.2,
            h: map.0,
            w: map.1,
            r: filter.0,
            s: filter.1,
            stride: [stride.0, stride.1],
            pad: [pad.0, pad.1],
            dilation: [dilation.0, dilation.1],
            groups: channels.2,
            element_bytes,
        }
    }
}

fn any_machine() -> impl Strategy<Value = Machine> {
    prop::sample::select(vec!["titan-xp", "p100-pcie", "v100-pcie-16gb", "h200", "mi300x", "t4"])
        .prop_map(|name| Machine::of(&catalog::find(name).unwrap(), Dtype::Fp32))
}

proptest! {
    #[test]
    fn reports_are_consistent(layer in any_layer(), machine in any_machine(), edge in prop::sample::select(vec![64, 128, 256])) {
        let policy = EdgeTiles::new(edge).unwrap();
        let Ok(r) = evaluate(&layer, &machine, &policy, Readings::default()) else {
            prop_assert!(layer.check().is_err());
            return Ok(());
        };
        prop_assert!(r.time.0.is_finite() && r.time.0 > 0.0);
        for (bound, which) in r.bounds.iter().zip(Bottleneck::ALL) {
            prop_assert!(r.time >= *bound, "{which:?}");
            prop_assert!(which == r.bottleneck || r.bound(r.next) >= *bound, "{which:?}");
        }
        prop_assert_eq!(r.bound(r.bottleneck), r.time);
        prop_assert!(r.headroom() >= 1.0);
        // Each level carries no more than the one before it.
        prop_assert!(r.traffic.l1 >= r.traffic.l2 && r.traffic.l2 >= r.traffic.dram && r.traffic.dram.0 > 0.0);
        // Arithmetic at the machine's peak is a floor.
        let g = layer.gemm();
        let macs = g.m * g.n * g.k * g.groups;
        prop_assert!(r.time.0 * machine.mac_per_s_per_sm * f64::from(machine.num_sm) >= macs * (1.0 - 1e-9));
    }

    #[test]
    fn more_of_a_rate_never_costs_time(layer in any_layer(), machine in any_machine(), factor in 1.0f64..8.0) {
        prop_assume!(layer.check().is_ok());
        let time = |m: &Machine| evaluate(&layer, m, &Fig6, Readings::default()).unwrap().time.0;
        let before = time(&machine);
        for key in ["mac_per_sm", "reg", "smem_size", "smem_bw", "l1_bw", "l2_bw", "dram_bw"] {
            let faster = Scales::default().with(key, factor).unwrap().machine(&machine).unwrap();
            prop_assert!(time(&faster) <= before * (1.0 + 1e-12), "{}", key);
        }
    }

    #[test]
    fn more_images_never_take_less_time(layer in any_layer(), machine in any_machine(), more in 1u64..100) {
        prop_assume!(layer.check().is_ok());
        // Fewer columns of padding rows in the last CTA may even out, so whole CTAs are compared.
        let pixels = layer.out(0) * layer.out(1);
        let time = |batch| {
            evaluate(&layer.with_batch(batch), &machine, &Fig6, Readings::default()).unwrap()
        };
        let whole = 128 * layer.batch;
        let (a, b) = (time(whole), time(whole + 128 * more));
        prop_assert!(pixels > 0);
        prop_assert!(b.num_cta > a.num_cta);
        prop_assert!(b.traffic.l1 > a.traffic.l1 && b.traffic.dram > a.traffic.dram);
        prop_assert!(b.bound(Bottleneck::Mac) >= a.bound(Bottleneck::Mac));
    }

    #[test]
    fn groups_are_independent_layers(layer in any_layer(), machine in any_machine()) {
        prop_assume!(layer.check().is_ok());
        let one = Layer { groups: 1, ci: layer.ci / layer.groups, co: layer.co / layer.groups, ..layer };
        prop_assert_eq!(Fig6.tile(&layer), Fig6.tile(&one));
        let whole = evaluate(&layer, &machine, &Fig6, Readings::default()).unwrap();
        let part = evaluate(&one, &machine, &Fig6, Readings::default()).unwrap();
        let groups = layer.groups as f64;
        prop_assert!((whole.traffic.l1.0 / (part.traffic.l1.0 * groups) - 1.0).abs() < 1e-9);
        prop_assert!((whole.traffic.dram.0 / (part.traffic.dram.0 * groups) - 1.0).abs() < 1e-9);
        prop_assert_eq!(whole.num_cta, part.num_cta * groups);
    }

    #[test]
    fn nothing_beats_the_front(points in prop::collection::vec((0.1f64..10.0, 0.1f64..10.0), 0..60)) {
        let front = pareto(&points);
        for (i, &(speed, cost)) in points.iter().enumerate() {
            let beaten = points.iter().any(|&(s, c)| s >= speed && c <= cost && (s > speed || c < cost));
            prop_assert_eq!(front[i], !beaten);
        }
    }
}
