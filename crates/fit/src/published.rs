//! The shipped model against published measurements on other GPUs.

use crate::data;
use crate::neusight;
use crate::score::{Line, Scored, score};
use crate::sets::Sets;
use anyhow::Result;
use preflop_core::gpu::Gpu;
use preflop_core::model::{LowerOptions, Mode, OptimizerChoice, Precision, lower, zoo};
use preflop_core::schedule::Schedule as _;
use preflop_core::time::TimeModel;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// Prints errors by file, operator and GPU. Vector operators and recurrent layers of these files were in no fit.
pub fn report(sets: &Sets) -> Result<()> {
    let (model, gpus) = (TimeModel::embedded(), &sets.gpus);
    let files = [
        ("fp32 products (in the fit)", neusight::products(sets)?),
        ("fp32 vector operators", neusight::vectors(sets)?),
        ("fp32 3x3 convolutions", neusight::convolutions(sets)?),
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
    let mut scored = Vec::new();
    whole_models(sets, shipped, &mut scored)?;
    println!("  {:29} {}", "all", Line::of(&scored));
    Ok(())
}

/// Whole transformer models in fp32 (NeuSight), with attention as plain products, as they were run. Rows of several GPUs,
/// of fused variants and of mixtures of experts are left out. `model_of` gives the model that speaks for a GPU, and the GPU.
pub fn whole_models(
    sets: &Sets,
    mut model_of: impl FnMut(usize) -> Result<(TimeModel, Gpu)>,
    scored: &mut Vec<Scored>,
) -> Result<()> {
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
        let (Some(gpu), "") = (neusight::gpu(sets, &r[0]), &r[5]) else { continue };
        let (mode, optimizer) = match &r[2] {
            "train" => (Mode::Train, Some(OptimizerChoice::NONE)),
            _ => (Mode::Infer, None),
        };
        let graph = zoo::build(name, Some(r[4].parse()?), Some(r[3].parse()?))?.with_eager_attention();
        let iteration = lower(&graph, &LowerOptions { mode, precision: Precision::Fp32, optimizer })?;
        let (model, machine) = match models.entry(gpu) {
            Entry::Occupied(e) => e.into_mut(),
            Entry::Vacant(e) => e.insert(model_of(gpu)?),
        };
        let p = model.predict_iteration(&iteration, machine);
        let (predicted, measured) = (p.time.ms(), r[8].parse()?);
        scored.push(Scored { predicted, measured, low: p.low.ms(), high: p.high.ms() });
        groups.entry(sets.gpus[gpu].name.clone()).or_default().push((predicted, measured));
    }
    for (gpu, pairs) in groups {
        println!("  {gpu:16} {:12} {}", "", score(pairs));
    }
    Ok(())
}
