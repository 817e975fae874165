//! Whole GPUs left out: their rows are predicted as those of a GPU that nobody measured.
//!
//! Constants and trees are fitted without the GPU, and what its catalogue file took from these measurements is
//! left out too. The model then takes the path it takes for any GPU: its generation if another GPU of it was
//! measured, else its kin, else all together. What stays are the figures typical of generations (`resolve.rs`).

use crate::data::{GPUS, Measured, references};
use crate::gbdt::Settings;
use crate::gemm;
use crate::plain_conv;
use crate::rows;
use crate::samples::fit;
use anyhow::{Context, Result};
use preflop_core::Dtype;
use preflop_core::gpu::Architecture;
use preflop_core::gpu::{Gpu, catalog, parse};
use preflop_core::kernels::gemm as gemm_form;
use preflop_core::ops::{Op, OpCall};
use preflop_core::time::choice::Choosers;
use preflop_core::time::fitted::{ConstantsFile, Fitted, TileKey, write_forests};
use preflop_core::time::trees::Forest;
use preflop_core::time::{Stack, TimeModel};
use rayon::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// A row as a model predicts it that did not see its GPU.
#[derive(Debug, Clone)]
pub struct LeftOut {
    pub gpu: usize,
    /// Class of its interval.
    pub class: String,
    pub predicted: f64,
    pub seconds: f64,
}

/// Sources of catalogue figures that are the measurements themselves.
const MEASURED: [&str; 4] = ["neusight", "aiconfigurator", "deepbench", "preflop"];

/// A GPU of the measurements as its file would be without them. It has no name, so that no fit is its own.
pub fn stranger(name: &str) -> Result<Gpu> {
    let (file, text) = catalog::FILES.iter().find(|(n, _)| *n == name).context("no such GPU file")?;
    let mut inside = false;
    let mut kept = String::new();
    for line in text.lines() {
        if line.starts_with('[') {
            inside = line.trim() == "[sustained]";
        }
        let taken = inside && MEASURED.iter().any(|s| line.contains(&format!("\"{s}\"")));
        if !taken {
            kept.push_str(line);
            kept.push('\n');
        }
    }
    Ok(Gpu { name: String::new(), ..parse(&kept, file)? })
}

/// The GPU of the project's own measurements: the first.
const OWN: &str = GPUS[0];

/// A model of these constants and forests alone, to which no measurement of one GPU speaks.
pub fn model(
    constants: ConstantsFile,
    forests: &BTreeMap<String, Forest>,
    without: usize,
) -> Result<TimeModel> {
    let constants = ConstantsFile { references: references(Some(without)), ..constants };
    let bytes = write_forests(forests, &Choosers::default());
    Ok(TimeModel::new(Fitted::read(&serde_json::to_string(&constants)?, &bytes)?))
}

/// Constants and forests of products, fitted without one GPU.
fn product_fit(
    name: &str,
    rows: &[gemm::Row],
    gpus: &[Gpu],
    settings: Settings,
    without: usize,
) -> (ConstantsFile, BTreeMap<String, Forest>) {
    let others: Vec<gemm::Row> = rows.iter().filter(|r| r.gpu != without).copied().collect();
    let fitted = gemm::Fit::new(&others, gpus);
    let mut constants = ConstantsFile { tiles: fitted.constants().collect(), ..ConstantsFile::default() };
    let (own, all) = (fitted.samples(gpus, false), fitted.samples(gpus, true));
    let mut forests = BTreeMap::from([
        (name.to_string(), fit(&own, gemm_form::FEATURES, &settings, |_| true)),
        (gemm::pooled_name(name), fit(&all, gemm_form::FEATURES, &gemm::across(settings), |_| true)),
    ]);
    if GPUS[without] != OWN {
        own_products(&mut constants, &mut forests);
    }
    (constants, forests)
}

/// The project's own measurements speak for the other GPUs of their generation.
fn own_products(constants: &mut ConstantsFile, forests: &mut BTreeMap<String, Forest>) {
    let shipped = Fitted::embedded();
    for dtype in [Dtype::Bf16, Dtype::Fp16] {
        let key = TileKey { dtype, class: 2, generation: Architecture::Hopper };
        if let Some(c) = shipped.tile_of(key) {
            constants.tiles.insert(key.text(), c.to_array());
        }
    }
    let name = gemm_form::own_forest(Dtype::Bf16, 2);
    forests.extend(shipped.forest(name).map(|f| (name.to_string(), f.clone())));
}

