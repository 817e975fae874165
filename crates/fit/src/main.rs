//! Fits the time model from measurements, says how well it does on what it has not seen, and writes
//! `data/fitted`.
//!
//! `preflop-fit` fits everything; `preflop-fit FAMILY ..` only cross-validates the families whose names begin
//! so, and with `--update` in front it also replaces them in `data/fitted`. `PREFLOP_SHARED` names the folder
//! with the published measurements (default `../shared`). `preflop-fit e2e` scores whole iterations,
//! `preflop-fit published` the published measurements on other GPUs, `preflop-fit networks` published image networks there, and
//! `preflop-fit laws [COUNT]` counts answers that break what physics asks. `preflop-fit served` fits the kernels of an inference server, and
//! `preflop-fit llm` scores prefill and decode steps.
#![allow(clippy::print_stdout)]

mod attention;
mod choices;
mod chooser;
mod conv;
mod data;
mod e2e;
mod gbdt;
mod gemm;
mod laws;
mod llm;
mod networks;
mod plain_conv;
mod published;
mod rnn;
mod rows;
mod samples;
mod score;
mod served;
mod simplex;
mod stream;
mod unseen;
mod write;

use anyhow::Result;
use gbdt::{Loss, Settings};
use preflop_core::gpu::{Architecture, Gpu};
use preflop_core::kernels::conv::dtype_group;
use preflop_core::kernels::{
    attention as attention_form, conv_features, gemm as gemm_form, plain_conv as plain_conv_form,
    rnn as rnn_form, rows as rows_form, stream as stream_form,
};
use preflop_core::time::Library;
use preflop_core::time::choice::Choosers;
use preflop_core::time::conv_table::ConvForms;
use preflop_core::time::fitted::ConstantsFile;
use samples::Sample;
use std::path::{Path, PathBuf};
use write::{Learned, Learner};

/// Settings for families whose times vary smoothly with the shape: two losses averaged.
fn smooth(trees: usize, min_leaf: usize, feature_fraction: f32) -> Settings {
    Settings {
        trees,
        depth: 6,
        rate: 0.12,
        loss: Loss::Quantile(0.45),
        second: Loss::Squared,
        bags: 2,
        min_leaf,
        feature_fraction,
        ..Settings::default()
    }
}

/// Settings for families where a library switches between kernels: the relative error itself.
fn switching() -> Settings {
    Settings {
        trees: 200,
        depth: 6,
        rate: 0.1,
        loss: Loss::Relative,
        second: Loss::Relative,
        bags: 2,
        min_leaf: 12,
        feature_fraction: 0.4,
        ..Settings::default()
    }
}

