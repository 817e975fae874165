//! Checks of DeLTA against reference and measured data in the folder that `PREFLOP_SHARED` names.
//!
//! `PREFLOP_SHARED=... cargo test -p preflop-core --features shared-data --test shared_delta -- --nocapture`

// The helpers of a test file are test code too.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use preflop_core::Dtype;
use preflop_core::delta::{
    Bottleneck, Fig6, FilterMli, FixedTile, Instructions, Layer, LoneCta, Machine, Readings, Tile,
    TilePolicy, evaluate,
};
use preflop_core::gpu::catalog;
use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::PathBuf;

type Row = HashMap<String, String>;

fn rows(path: &str) -> Vec<Row> {
    let root = std::env::var_os("PREFLOP_SHARED").expect("set PREFLOP_SHARED to the folder of shared data");
    let path = PathBuf::from(root).join("data").join(path);
    let file = File::open(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let reader: Box<dyn Read> = if path.extension().is_some_and(|e| e == "gz") {
        Box::new(flate2::read::GzDecoder::new(file))
    } else {
        Box::new(file)
    };
    csv::Reader::from_reader(reader).deserialize().map(|row| row.expect("a CSV row")).collect()
}

fn number(row: &Row, key: &str) -> f64 {
    row[key].parse().unwrap_or_else(|_| panic!("{key} = {}", row[key]))
}

fn size(row: &Row, key: &str) -> u64 {
    row[key].parse().unwrap_or_else(|_| panic!("{key} = {}", row[key]))
}

/// The layer of a published convolution.
fn published(row: &Row) -> Layer {
    let [batch, cin, hw, cout, ksize, stride, pad] =
        ["batch", "cin", "hw", "cout", "ksize", "stride", "pad"].map(|key| size(row, key));
    Layer::square(batch, cin, hw, cout, ksize, stride, pad)
}

fn machine(name: &str) -> Machine {
    Machine::of(&catalog::find(name).unwrap(), Dtype::Fp32)
}

/// What the equations leave out: all instructions, and the chain of a CTA without company.
const WHOLE: Readings = Readings {
    instructions: Instructions::All,
    lone_cta: LoneCta::Exposed,
    filter_mli: FilterMli::Published,
};

/// The prototype's settings: SMEM loads as fast as its stores (128 B per clock); all else as by default.
fn prototype_machine() -> Machine {
    let m = machine("titan-xp");
    Machine { smem_load: m.smem_store, ..m }
}

#[test]
fn prototype_agrees_on_all_layers() {
    let machine = prototype_machine();
    let rows = rows("delta/titanxp_reference.csv");
    assert_eq!(rows.len(), 83);
    let mut worst: HashMap<&str, (f64, String)> = HashMap::new();
    for row in &rows {
        let name = &row["layer"];
        let layer = Layer::square(
            256,
            size(row, "Ci"),
            size(row, "H"),
            size(row, "Co"),
            size(row, "R"),
            size(row, "stride"),
            size(row, "pad"),
        );
        let r = evaluate(&layer, &machine, &Fig6, Readings::default()).unwrap();
        let ms = |b: Bottleneck| r.bound(b).ms();
        let figures = [
            ("L1_MB", r.traffic.l1.0 / 1e6, 0.005),
            ("L2_MB", r.traffic.l2.0 / 1e6, 0.005),
            ("DRAM_MB", r.traffic.dram.0 / 1e6, 0.005),
            ("t_CS_ns", r.cs.0 * 1e9, 0.02),
            ("t_SAS_ns", r.sas.0 * 1e9, 0.02),
            ("t_GLS_ns", r.gls.0 * 1e9, 0.02),
            ("T_MAC_ms", ms(Bottleneck::Mac), 0.02),
            ("T_SMEM_ms", ms(Bottleneck::Smem), 0.02),
            ("T_LAT_ms", ms(Bottleneck::DramLat), 0.02),
            ("T_L1_ms", ms(Bottleneck::L1Bw), 0.02),
            ("T_L2_ms", ms(Bottleneck::L2Bw), 0.02),
            ("T_DRAM_ms", ms(Bottleneck::DramBw), 0.02),
            ("time_ms", r.time.ms(), 0.02),
        ];
        for (key, got, tolerance) in figures {
            let expected = number(row, key);
            let error = (got / expected - 1.0).abs();
            assert!(
                error <= tolerance,
                "{name} {key}: expected {expected}, got {got:.4}, {:.2} %",
                error * 100.0
            );
            let entry = worst.entry(key).or_insert((0.0, String::new()));
            if error > entry.0 {
                *entry = (error, name.clone());
            }
        }
        assert_eq!(r.bottleneck.name(), row["bottleneck"], "{name}");
        assert_eq!(r.num_cta, number(row, "num_cta"), "{name}");
        assert_eq!(r.active_ctas, number(row, "act_cta"), "{name}");
    }
    let mut worst: Vec<_> = worst.into_iter().collect();
    worst.sort_by_key(|w| w.0);
    println!("83 layers, same bottleneck on all; largest deviation per figure:");
    for (key, (error, layer)) in worst {
        println!("  {key:10} {:.3} % ({layer})", error * 100.0);
    }
}

#[test]
fn networks_have_the_listed_layers() {
    use preflop_core::delta::networks;
    let rows = rows("delta/layers.csv");
    for (csv_name, name) in [
        ("AlexNet", "alexnet-original"),
        ("VGG16", "vgg16"),
        ("GoogLeNet", "googlenet"),
        ("ResNet50", "resnet50"),
        ("ResNet152", "resnet152"),
    ] {
        let ours = networks::find(name, 256).unwrap();
        for row in rows.iter().filter(|r| r["net"] == csv_name) {
            let named = ours
                .iter()
                .find(|l| l.name == row["layer"])
                .unwrap_or_else(|| panic!("{name} {}", row["layer"]));
            let l = named.layer;
            let expected = ["Ci", "Hi", "Co", "R", "stride", "pad"].map(|k| size(row, k));
            assert_eq!([l.ci, l.h, l.co, l.r, l.stride[0], l.pad[0]], expected, "{name} {}", named.name);
            assert_eq!(Fig6.tile(&l).blk_n, number(row, "cudnn7_tile_N"), "{name} {}", named.name);
        }
        let listed = rows.iter().filter(|r| r["net"] == csv_name).count();
        // The list leaves out VGG16's four repeated layers.
        assert_eq!(ours.len(), listed + if name == "vgg16" { 4 } else { 0 }, "{name}");
    }
}

struct Errors(Vec<f64>);

impl Errors {
    fn mape(&self) -> f64 {
        100.0 * self.0.iter().map(|r| (r - 1.0).abs()).sum::<f64>() / self.0.len() as f64
    }

    fn line(&self, what: &str) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let n = sorted.len();
        let median = if n == 0 { f64::NAN } else { sorted[n / 2] };
        println!(
            "{what}: {n} rows, MAPE {:.2} %, GMAE {:.2} %, median predicted/measured {median:.3}",
            self.mape(),
            self.gmae()
        );
        self.mape()
    }

    fn gmae(&self) -> f64 {
        100.0 * preflop_core::delta::measured::Errors::of(&self.0).map_or(f64::NAN, |e| e.gmae)
    }
}

