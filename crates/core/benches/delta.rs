//! Speed of the DeLTA model on one core: one million evaluations of a (layer, design) pair, and what a sweep
//! costs that cuts its layers only once. `cargo bench -p preflop-core --bench delta`; exits 1 over the limit.

use preflop_core::Dtype;
use preflop_core::delta::networks::{self, counted};
use preflop_core::delta::{Fig6, Machine, Readings, evaluate};
use preflop_core::explore::{Sweep, Workload};
use preflop_core::gpu::catalog;
use std::hint::black_box;
use std::process::ExitCode;
use std::time::Instant;

/// Seconds that a million evaluations may take on one core.
const MILLION_LIMIT_S: f64 = 2.0;
/// Seconds that ResNet152 on 10,000 designs may take on one core; the aim is 3 on two.
const SWEEP_LIMIT_S: f64 = 3.0;

#[allow(clippy::print_stdout)]
fn main() -> ExitCode {
    let base = Machine::of(&catalog::find("titan-xp").expect("a catalogue GPU"), Dtype::Fp32);
    let layers = networks::find("resnet152", 256).expect("a known network");
    let distinct = counted(&layers);
    let mut sweep = Sweep::default();
    for axis in ["sm_count=1:10:1", "mac_per_sm=1:10:1", "dram_bw=1:10:1", "l2_bw=1:10:1"] {
        sweep.vary(axis).expect("a sweep");
    }
    let designs = sweep.designs().expect("10,000 designs");

    let start = Instant::now();
    let mut done = 0_u64;
    'all: for design in designs.iter().cycle() {
        let machine = design.scales.machine(&base).expect("a machine");
        for (named, _) in &distinct {
            black_box(
                evaluate(black_box(&named.layer), &machine, &Fig6, Readings::default()).expect("a report"),
            );
            done += 1;
            if done == 1_000_000 {
                break 'all;
            }
        }
    }
    let million = start.elapsed().as_secs_f64();
    println!("1,000,000 (layer, design) evaluations, one core: {million:.3} s (limit {MILLION_LIMIT_S} s)");

    let start = Instant::now();
    let workload = Workload::new(&layers, &base, [], Readings::default()).expect("a workload");
    let mut best = 0.0_f64;
    for design in &designs {
        best = best.max(workload.evaluate(design).expect("a result").speedup);
    }
    let swept = start.elapsed().as_secs_f64();
    println!(
        "ResNet152 x {} designs, one core: {swept:.3} s (limit {SWEEP_LIMIT_S} s on two); best {best:.1}x",
        designs.len()
    );
    ExitCode::from(u8::from(million > MILLION_LIMIT_S || swept > SWEEP_LIMIT_S))
}
