//! `preflop-fit networks`: whole image networks on GPUs that no network was measured on for the fit.
//!
//! The rules that carry operators there have constants of a study of these same runs (`kernels/tensor_conv.rs`, GPUs left out in turn
//! there); trees and other constants saw none of them.

use crate::sets::Sets;
use anyhow::Result;
use preflop_core::gpu::{Gpu, catalog};
use preflop_core::model::{LowerOptions, Mode, OptimizerChoice, Precision, lower, zoo};
use preflop_core::schedule::Schedule as _;
use preflop_core::time::{IterationPrediction, TimeModel};
use std::collections::{BTreeMap, HashMap};

/// One published run.
struct Run {
    set: String,
    gpu: String,
    model: String,
    precision: Precision,
    mode: Mode,
    optimizer: Option<OptimizerChoice>,
    batch: u64,
    ms: f64,
}

/// The files, and the columns in which the model, the time and whether the run was compiled or laid out otherwise stand.
const FILES: [(&str, &str, &str); 3] = [
    ("networks_rtx3090_pytorch.csv", "model", "iteration_ms"),
    ("networks_titanv_rtx2080ti_pytorch_batch12.csv", "model", "iteration_ms_median"),
    ("networks_v100_rtx2080ti_tensorflow.csv", "zoo_model", "iteration_ms"),
];

fn runs(sets: &Sets) -> Result<Vec<Run>> {
    let mut out = Vec::new();
    for (number, (file, model, time)) in FILES.iter().enumerate() {
        let mut reader = csv::Reader::from_reader(sets.open(&format!("other_gpus/{file}"))?);
        let columns: HashMap<String, usize> =
            reader.headers()?.iter().enumerate().map(|(i, c)| (c.to_string(), i)).collect();
        for record in reader.records() {
            let record = record?;
            let field = |name: &str| columns.get(name).map_or("", |i| &record[*i]);
            // The zoo's images are 224 wide and NCHW; compiled runs have other kernels.
            let other =
                field("image") != "224" || !matches!(field("layout"), "" | "nchw") || field("xla") == "True";
            let precision = match (field("precision"), number) {
                ("fp16 autocast", _) => Precision::Amp,
                ("fp32", 0) => Precision::Tf32,
                ("fp32", _) => Precision::Fp32,
                ("fp16", _) => Precision::Fp16,
                _ => continue,
            };
            if other {
                continue;
            }
            let mode = if field("phase").contains("infer") { Mode::Infer } else { Mode::Train };
            let framework = if number == 2 { " tensorflow" } else { "" };
            out.push(Run {
                set: format!("{}{framework} {} {}", field("gpu"), field("precision"), mode.name()),
                gpu: field("gpu").to_string(),
                model: field(model).to_string(),
                precision,
                mode,
                optimizer: (number == 1).then_some(OptimizerChoice::None),
                batch: field("batch").parse()?,
                ms: field(time).parse()?,
            });
        }
    }
    Ok(out)
}

fn predicted(model: &TimeModel, run: &Run, gpu: &Gpu) -> Option<IterationPrediction> {
    let graph = zoo::build(&run.model, Some(run.batch), None).ok()?;
    let options = LowerOptions { mode: run.mode, precision: run.precision, optimizer: run.optimizer };
    Some(model.predict_iteration(&lower(&graph, &options).ok()?, gpu))
}

/// Errors of the published runs by set, and how many lie in the interval. Runs that old hosts limit are left out.
pub fn report(sets: &Sets) -> Result<()> {
    let model = TimeModel::embedded();
    let mut groups: BTreeMap<String, Vec<(f64, bool, f64)>> = BTreeMap::new();
    for run in runs(sets)? {
        // The V100 SXM3 of the runs has the chip of the SXM2, which the catalogue has.
        let gpu = catalog::find(&run.gpu.replace("sxm3", "sxm2"))?;
        let Some(p) = predicted(&model, &run, &gpu) else { continue };
        if p.host.ms() > 0.5 * run.ms {
            continue;
        }
        let inside = p.low.ms() <= run.ms && run.ms <= p.high.ms();
        let entry = (p.time.ms() / run.ms - 1.0, inside, (p.high / p.low).ln() / 2.0);
        groups.entry(run.set).or_default().push(entry);
        groups.entry("all".to_string()).or_default().push(entry);
    }
    for (set, rows) in &groups {
        let n = rows.len() as f64;
        let mean = rows.iter().map(|r| r.0.abs()).sum::<f64>() / n;
        let inside = rows.iter().filter(|r| r.1).count() as f64 / n;
        let middle = |of: &dyn Fn(&(f64, bool, f64)) -> f64| {
            let mut all: Vec<f64> = rows.iter().map(of).collect();
            all.sort_by(f64::total_cmp);
            all[all.len() / 2]
        };
        println!(
            "  {set:36} n {n:4}  mean {:5.1} %  median {:5.1} %  bias {:+6.1} %  in the interval {:3.0} %  half width {:.2}",
            100.0 * mean,
            100.0 * middle(&|r| r.0.abs()),
            100.0 * middle(&|r| r.0),
            100.0 * inside,
            middle(&|r| r.2)
        );
    }
    Ok(())
}