/// The CTA tile in a kernel name such as `volta_scudnn_128x64_relu_small_nn_v1`; `None` for others, Winograd
/// kernels among them (`scudnn_winograd_128x128_..`).
fn scudnn_tile(kernel: &str) -> Option<Tile> {
    let size = kernel.split("scudnn_").nth(1)?.split('_').next()?;
    let (m, n) = size.split_once('x')?;
    Tile::of_size(m.parse().ok()?, n.parse().ok()?).ok()
}

#[test]
fn measured_v100_convolutions() {
    // The measured card is the 32 GB PCIe one: catalogue figures, since Table I's V100 has 84 SMs.
    let machine = machine("v100-pcie-32gb");
    let (mut plain, mut whole) = (Errors(vec![]), Errors(vec![]));
    let mut all = Errors(vec![]);
    let mut all_with_floor = Errors(vec![]);
    let mut fig6 = Errors(vec![]);
    let mut lonely = Errors(vec![]);
    let mut volumes = Errors(vec![]);
    for row in
        rows("neusight/conv2d_fwd_fp32.csv.gz").iter().filter(|r| r["device"] == "Tesla V100-PCIE-32GB")
    {
        let measured = number(row, "latency_ms");
        let kernel = &row["kernel"];
        let Some(tile) = scudnn_tile(kernel).filter(|_| measured > 1.0) else { continue };
        let layer = published(row);
        let time = |policy: &dyn TilePolicy| {
            evaluate(&layer, &machine, policy, Readings::default()).unwrap().time.ms()
        };
        let predicted = time(&FixedTile(tile));
        let ctas = evaluate(&layer, &machine, &FixedTile(tile), Readings::default()).unwrap().num_cta;
        all.0.push(predicted / measured);
        // The measurement holds 25 to 50 us of host time: the lower end.
        all_with_floor.0.push((predicted + 0.025) / measured);
        fig6.0.push(time(&Fig6) / measured);
        // NCHW 2-D kernels are the ones that the paper models; `3dconv` and `nhwc` ones compute addresses
        // or lay out data differently.
        if kernel.contains("_nn_") && !kernel.contains("3dconv") {
            plain.0.push(predicted / measured);
            let with_chain = evaluate(&layer, &machine, &FixedTile(tile), WHOLE).unwrap();
            whole.0.push(with_chain.time.ms() / measured);
            if tile.blk_n == 64.0 && ctas <= f64::from(machine.num_sm) {
                lonely.0.push(predicted / measured);
            }
        }
        if kernel.contains("3dconv") {
            volumes.0.push(predicted / measured);
        }
    }
    let mape = plain.line("V100, implicit-GEMM scudnn tiles (2-D, NCHW) over 1 ms, the kernel's own tile");
    whole.line("V100, the same with the chain of a CTA without company");
    all.line("V100, with 3dconv and nhwc scudnn kernels");
    let with_floor = all_with_floor.line("V100, with 3dconv and nhwc kernels, 25 us of host time added");
    fig6.line("V100, all of them with Fig. 6's tile in place of the kernel's");
    lonely.line("V100, width 64 with at most one CTA per SM");
    volumes.line("V100, 3dconv kernels");
    assert!(plain.0.len() > 450, "only {} rows", plain.0.len());
    assert!(mape <= 12.0, "{mape:.2} %");
    assert!(plain.gmae() <= 8.0, "{:.2} %", plain.gmae());
    assert!(whole.gmae() < plain.gmae(), "{:.2} %", whole.gmae());
    assert!(with_floor <= 12.0, "{with_floor:.2} %");
}