fn main() -> Result<()> {
    let mut wanted: Vec<String> = std::env::args().skip(1).collect();
    let update = wanted.first().is_some_and(|w| w == "--update");
    if update {
        wanted.remove(0);
    }
    let keep = update || wanted.is_empty();
    let shared = PathBuf::from(std::env::var("PREFLOP_SHARED").unwrap_or("../shared".into())).join("data");
    let own = Path::new("data/measured/h200");
    let gpus = data::gpus()?;
    if wanted.first().is_some_and(|w| w == "served") {
        return served::run(&shared, update.then_some(Path::new("data/fitted/served.toml")));
    }
    if wanted.first().is_some_and(|w| w == "llm") {
        return llm::report(&shared);
    }
    if wanted.first().is_some_and(|w| w == "networks") {
        return networks::report(&shared);
    }
    if wanted.first().is_some_and(|w| w == "published") {
        return published::report(&shared, &gpus);
    }
    if wanted.first().is_some_and(|w| w == "e2e") {
        let model = preflop_core::time::TimeModel::embedded();
        for file in ["e2e.csv", "e2e_extra.csv"] {
            println!("{file}");
            let cases = e2e::cases(&own.join(file), &model, &gpus[0])?;
            e2e::report(&cases, wanted.len() > 1);
            println!("  host {:?}", e2e::host(&[&cases]));
        }
        return Ok(());
    }
    let mut measured = data::operators(&own.join("ops.csv.gz"), 0, "ops")?;
    measured.extend(data::optional(&own.join("ops_extra.csv.gz"), "ops_extra")?);
    measured.extend(data::optional(&own.join("forward.csv.gz"), "forward")?);
    measured.extend(data::optional(&own.join("fp8.csv.gz"), "fp8")?);
    for (name, gap) in data::WITHOUT_CUDNN {
        measured.extend(data::without_cudnn(&own.join(format!("{name}.csv.gz")), name, gap)?);
    }
    if wanted.first().is_some_and(|w| w == "laws") {
        let ours: Vec<_> = measured.into_iter().filter(|m| m.source == "ops").collect();
        let asked = wanted.get(1).and_then(|n| n.parse().ok()).unwrap_or(100_000);
        return laws::report(&laws::calls(&ours), asked, wanted.len() > 2);
    }
    let mut constants = ConstantsFile::default();
    let mut learners = Vec::new();
    let mut choosers = None;

    // `gemm` picks all products, `gemm/h200` one fit of them.
    let picks = |family: &str| {
        let within = |w: &str| w.strip_prefix(family).is_some_and(|rest| rest.starts_with('/'));
        wanted.is_empty() || wanted.iter().any(|w| family.starts_with(w.as_str()) || within(w))
    };
    if picks("gemm") {
        let sources = Sources { measured: &measured, own, shared: &shared };
        products(&sources, &gpus, &picks, &mut constants, &mut learners)?;
    }
    if picks("attention") {
        let published = data::published_attention(&shared)?;
        let (here, there) = (attention::constants(&measured, &gpus), attention::constants(&published, &gpus));
        let (own, served) = (smooth(120, 5, 0.6), smooth(100, 20, 0.6));
        let samples = attention::samples(&measured, &gpus, &here);
        let forest = samples::fit(&samples, attention_form::FEATURES, &own, |_| true);
        let left_out = attention::left_out(&published, &gpus, &here, &forest, served)?;
        learners.push(Learner::new("attention", samples, attention_form::FEATURES, own));
        let samples = attention::samples(&published, &gpus, &there);
        learners.push(
            Learner::new("attention/served", samples, attention_form::FEATURES, served).left_out(left_out),
        );
        constants.forms.extend(attention::shipped(&here, &there));
    }
    if picks("rnn") {
        let own_products: Vec<_> = gemm::rows(&measured, Library::Own);
        let products = gemm::table(&own_products, &gpus);
        let forms = rnn::constants(&measured, &gpus, &products);
        let samples = rnn::samples(&measured, &gpus, &products, &forms);
        learners.push(
            Learner::new("rnn", samples, rnn_form::FEATURES, smooth(120, 5, 0.6))
                .left_out(unseen::elsewhere(&data::published_rnn(&shared)?)?),
        );
        constants.forms.extend(forms);
    }
    if picks("stream") {
        // Softmax and layer norm have a form of their own outside Hopper; the rest is carried from the H200.
        let (by_row, others): (Vec<_>, Vec<_>) = published::long(data::fp32_vectors(&shared)?)
            .into_iter()
            .partition(|m| rows_form::Kernel::of(&m.call).is_some());
        let by_row = rows::rows(&by_row);
        constants.forms.extend(rows::constants(&by_row, &gpus));
        let mut vectors = unseen::elsewhere(&others)?;
        vectors.extend(rows::left_out(&by_row, &gpus)?);
        let model = preflop_core::time::TimeModel::embedded();
        let profiled = e2e::cases(&own.join("e2e_extra.csv"), &model, &gpus[0])?;
        let norms = stream::stored_norms(&profiled, &own.join("e2e_kernels.csv.gz"), &gpus[0])?;
        let forms = stream::constants(&measured, &gpus, &norms);
        constants.forms.extend(stream::shipped(&forms));
        for family in stream::FAMILIES {
            let samples = stream::samples(&measured, &gpus, family, &forms);
            let name = stream::name(family);
            let there = vectors.iter().filter(|v| v.class == family.name()).cloned().collect();
            learners.push(
                Learner::new(name, samples, stream_form::FEATURES, smooth(110, 5, 0.6)).left_out(there),
            );
        }
    }
    if picks("conv") {
        let mut calls = measured.clone();
        calls.extend(data::operators(&own.join("conv.csv.gz"), 0, "conv")?);
        calls.extend(data::optional(&own.join("conv_extra.csv.gz"), "conv_extra")?);
        calls.extend(data::optional(&own.join("conv_listed.csv.gz"), "conv_listed")?);
        calls.extend(data::optional(&own.join("conv_nhwc.csv.gz"), "conv_nhwc")?);
        let random = choices::read(&own.join("conv_choice.txt.gz"))?;
        let mut asked = choices::read(&own.join("conv_choice_measured.txt.gz"))?;
        asked.extend(random.iter().copied());
        let named = choices::read_names(&own.join("conv_named.txt.gz"))?;
        let (rows, variants) = conv::rows(&calls, &asked, &named);
        let passes = conv::ordinary(&random, &variants, &named, &gpus[0]);
        let table = conv::constants(&rows, &gpus);
        let forms = ConvForms::from_forms(table.iter().map(|(k, v)| (k.as_str(), v.as_slice())));
        let (samples, depthwise, [family, tile]) = conv::samples(&rows, &gpus, &forms, &passes);
        println!(
            "conv: family right in {:.1} %, tile too in {:.1} % of the rows",
            100.0 * family,
            100.0 * tile
        );
        for (name, group) in [("conv/half", "half"), ("conv/tf32", "tf32"), ("conv/fp32", "fp32")] {
            let part: Vec<Sample> = samples
                .iter()
                .zip(&rows)
                .filter(|(_, r)| dtype_group(r.task.dtype) == group)
                .map(|(s, _)| s.clone())
                .collect();
            learners.push(Learner::new(name, part, conv_features::FEATURES, switching()));
        }
        constants.forms.extend(table);
        choosers = Some(Choosers { passes, depthwise });
    }
    if picks(plain_conv::NAME) {
        let rows = plain_conv::rows(&published::long(data::fp32_convolutions(&shared)?));
        let forms = plain_conv::constants(&rows, &gpus);
        let settings = Settings { depth: 5, ..smooth(120, 30, 0.5) };
        let samples = plain_conv::samples(&rows, &gpus, &forms);
        learners.push(
            Learner::new(plain_conv::NAME, samples, plain_conv_form::FEATURES, settings)
                .left_out(plain_conv::left_out(&rows, &gpus, settings)?),
        );
        constants.forms.extend(forms);
    }
    if picks("factor") {
        constants.forms.extend(published::factors(&shared, &gpus)?);
    }
    if picks("host") {
        let model = preflop_core::time::TimeModel::embedded();
        let read = |file: &str| e2e::cases(&own.join(file), &model, &gpus[0]);
        let fit = e2e::host(&[&read("e2e.csv")?, &read("e2e_extra.csv")?]);
        constants.forms.insert("host".into(), fit.to_array().to_vec());
    }
    let learned: Vec<Learned> = learners.into_iter().map(|l| l.train(!keep)).collect();
    for l in &learned {
        print!("{}", l.report());
    }
    for file in ["ops", "conv"] {
        let pairs = learned.iter().flat_map(|l| l.of_file(file));
        println!("all rows of {file}.csv that were fitted, cross-validated: {}", score::score(pairs));
    }
    if keep {
        write::files(Path::new("data/fitted"), &gpus, constants, &learned, choosers, update)?;
    }
    Ok(())
}

