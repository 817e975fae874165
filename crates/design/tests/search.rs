//! The best design under limits: by trying all, and by looking.
#![allow(clippy::unwrap_used)]

use preflop_core::explore::{AREA_WEIGHTS, AreaWeights};
use preflop_core::gpu::catalog;
use preflop_core::model::{LowerOptions, Mode, Precision, lower, zoo};
use preflop_core::time::TimeModel;
use preflop_design::{Design, Found, Limits, Network, Objective, Workload, axis, grid, optimise};

fn networks() -> Vec<Network> {
    [("resnet18", 16), ("gpt2", 1)]
        .map(|(name, batch)| {
            let graph = zoo::build(name, Some(batch), None).unwrap();
            let options = LowerOptions { mode: Mode::Infer, precision: Precision::Fp16, optimizer: None };
            Network { name: name.to_string(), iteration: lower(&graph, &options).unwrap() }
        })
        .to_vec()
}

fn weights() -> AreaWeights {
    AreaWeights::parse(AREA_WEIGHTS, "area_weights.toml").unwrap()
}

#[test]
fn the_base_is_itself() {
    let (model, gpu, networks) = (TimeModel::embedded(), catalog::find("h200").unwrap(), networks());
    let workload = Workload::new(&model, &gpu, &networks, weights(), Some(2.0), None);
    let base = workload.evaluate(Design::BASE);
    assert!((base.speedup - 1.0).abs() < 1e-12 && (base.share - 1.0).abs() < 1e-12);
    assert_eq!((base.area_mm2, base.watts), (Some(814.0), gpu.tdp_w));
    assert_eq!(base.design.name(), "base");
    // Weights of data/area_weights.toml: twice the memory bandwidth adds 0.25 of the base, twice the SMs 0.5.
    let wide = workload.evaluate(Design([1.0, 1.0, 1.0, 1.0, 2.0]));
    assert!((wide.share - 1.25).abs() < 1e-12 && wide.speedup >= 1.0);
    let more = workload.evaluate(Design([2.0, 1.5, 1.0, 1.0, 1.0]));
    assert!((more.share - 1.5).abs() < 1e-12);
    assert!((more.watts / gpu.tdp_w - 1.5 * 1.5).abs() < 1e-12);
}

#[test]
fn the_optimiser_finds_nearly_what_trying_all_finds_and_keeps_to_the_limits() {
    let (model, gpu, networks) = (TimeModel::embedded(), catalog::find("h200").unwrap(), networks());
    let workload = Workload::new(&model, &gpu, &networks, weights(), Some(2.0), None);
    let limits = Limits::parse("watts=800,area=900").unwrap();
    for objective in [Objective::Time, Objective::Energy] {
        let lists = ["sm_count=0.5:2:0.25", "clock=0.8:1.2:0.1", "dram_bw=0.5:2:0.25"];
        let axes: Vec<_> = lists.iter().map(|t| axis(t).unwrap()).collect();
        let all: Vec<_> = grid(&axes).unwrap().into_iter().map(|d| workload.evaluate(d)).collect();
        assert_eq!(all.len(), 7 * 5 * 7);
        let tried = Found::of(all, objective, &limits).unwrap();
        let ranges = ["sm_count=0.5..2", "clock=0.8..1.2", "dram_bw=0.5..2"];
        let axes: Vec<_> = ranges.iter().map(|t| axis(t).unwrap()).collect();
        assert!(grid(&axes).is_none());
        let looked = optimise(&workload, &axes, objective, &limits).unwrap();
        assert_eq!(looked, optimise(&workload, &axes, objective, &limits).unwrap(), "not the same twice");
        let names: std::collections::HashSet<_> = looked.all.iter().map(|e| e.design.name()).collect();
        assert_eq!(names.len(), looked.all.len(), "each design is listed once");
        let best = &looked.all[looked.best];
        assert!(best.watts <= 800.0 * (1.0 + 1e-9) && best.area_mm2.unwrap() <= 900.0 * (1.0 + 1e-9));
        // The base keeps to these limits, so that the best is no worse.
        assert!(best.objective(objective) <= workload.evaluate(Design::BASE).objective(objective));
        let ratio = best.objective(objective) / tried.all[tried.best].objective(objective);
        assert!(
            ratio < 1.02,
            "{objective:?}: {ratio} ({} against {})",
            best.design.name(),
            tried.all[tried.best].design.name()
        );
    }
}

#[test]
fn limits_that_nothing_keeps_to_say_what_is_nearest() {
    let (model, gpu, networks) = (TimeModel::embedded(), catalog::find("h200").unwrap(), networks());
    let workload = Workload::new(&model, &gpu, &networks, weights(), None, None);
    let axes = [axis("sm_count=1,2").unwrap()];
    let all: Vec<_> = grid(&axes).unwrap().into_iter().map(|d| workload.evaluate(d)).collect();
    let error = Found::of(all, Objective::Time, &Limits::parse("area=100").unwrap()).unwrap_err().to_string();
    assert!(error.contains("area=100") && error.contains("814 mm2"), "{error}");
    assert!(workload.check(Objective::Cost, &Limits::default()).is_err());
    for bad in ["", "watts", "watts=x", "wats=700", "area=-1", "watts=700;area=8"] {
        assert!(Limits::parse(bad).is_err(), "{bad}");
    }
    assert!(Limits::parse("wats=700").unwrap_err().to_string().contains("did you mean `watts`"));
}
