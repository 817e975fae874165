//! The shipped model against published measurements on other GPUs.

use crate::data::{self, Measured};
use crate::score::score;
use crate::sets::Sets;
use crate::whole::{across_gpus, plain_products};
use crate::{rows, unseen};
use anyhow::Result;
use preflop_core::gpu::Gpu;
use preflop_core::model::{LowerOptions, Mode, OptimizerChoice, Precision, lower, zoo};
use preflop_core::schedule::Schedule as _;
use preflop_core::time::TimeModel;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// Host time hides below this in the fp32 files.
const LEAST_US: f64 = 200.0;

/// The rows that are not mostly host time.
pub fn long(rows: Vec<Measured>) -> Vec<Measured> {
    rows.into_iter().filter(|m| m.us > LEAST_US).collect()
}

/// Prints errors by file, operator and GPU. Vector operators and recurrent layers of these files were in no fit.
pub fn report(sets: &Sets) -> Result<()> {
    let (model, gpus) = (TimeModel::embedded(), &sets.gpus);
    let files = [
        ("fp32 products (in the fit)", long(data::fp32_products(sets)?)),
        ("fp32 vector operators", long(data::fp32_vectors(sets)?)),
        ("fp32 recurrent layers", data::published_rnn(sets)?),
        ("fp32 3x3 convolutions", long(data::fp32_convolutions(sets)?)),
        ("fp32 convolutions, DeepBench", data::deepbench_convolutions(sets)?),
        ("bf16 products (in the fit)", data::bf16_products(sets)?),
        ("attention (in the fit)", data::published_attention(sets)?),
    ];
    for (name, rows) in files {
        let mut groups: BTreeMap<(usize, String), Vec<(f64, f64)>> = BTreeMap::new();
        for m in rows.iter().step_by((rows.len() / 40_000).max(1)) {
            let pair = (model.predict(&m.call, &gpus[m.gpu]).time.us(), m.us);
            groups.entry((m.gpu, String::new())).or_default().push(pair);
            groups.entry((m.gpu, m.call.name().to_string())).or_default().push(pair);
        }
        println!("{name}");
        for ((gpu, op), pairs) in groups {
            println!("  {:16} {op:12} {}", gpus[gpu].name, score(pairs));
        }
    }
    println!("fp32 whole models, eager attention, with the GPU's own operators in the fit");
    let shipped = |gpu: usize| Ok((model.clone(), gpus[gpu].clone()));
    whole_models(sets, shipped)?;
    println!(
        "fp32 whole models, eager attention, with the GPU left out of products, softmax, layer norm and catalogue"
    );
    let products = plain_products(sets)?;
    let vectors = rows::rows(&long(data::fp32_vectors(sets)?));
    whole_models(sets, |gpu| unseen::shipped_without(gpu, &products, &vectors, sets, across_gpus()))
}

/// Whole transformer models in fp32 (NeuSight), with attention as plain products, as they were run. Rows of several GPUs,
/// of fused variants and of mixtures of experts are left out. `model_of` gives the model that speaks for a GPU, and the GPU.
fn whole_models(sets: &Sets, model_of: impl Fn(usize) -> Result<(TimeModel, Gpu)>) -> Result<()> {
    let names = [
        ("bert_large", "bert-large"),
        ("gpt2_large", "gpt2-large"),
        ("opt_13", "opt-1.3b"),
        ("gpt3_xl", "gpt3-xl"),
        ("gpt3_27", "gpt3-2.7b"),
    ];
    let mut reader = csv::Reader::from_reader(sets.open("neusight/model_e2e_fp32.csv")?);
    let mut groups: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
    let mut models: BTreeMap<usize, (TimeModel, Gpu)> = BTreeMap::new();
    for record in reader.records() {
        let r = record?;
        let Some((_, name)) = names.iter().find(|(published, _)| *published == &r[1]) else { continue };
        let (Some(gpu), "") = (data::neusight_gpu(sets, &r[0]), &r[5]) else { continue };
        let (mode, optimizer) = match &r[2] {
            "train" => (Mode::Train, Some(OptimizerChoice::None)),
            _ => (Mode::Infer, None),
        };
        let graph = zoo::build(name, Some(r[4].parse()?), Some(r[3].parse()?))?.with_eager_attention();
        let iteration = lower(&graph, &LowerOptions { mode, precision: Precision::Fp32, optimizer })?;
        let (model, machine) = match models.entry(gpu) {
            Entry::Occupied(e) => e.into_mut(),
            Entry::Vacant(e) => e.insert(model_of(gpu)?),
        };
        let pair = (model.predict_iteration(&iteration, machine).time.ms(), r[8].parse()?);
        groups.entry(sets.gpus[gpu].name.clone()).or_default().push(pair);
        groups.entry("all".to_string()).or_default().push(pair);
    }
    for (gpu, pairs) in groups {
        println!("  {gpu:16} {:12} {}", "", score(pairs));
    }
    Ok(())
}

/// How much faster or slower older generations run recurrent layers than their forms say:
/// the median of measured/predicted over the published rows. Their libraries are tuned for other pipes.
pub fn factors(sets: &Sets, model: &TimeModel) -> Result<BTreeMap<String, Vec<f64>>> {
    let (fitted, gpus) = (model.fitted(), &sets.gpus);
    let rows = data::published_rnn(sets)?;
    let mut ratios: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for m in &rows {
        let Some(key) = TimeModel::factor_key(&m.call, gpus[m.gpu].architecture) else { continue };
        // The model may hold a factor already: take it out.
        let held = fitted.form(&key).and_then(|f| f.first().copied()).unwrap_or(1.0);
        let predicted = model.predict(&m.call, &gpus[m.gpu]).time.us() / held;
        ratios.entry(key).or_default().push(m.us / predicted);
    }
    Ok(ratios
        .into_iter()
        .map(|(key, mut r)| {
            r.sort_by(f64::total_cmp);
            let median = r[r.len() / 2];
            (key, vec![median])
        })
        .collect())
}