/// Where measurements come from.
struct Sources<'a> {
    /// The project's own operators, all files.
    measured: &'a [data::Measured],
    /// Its folder, and the one with published measurements.
    own: &'a Path,
    shared: &'a Path,
}

/// Settings of fits across GPUs.
fn across_gpus() -> Settings {
    smooth(130, 20, 0.5)
}

/// Published fp32 products. Under 0.2 ms their times are mostly the host's.
fn plain_products(shared: &Path) -> Result<Vec<gemm::Row>> {
    let mut rows = gemm::rows(&data::fp32_products(shared)?, Library::Plain);
    rows.retain(|r| r.seconds > 2e-4);
    Ok(gemm::thinned(rows, 20_000))
}

/// The four fits of matrix products: the H200 in all formats, and bf16, fp8 and fp32 across GPUs.
fn products(
    from: &Sources,
    gpus: &[Gpu],
    picks: &dyn Fn(&str) -> bool,
    constants: &mut ConstantsFile,
    learners: &mut Vec<Learner>,
) -> Result<()> {
    let shared = from.shared;
    let mut own = gemm::rows(from.measured, Library::Own);
    own.extend(gemm::rows(&data::served_as_own(from.own)?, Library::Own));
    // On Hopper our own fp8 rows speak: the published ones hold the serving engine's quantisation too.
    let mut quantised = gemm::rows(&data::fp8_products(shared)?, Library::Served);
    quantised.retain(|r| gpus[r.gpu].architecture != Architecture::Hopper);
    let mut bf16 = gemm::rows(&data::bf16_products(shared)?, Library::Served);
    bf16.extend(gemm::rows(&data::optional(&from.own.join("served.csv.gz"), "served")?, Library::Served));
    let wide = across_gpus();
    for (name, rows, settings) in [
        ("gemm/h200", own, smooth(160, 5, 0.6)),
        ("gemm/bf16", gemm::thinned(bf16, 50_000), wide),
        ("gemm/fp8", gemm::thinned(quantised, 10_000), wide),
        ("gemm/fp32", plain_products(shared)?, wide),
    ] {
        if !picks(name) {
            continue;
        }
        let fit = gemm::Fit::new(&rows, gpus);
        constants.tiles.extend(fit.constants());
        let mut learner = Learner::new(name, fit.samples(gpus, false), gemm_form::FEATURES, settings);
        if name != "gemm/h200" {
            learner = learner
                .beside(&gemm::pooled_name(name), fit.samples(gpus, true), gemm::across(settings))
                .left_out(unseen::products(name, &rows, gpus, settings)?);
        }
        learners.push(learner);
    }
    Ok(())
}