#[test]
fn deepbench_is_reported() {
    for (gpu, name) in [("TITAN Xp", "titan-xp"), ("V100 (DGX-1, SXM2)", "v100-sxm2-16gb")] {
        let machine = machine(name);
        let [mut precomp, mut issued, mut whole, mut all] = [const { Errors(vec![]) }; 4];
        let instructions = Readings { instructions: Instructions::All, ..Readings::default() };
        for row in rows("deepbench/conv.csv").iter().filter(|r| r["gpu"] == gpu) {
            let measured = number(row, "time_ms");
            // Times have 1 us of resolution: rows above 0.05 ms.
            if !row["fwd_algo"].starts_with("IMPLICIT") || measured <= 0.05 {
                continue;
            }
            let layer = Layer {
                batch: size(row, "N"),
                ci: size(row, "C"),
                h: size(row, "H"),
                w: size(row, "W"),
                co: size(row, "K"),
                r: size(row, "R"),
                s: size(row, "S"),
                stride: [size(row, "stride_h"), size(row, "stride_w")],
                pad: [size(row, "pad_h"), size(row, "pad_w")],
                dilation: [1, 1],
                groups: 1,
                element_bytes: 4.0,
            };
            let r = evaluate(&layer, &machine, &Fig6, Readings::default()).unwrap();
            all.0.push(r.time.ms() / measured);
            if row["fwd_algo"] == "IMPLICIT_PRECOMP_GEMM" {
                precomp.0.push(r.time.ms() / measured);
                let with_all = evaluate(&layer, &machine, &Fig6, instructions).unwrap();
                issued.0.push(with_all.time.ms() / measured);
                whole.0.push(evaluate(&layer, &machine, &Fig6, WHOLE).unwrap().time.ms() / measured);
            }
        }
        precomp.line(&format!("DeepBench {gpu}, IMPLICIT_PRECOMP_GEMM, Fig. 6 tile"));
        issued.line(&format!("DeepBench {gpu}, IMPLICIT_PRECOMP_GEMM, all instructions"));
        whole
            .line(&format!("DeepBench {gpu}, IMPLICIT_PRECOMP_GEMM, and the chain of a CTA without company"));
        all.line(&format!("DeepBench {gpu}, with IMPLICIT_GEMM"));
        // Where a scheduler has a lane for each thread of a warp, what fills a tile takes issue slots of multiplications; elsewhere nothing moves.
        let gains = precomp.gmae() - issued.gmae();
        assert!(if name == "titan-xp" { gains > 1.0 } else { gains == 0.0 }, "{gains:.2} points");
        assert!(whole.gmae() <= 8.0 && whole.gmae() < issued.gmae(), "{:.2} %", whole.gmae());
        if name.starts_with("v100") {
            assert!(precomp.gmae() <= 8.0, "{:.2} %", precomp.gmae());
        }
        assert!(precomp.0.len() > 20, "only {} rows on {gpu}", precomp.0.len());
    }
}

