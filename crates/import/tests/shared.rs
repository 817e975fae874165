//! Recordings of other people, which are not part of this repository.
//!
//! Run with `PREFLOP_SHARED=<folder> cargo test -p preflop-import --features shared-data --test shared -- --nocapture`.
#![allow(clippy::unwrap_used)]

use preflop_core::gpu::catalog;
use preflop_core::profile::{Analysis, Format, Profile, explain, occupancy, origin, window::Choice};
use preflop_core::time::TimeModel;
use preflop_core::transfer::change::Change;
use preflop_core::transfer::{Host, Method, Options, transfer};
use preflop_import::import;
use std::path::PathBuf;

fn shared(path: &str) -> PathBuf {
    let root = std::env::var_os("PREFLOP_SHARED")
        .expect("PREFLOP_SHARED must name the folder of shared recordings (it holds data/profiles)");
    PathBuf::from(root).join("data").join(path)
}

fn profile(path: &str) -> Profile {
    import(&shared(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

const PROFILES: [&str; 13] = [
    "a100_alexnet_cupti_flop_counters.kineto.json.gz",
    "a100_ddp2_train_nccl.kineto.json.gz",
    "a100_torchcompile_triton_tiny.kineto.json.gz",
    "b200_gptoss_vllm_eager_tp8_prefill.kineto.json.gz",
    "h100_2gpu_1s.nsys.sqlite",
    "h100_bert-small_fwd_bf16.kineto.json.gz",
    "h100_qwen1.5-0.5b_b16_s2048_fwd_bf16.kineto.json.gz",
    "h100_timesformer-base_fwd_bf16.kineto.json.gz",
    "mi300x_qwen1.5-0.5b_b16_s2048_fwd_bf16.kineto.json.gz",
    "mi300x_vllm_decode_fullgraph.kineto.json.gz",
    "t4_copy_blocked.ncu_details.csv",
    "t4_power_iteration_cupy.nsys.sqlite",
    "v100_resnet_ddp_train_fp32.kineto.json.gz",
];

const TRACES: [(&str, f64); 8] = [
    // Sums of kernel times, known from the measurement notes.
    ("bert-large-b16-amp-train", 67.75),
    ("dcgan-b128-fp32-train", 8.12),
    ("gnmt-b64-fp32-train", 149.22),
    ("gpt2-b8-amp-train", 58.80),
    ("inception_v3-b64-fp32-train", 117.25),
    ("resnet50-b64-amp-train", 27.77),
    ("resnet50-b64-fp32-train", 76.11),
    ("transformer-b64-fp32-train", 40.17),
];

fn trace(name: &str) -> Profile {
    profile(&format!("h200/traces/{name}.json.gz"))
}

#[test]
fn all_21_files_import() {
    for name in PROFILES {
        let p = profile(&format!("profiles/{name}"));
        let gpu = p.devices.first().and_then(origin::find).map_or("-".to_string(), |g| g.name);
        println!(
            "{name}: {} GPU events, {} operators, {} counted kernels, {} unreadable, {gpu}",
            p.gpu_events.len(),
            p.ops.len(),
            p.counters.len(),
            p.reading.unreadable
        );
        assert!(p.reading.kept > 0 && p.reading.unreadable == 0, "{name}: {:?}", p.reading);
        assert!(!p.gpu_events.is_empty() || !p.counters.is_empty(), "{name}");
    }
    for (name, busy_ms) in TRACES {
        let p = trace(name);
        let a = Analysis::new(&p, &Choice::default()).unwrap();
        let found = a.gpu_busy().ms();
        println!(
            "{name}: expected {busy_ms} ms, got {found:.3} ms, unattributed {:.3} ms",
            a.unattributed().ms()
        );
        assert!((found - busy_ms).abs() < 0.006, "{name}: {found} ms");
        assert!(a.unattributed().ms() < 0.01 * found, "{name}: {} ms unattributed", a.unattributed().ms());
    }
}

/// The split of another tool on four traces. It leaves out kernels without an operator, so we do too.
#[test]
fn timelines_agree_with_the_reference_reports() {
    for (file, report) in [
        ("h100_bert-small_fwd_bf16", "h100_bert-small"),
        ("h100_qwen1.5-0.5b_b16_s2048_fwd_bf16", "h100_qwen"),
        ("h100_timesformer-base_fwd_bf16", "h100_timesformer"),
        ("mi300x_qwen1.5-0.5b_b16_s2048_fwd_bf16", "mi300x_qwen"),
    ] {
        let p = profile(&format!("profiles/{file}.kineto.json.gz"));
        let a = Analysis::new(&p, &Choice { attributed_only: true, ..Choice::default() }).unwrap();
        let t = explain::explain(&a, &TimeModel::embedded(), None).timeline;
        let text =
            std::fs::read_to_string(shared(&format!("profiles/tracelens_reports/{report}/gpu_timeline.csv")))
                .unwrap();
        for line in text.lines().skip(1) {
            let cells: Vec<&str> = line.split(',').collect();
            let expected: f64 = cells[1].parse().unwrap();
            let got = match cells[0] {
                "computation_time" => t.computation_ms,
                "exposed_comm_time" => t.exposed_communication_ms,
                "exposed_memcpy_time" => t.exposed_memcpy_ms,
                "busy_time" => t.busy_ms,
                "idle_time" => t.idle_ms,
                "total_time" => t.total_ms,
                "total_comm_time" => t.communication_ms,
                "total_memcpy_time" => t.memcpy_ms,
                other => panic!("unknown row {other}"),
            };
            println!("{report} {}: expected {expected:.6}, got {got:.6}", cells[0]);
            // The reference adds up times in microseconds held as floats: a few tenths of a microsecond.
            assert!((got - expected).abs() < 0.001, "{report} {}", cells[0]);
        }
    }
}

/// Kernel time by operator, against the same reports.
#[test]
fn operators_agree_with_the_reference_reports() {
    for (file, report) in [
        ("h100_bert-small_fwd_bf16", "h100_bert-small"),
        ("h100_qwen1.5-0.5b_b16_s2048_fwd_bf16", "h100_qwen"),
        ("h100_timesformer-base_fwd_bf16", "h100_timesformer"),
        ("mi300x_qwen1.5-0.5b_b16_s2048_fwd_bf16", "mi300x_qwen"),
    ] {
        let p = profile(&format!("profiles/{file}.kineto.json.gz"));
        let a = Analysis::new(&p, &Choice { attributed_only: true, ..Choice::default() }).unwrap();
        let e = explain::explain(&a, &TimeModel::embedded(), None);
        let text =
            std::fs::read_to_string(shared(&format!("profiles/tracelens_reports/{report}/ops_summary.csv")))
                .unwrap();
        for line in text.lines().skip(1).take(6) {
            let cells: Vec<&str> = line.split(',').collect();
            let expected: f64 = cells[3].parse().unwrap();
            let got: f64 = e.operators.iter().filter(|o| o.name == cells[0]).map(|o| o.time_ms).sum();
            println!("{report} {}: expected {expected:.4} ms, got {got:.4} ms", cells[0]);
            assert!((got - expected).abs() < 0.002 + 0.001 * expected, "{report} {}", cells[0]);
        }
    }
}

#[test]
fn orphans_and_graph_replays_are_counted() {
    let p = profile("profiles/h100_qwen1.5-0.5b_b16_s2048_fwd_bf16.kineto.json.gz");
    let a = Analysis::new(&p, &Choice::default()).unwrap();
    println!(
        "qwen: busy {:.3} ms, unattributed {:.3} ms, measured {:.3} ms",
        a.gpu_busy().ms(),
        a.unattributed().ms(),
        a.measured().ms()
    );
    assert!((a.gpu_busy().ms() - 45.647).abs() < 0.001 && (a.unattributed().ms() - 13.742).abs() < 0.001);
    let p = profile("profiles/mi300x_vllm_decode_fullgraph.kineto.json.gz");
    let a = Analysis::new(&p, &Choice::default()).unwrap();
    println!("graph: {:.2} % of the kernel time is unattributed", 100.0 * a.unattributed_kernel_share());
    assert_eq!(format!("{:.1}", 100.0 * a.unattributed_kernel_share()), "97.3");
}

#[test]
fn occupancy_of_large_kernels_is_above_zero() {
    let mut large = 0;
    let files =
        PROFILES.iter().map(|n| profile(&format!("profiles/{n}"))).chain(TRACES.iter().map(|t| trace(t.0)));
    for p in files {
        let Some(gpu) = p.devices.first().and_then(origin::find) else { continue };
        for e in p.gpu_events.iter().filter(|e| e.shared_bytes > 48 * 1024) {
            let o = occupancy::occupancy(&e, &gpu).unwrap();
            assert!(o > 0.0 && o <= 1.0, "{}: {o}", p.names.text(e.name));
            large += 1;
        }
    }
    println!("{large} kernels above 48 KiB of shared memory");
    assert!(large > 1000);
}

#[test]
fn the_ncu_file_knows_its_own_occupancy() {
    let p = profile("profiles/t4_copy_blocked.ncu_details.csv");
    assert_eq!(p.format, Format::NsightCompute);
    let gpu = p.devices.first().and_then(origin::find).unwrap();
    assert_eq!(gpu.name, "t4");
    // "Theoretical Occupancy 100 %", "Block Limit Registers 8", "Block Limit Warps 4"
    assert_eq!(occupancy::occupancy(&p.gpu_events.at(0), &gpu), Some(1.0));
    assert_eq!(occupancy::blocks_per_sm(&p.gpu_events.at(0), &gpu), 4);
}

#[test]
fn the_way_home_returns_the_measured_time() {
    let h200 = catalog::find("h200").unwrap();
    let model = TimeModel::embedded();
    for (name, _) in TRACES {
        let p = trace(name);
        let a = Analysis::new(&p, &Choice::default()).unwrap();
        for method in [Method::Wave, Method::Ratio, Method::Mixed] {
            let t = transfer(
                &a,
                &model,
                &h200,
                std::slice::from_ref(&h200),
                &Options { method, host: Host::Factor(1.0), ..Options::default() },
            );
            let error = t.targets[0].iteration_ms / t.measured_ms - 1.0;
            println!(
                "{name} {}: measured {:.3} ms, returned {:.3} ms",
                method.name(),
                t.measured_ms,
                t.targets[0].iteration_ms
            );
            assert!(error.abs() < 0.001);
        }
    }
}

/// The same workload on two GPUs, each predicted from the other. Printed for docs/profiles.md.
#[test]
fn the_pair_of_one_workload() {
    let file = |gpu: &str| format!("profiles/{gpu}_qwen1.5-0.5b_b16_s2048_fwd_bf16.kineto.json.gz");
    let (h, m) = (profile(&file("h100")), profile(&file("mi300x")));
    let (h100, mi300x) = (catalog::find("h100-sxm").unwrap(), catalog::find("mi300x").unwrap());
    let model = TimeModel::embedded();
    for attributed_only in [false, true] {
        let choice = Choice { attributed_only, ..Choice::default() };
        let (a, b) = (Analysis::new(&h, &choice).unwrap(), Analysis::new(&m, &choice).unwrap());
        for (from, to, here, there) in [(&a, &b, &h100, &mi300x), (&b, &a, &mi300x, &h100)] {
            for method in [Method::Wave, Method::Ratio, Method::Mixed] {
                let t = transfer(
                    from,
                    &model,
                    here,
                    std::slice::from_ref(there),
                    &Options { method, host: Host::Factor(1.0), ..Options::default() },
                );
                let target = &t.targets[0];
                let measured = to.measured().ms();
                let busy = to.gpu_busy().ms();
                println!(
                    "{} -> {} {}{}: iteration {:.2} ms [{:.2}, {:.2}], measured {measured:.2} ({:+.1} %); GPU busy {:.2} ms, measured {busy:.2} ({:+.1} %)",
                    here.name,
                    there.name,
                    method.name(),
                    if attributed_only { ", attributed only" } else { "" },
                    target.iteration_ms,
                    target.low_ms,
                    target.high_ms,
                    100.0 * (target.iteration_ms / measured - 1.0),
                    target.gpu_busy_ms,
                    100.0 * (target.gpu_busy_ms / busy - 1.0)
                );
                assert!(target.low_ms < measured && measured < target.high_ms, "outside its 90 % interval");
            }
        }
    }
}

/// H200 recordings carried to older GPUs and to the batch of each published row. Other software and layouts; the method with the
/// smallest mean is the default.
#[test]
fn published_throughput() {
    // Samples of the recorded iteration; of GNMT 2 x 50 tokens each, of BERT 512, where published sequences have 384.
    let recorded = [
        ("resnet50-b64-fp32-train", "resnet50", "FP32", 64.0, 1.0),
        ("resnet50-b64-amp-train", "resnet50", "AMP", 64.0, 1.0),
        ("gnmt-b64-fp32-train", "gnmt", "FP32", 64.0, 100.0),
        ("bert-large-b16-amp-train", "bert_large_squad", "FP16", 16.0, 512.0 / 384.0),
    ];
    let gpus = [
        ("Tesla V100-SXM2-16GB", "v100-sxm2-16gb"),
        ("Tesla V100-SXM2-32GB", "v100-sxm2-32gb"),
        ("GeForce RTX 2080 Ti", "rtx-2080-ti"),
        ("NVIDIA A100-SXM4-80GB", "a100-sxm-80gb"),
        ("A100-SXM-80GB", "a100-sxm-80gb"),
    ];
    let table = std::fs::read_to_string(shared("training_throughput/single_gpu.csv")).unwrap();
    let rows: Vec<Vec<&str>> = table.lines().map(|l| l.split(',').collect()).collect();
    let model = TimeModel::embedded();
    let h200 = catalog::find("h200").unwrap();
    let mut means = Vec::new();
    for method in [Method::Ratio, Method::Mixed, Method::Wave] {
        let (mut errors, mut plain, mut inside) = (Vec::new(), Vec::new(), 0);
        for (name, network, precision, samples, units) in recorded {
            let p = trace(name);
            let a = Analysis::new(&p, &Choice::default()).unwrap();
            for row in rows.iter().filter(|r| r[4] == network && r[5] == precision) {
                let Some((_, gpu)) = gpus.iter().find(|(published, _)| *published == row[1]) else {
                    continue;
                };
                // FP32 means TF32 on Ampere.
                if precision == "FP32" && gpu.starts_with("a100") {
                    continue;
                }
                let there = catalog::find(gpu).unwrap();
                let batch = row[6].parse::<f64>().unwrap().min(1024.0);
                let change = Change { batch: Some(batch / samples), ..Change::default() };
                let options = Options { method, change, ..Options::default() };
                let t = &transfer(&a, &model, &h200, std::slice::from_ref(&there), &options).targets[0];
                let published_ms = batch * units / row[9].parse::<f64>().unwrap() * 1e3;
                let error = t.iteration_ms / published_ms - 1.0;
                let holds = t.low_ms <= published_ms && published_ms <= t.high_ms;
                println!(
                    "{name} -> {gpu} {} at {batch}: {:.1} ms [{:.1}, {:.1}], published {published_ms:.1} ms ({:+.0} %)",
                    method.name(),
                    t.iteration_ms,
                    t.low_ms,
                    t.high_ms,
                    100.0 * error
                );
                errors.push(error.abs());
                if precision == "FP32" {
                    plain.push(error.abs());
                }
                inside += usize::from(holds);
            }
        }
        let mean = |e: &[f64]| e.iter().sum::<f64>() / e.len() as f64;
        let share = inside as f64 / errors.len() as f64;
        println!(
            "{}: {} rows, mean {:.1} %, fp32 {:.1} %, {:.0} % in the interval",
            method.name(),
            errors.len(),
            100.0 * mean(&errors),
            100.0 * mean(&plain),
            100.0 * share
        );
        assert_eq!(errors.len(), 17);
        if method == Method::Ratio {
            assert!(mean(&errors) < 0.16, "{}", mean(&errors));
            assert!(share >= 0.75, "{share}");
        }
        means.push((mean(&errors), method));
    }
    let best = means.iter().min_by(|a, b| a.0.total_cmp(&b.0)).unwrap().1;
    assert_eq!(best, preflop_core::transfer::DEFAULT);
}