/// Rows of fp32 products, of softmax and layer norm, and of convolutions.
pub type PlainRows<'a> = (&'a [gemm::Row], &'a [rows::Row], &'a [plain_conv::Row]);

/// The shipped model with fp32 products, convolutions, softmax and layer norm as they are fitted without one GPU, and that GPU as a
/// stranger: what whole models meet on a GPU that nobody measured.
pub fn shipped_without(
    without: usize,
    (products, vectors, convolutions): PlainRows,
    gpus: &[Gpu],
    settings: Settings,
) -> Result<(TimeModel, Gpu)> {
    let (new, forests) = product_fit("gemm/fp32", products, gpus, settings, without);
    let text = std::fs::read_to_string("data/fitted/constants.json")?;
    let mut constants: ConstantsFile = serde_json::from_str(&text)?;
    // Constants of one generation that the others do not give must not stay.
    let plain: BTreeSet<(u8, Dtype)> = new.tiles.keys().filter_map(|k| class_of(k)).collect();
    constants.tiles.retain(|k, _| class_of(k).is_none_or(|c| !plain.contains(&c)));
    constants.tiles.extend(new.tiles);
    let others: Vec<rows::Row> = vectors.iter().filter(|r| r.gpu != without).cloned().collect();
    constants.forms.extend(rows::constants(&others, gpus));
    constants.references = references(Some(without));
    let shipped = Fitted::embedded();
    let mut all: BTreeMap<String, Forest> =
        shipped.forests().map(|(name, f)| (name.to_string(), f.clone())).collect();
    all.extend(forests);
    if convolutions.iter().any(|r| r.gpu == without) {
        let (forms, forest) = plain_conv::without(convolutions, gpus, without);
        constants.forms.extend(forms);
        all.insert(plain_conv::NAME.to_string(), forest);
    }
    let choosers = shipped.choosers().unwrap_or_default();
    let bytes = write_forests(&all, &choosers);
    let fitted = Fitted::read(&serde_json::to_string(&constants)?, &bytes)?;
    Ok((TimeModel::new(fitted), stranger(GPUS[without])?))
}

fn class_of(key: &str) -> Option<(u8, Dtype)> {
    TileKey::parse(key).map(|k| (k.class, k.dtype))
}

/// Every product by a model that did not see its GPU.
pub fn products(name: &str, rows: &[gemm::Row], gpus: &[Gpu], settings: Settings) -> Result<Vec<LeftOut>> {
    let each: BTreeSet<usize> = rows.iter().map(|r| r.gpu).collect();
    let models: BTreeMap<usize, (TimeModel, Gpu)> = each
        .into_par_iter()
        .map(|g| {
            let (constants, forests) = product_fit(name, rows, gpus, settings, g);
            Ok((g, (model(constants, &forests, g)?, stranger(GPUS[g])?)))
        })
        .collect::<Result<_>>()?;
    Ok(rows
        .par_iter()
        .map(|r| {
            let (model, gpu) = &models[&r.gpu];
            LeftOut {
                gpu: r.gpu,
                class: r.library.interval_class(&r.gemm, r.dtype).to_string(),
                predicted: model.predict(&OpCall::fwd(Op::Gemm(r.gemm), r.dtype), gpu).time.0,
                seconds: r.seconds,
            }
        })
        .collect())
}

/// Rows of GPUs that are in no fit of their family, by the shipped model: all operators bound by memory outside the
/// H200, in a class for each family, and recurrent layers with the software that ran them.
pub fn elsewhere(rows: &[Measured]) -> Result<Vec<LeftOut>> {
    let model = TimeModel::embedded();
    let deepbench = model.clone().with_stack(Stack::DEEPBENCH);
    let strangers: Vec<Gpu> = GPUS.iter().map(|g| stranger(g)).collect::<Result<_>>()?;
    let one = |m: &Measured| {
        let (model, added) =
            if m.source == "deepbench" { (&deepbench, Stack::DEEPBENCH.call_s) } else { (&model, 0.0) };
        LeftOut {
            gpu: m.gpu,
            class: m.call.family().name().to_string(),
            predicted: model.predict(&m.call, &strangers[m.gpu]).time.0 + added,
            seconds: m.us * 1e-6,
        }
    };
    Ok(rows.par_iter().map(one).collect())
}