/// The P4 has TITAN Xp's SMs and a clock that its 75 W hold at no one value, so that rows are judged by how far their errors differ from the median one. Its kernels
/// tell their tiles.
#[test]
fn a_p4_with_known_tiles_says_the_same_of_what_the_equations_leave_out() {
    let machine = machine("p4");
    let readings = [
        ("as published", Readings::default()),
        ("all instructions", Readings { instructions: Instructions::All, ..Readings::default() }),
        (
            "the chain of a CTA without company",
            Readings { lone_cta: LoneCta::Exposed, ..Readings::default() },
        ),
        ("both", WHOLE),
    ];
    let mut logs = readings.map(|_| Vec::new());
    for row in rows("neusight/conv2d_fwd_fp32.csv.gz").iter().filter(|r| r["device"] == "Tesla P4") {
        let (measured, kernel) = (number(row, "latency_ms"), &row["kernel"]);
        // Longer ones meet the limit of power, shorter ones the host.
        let asked = (1.0..10.0).contains(&measured) && kernel.contains("_nn_") && !kernel.contains("3dconv");
        let Some(tile) = scudnn_tile(kernel).filter(|_| asked) else { continue };
        let layer = published(row);
        for (log, (_, reading)) in logs.iter_mut().zip(readings) {
            let time = evaluate(&layer, &machine, &FixedTile(tile), reading).unwrap().time;
            log.push((time.ms() / measured).ln());
        }
    }
    let spread = logs.map(|mut log| {
        log.sort_by(f64::total_cmp);
        let median = log[log.len() / 2];
        (
            log.len(),
            median.exp(),
            100.0 * log.iter().map(|l| (l - median).abs()).sum::<f64>() / log.len() as f64,
        )
    });
    for ((what, _), (n, median, percent)) in readings.iter().zip(spread) {
        println!("P4, {n} rows, {what}: median predicted/measured {median:.3}, {percent:.2} % about it");
    }
    let [published, instructions, chain, both] = spread.map(|s| s.2);
    assert!(spread[0].0 > 1000);
    assert!(instructions < published && chain < published && both < instructions && both < chain);
}
