//! The whole fit: from measured sets to what ships, and nothing else.
//!
//! Three steps, each with the model that the ones before it made: the project's own products; everything else that is learned
//! (1x1 convolutions are products); what is said about GPUs that nobody measured, which the whole model predicts. No step
//! reads an earlier fit. A check of some families alone takes the shipped model where it needs one of the others.

use crate::data;
use crate::gbdt::{Loss, Settings};
use crate::merge::Shipped;
use crate::samples::{self, Sample};
use crate::sets::Sets;
use crate::unseen::LeftOut;
use crate::write::{self, Files, Learned, Learner};
use crate::{
    attention, boards, choices, conv, deepbench, e2e, gemm, growth, laws, neusight, operators, plain_conv,
    rnn, rows, stream, unseen,
};
use anyhow::Result;
use preflop_core::gpu::{Architecture, Gpu, catalog};
use preflop_core::kernels::conv::dtype_group;
use preflop_core::kernels::{
    attention as attention_form, conv_features, gemm as gemm_form, listed as listed_kernels,
    plain_conv as plain_conv_form, rnn as rnn_form, rows as rows_form, stream as stream_form,
};
use preflop_core::time::choice::Choosers;
use preflop_core::time::conv_table::ConvForms;
use preflop_core::time::fitted::ConstantsFile;
use preflop_core::time::{Library, TimeModel};
use std::path::Path;

/// Settings for families whose times vary smoothly with the shape: two losses averaged.
pub fn smooth(trees: usize, min_leaf: usize, feature_fraction: f32) -> Settings {
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

/// Settings of fits across GPUs.
pub fn across_gpus() -> Settings {
    smooth(130, 20, 0.5)
}

/// Published fp32 products, as the libraries of today run them.
pub fn plain_products(sets: &Sets) -> Result<Vec<gemm::Row>> {
    let mut measured = neusight::products(sets)?;
    measured.retain(|m| !neusight::older_library(m));
    Ok(gemm::thinned(gemm::rows(&measured, Library::Plain), 20_000))
}

/// The project's own operators, all files.
pub fn operators(sets: &Sets) -> Result<Vec<data::Measured>> {
    let mut measured = Vec::new();
    for name in ["ops", "ops_extra", "forward", "fp8", "missed", "gaps"] {
        measured.extend(data::operators(sets, name)?);
    }
    for (name, gap) in data::WITHOUT_CUDNN {
        measured.extend(data::without_cudnn(sets, name, gap)?);
    }
    Ok(measured)
}

/// A fit on its way.
pub struct Fit<'a> {
    sets: &'a Sets,
    /// Beginnings of the names of families to fit; all if empty.
    wanted: &'a [String],
    /// What the families are put into, where they are not only looked at.
    shipped: Option<Shipped>,
    measured: Vec<data::Measured>,
    constants: ConstantsFile,
    learned: Vec<Learned>,
    choosers: Choosers,
}

impl<'a> Fit<'a> {
    /// Fits everything, or only cross-validates the families whose names begin with one of `wanted`.
    pub fn new(sets: &'a Sets, wanted: &'a [String]) -> Result<Self> {
        Self::on(sets, wanted, None)
    }

    /// Fits these families anew on top of what ships.
    pub fn merged(sets: &'a Sets, wanted: &'a [String], folder: &Path) -> Result<Self> {
        Self::on(sets, wanted, Some(Shipped::read(folder, wanted)?))
    }

    fn on(sets: &'a Sets, wanted: &'a [String], shipped: Option<Shipped>) -> Result<Self> {
        let measured = operators(sets)?;
        let mut fit = Self {
            sets,
            wanted,
            shipped,
            measured,
            constants: ConstantsFile::default(),
            learned: Vec::new(),
            choosers: Choosers::default(),
        };
        fit.own_products()?;
        let products = fit.model()?;
        fit.published_products(&products)?;
        fit.attention()?;
        fit.recurrent();
        fit.streams()?;
        fit.listed()?;
        fit.convolutions(&products)?;
        fit.plain_convolutions()?;
        fit.host()?;
        fit.settle()?;
        let whole = fit.model()?;
        fit.boards(&whole)?;
        let whole = fit.model()?;
        fit.elsewhere(&whole)?;
        Ok(fit)
    }

    /// Prints what cross-validation and GPUs left out say.
    pub fn print(&self) {
        for l in &self.learned {
            print!("{}", l.report(&self.sets.gpus));
        }
        for file in ["ops", "conv"] {
            let pairs = self.learned.iter().flat_map(|l| l.of_file(file));
            println!(
                "all rows of {file}.csv that were fitted, cross-validated: {}",
                crate::score::score(pairs)
            );
        }
    }

    /// What ships.
    pub fn files(self) -> Result<Files> {
        Files::new(self.sets, self.constants, &self.learned, &self.choosers, self.shipped.as_ref())
    }

    /// `gemm` picks all products, `gemm/h200` one fit of them.
    fn picks(&self, family: &str) -> bool {
        let within = |w: &str| w.strip_prefix(family).is_some_and(|rest| rest.starts_with('/'));
        self.wanted.is_empty() || self.wanted.iter().any(|w| family.starts_with(w.as_str()) || within(w))
    }

    /// The model so far.
    fn model(&self) -> Result<TimeModel> {
        if self.writes() {
            write::model(self.sets, &self.constants, &self.learned, &self.choosers, self.shipped.as_ref())
        } else {
            Ok(TimeModel::embedded())
        }
    }

    /// Are files to come of it, or only figures?
    fn writes(&self) -> bool {
        self.wanted.is_empty() || self.shipped.is_some()
    }

    fn learn(&mut self, learner: Learner) -> &mut Learned {
        let learned = learner.train(!self.writes());
        self.learned.push(learned);
        let last = self.learned.len() - 1;
        &mut self.learned[last]
    }

    /// Products on the project's own GPU in all formats.
    fn own_products(&mut self) -> Result<()> {
        if !self.picks("gemm/h200") {
            return Ok(());
        }
        let mut rows = gemm::rows(&self.measured, Library::Own);
        rows.extend(gemm::rows(&data::served_as_own(self.sets)?, Library::Own));
        let fit = gemm::Fit::new(&rows, &self.sets.gpus);
        self.constants.tiles.extend(fit.constants());
        let samples = fit.samples(&self.sets.gpus, false);
        self.learn(Learner::new("gemm/h200", samples, gemm_form::FEATURES, smooth(160, 5, 0.6)));
        Ok(())
    }

    /// Published products across GPUs: bf16, fp8 and fp32.
    fn published_products(&mut self, own: &TimeModel) -> Result<()> {
        let sets = self.sets;
        for name in ["gemm/bf16", "gemm/fp8", "gemm/fp32"] {
            if !self.picks(name) {
                continue;
            }
            let rows = match name {
                "gemm/bf16" => {
                    let mut rows = gemm::rows(&data::bf16_products(sets)?, Library::Served);
                    rows.extend(gemm::rows(&data::operators(sets, "served")?, Library::Served));
                    gemm::thinned(rows, 50_000)
                }
                "gemm/fp8" => {
                    // On Hopper our own fp8 rows speak: the published ones hold the serving engine's quantisation too.
                    let mut rows = gemm::rows(&data::fp8_products(sets)?, Library::Served);
                    rows.retain(|r| sets.gpus[r.gpu].architecture != Architecture::Hopper);
                    gemm::thinned(rows, 10_000)
                }
                _ => plain_products(sets)?,
            };
            let fit = gemm::Fit::new(&rows, &sets.gpus);
            self.constants.tiles.extend(fit.constants());
            let settings = across_gpus();
            let (own_samples, pooled) = (fit.samples(&sets.gpus, false), fit.samples(&sets.gpus, true));
            let learner = Learner::new(name, own_samples, gemm_form::FEATURES, settings).beside(
                &gemm::pooled_name(name),
                pooled,
                gemm::across(settings),
            );
            let left_out = unseen::products(name, &rows, sets, own.fitted(), settings)?;
            self.learn(learner).leave_out(left_out);
        }
        Ok(())
    }

    fn attention(&mut self) -> Result<()> {
        if !self.picks("attention") {
            return Ok(());
        }
        let (sets, gpus) = (self.sets, &self.sets.gpus);
        let published = data::published_attention(sets)?;
        let (here, there) =
            (attention::constants(&self.measured, gpus), attention::constants(&published, gpus));
        let (own, served) = (smooth(120, 5, 0.6), smooth(100, 20, 0.6));
        let samples = attention::samples(&self.measured, gpus, &here);
        let forest = samples::fit(&samples, attention_form::FEATURES, &own, |_| true);
        let left_out = attention::left_out(&published, sets, &here, &forest, served)?;
        self.learn(Learner::new("attention", samples, attention_form::FEATURES, own));
        let samples = attention::samples(&published, gpus, &there);
        self.learn(Learner::new("attention/served", samples, attention_form::FEATURES, served))
            .leave_out(left_out);
        self.constants.forms.extend(attention::shipped(&here, &there));
        Ok(())
    }

    fn recurrent(&mut self) {
        if !self.picks("rnn") {
            return;
        }
        let gpus = &self.sets.gpus;
        let products = gemm::table(&gemm::rows(&self.measured, Library::Own), gpus);
        let forms = rnn::constants(&self.measured, gpus, &products);
        let samples = rnn::samples(&self.measured, gpus, &products, &forms);
        self.learn(Learner::new("rnn", samples, rnn_form::FEATURES, smooth(120, 5, 0.6)));
        self.constants.forms.extend(forms);
    }

    /// Operators bound by memory. Softmax and layer norm have a form of their own outside Hopper; the rest is carried from
    /// the project's own GPU.
    fn streams(&mut self) -> Result<()> {
        if !self.picks("stream") {
            return Ok(());
        }
        let (sets, gpus) = (self.sets, &self.sets.gpus);
        self.constants.forms.extend(rows::constants(&by_row(sets)?, gpus));
        let profiled = e2e::runs(sets, "e2e_extra.csv")?;
        let norms = stream::stored_norms(sets, &profiled, &gpus[sets.own_gpu()?])?;
        let forms = stream::constants(&self.measured, gpus, &norms);
        self.constants.forms.extend(stream::shipped(&forms));
        for family in stream::FAMILIES {
            let samples = stream::samples(&self.measured, gpus, family, &forms);
            let name = stream::name(family);
            self.learn(Learner::new(name, samples, stream_form::FEATURES, smooth(110, 5, 0.6)));
        }
        Ok(())
    }

    /// What the forms of listed operators leave out. The third that is only for judging stays out; constants are those that ship.
    fn listed(&mut self) -> Result<()> {
        if !self.picks("listed") {
            return Ok(());
        }
        let samples = operators::samples(self.sets)?;
        let listed = Settings { min_leaf: 6, ..switching() };
        self.learn(Learner::new("listed", samples, listed_kernels::FEATURES, listed));
        Ok(())
    }

    fn convolutions(&mut self, products: &TimeModel) -> Result<()> {
        if !self.picks("conv") {
            return Ok(());
        }
        let (sets, gpus) = (self.sets, &self.sets.gpus);
        let mut calls = self.measured.clone();
        for name in ["conv", "conv_extra", "conv_listed", "conv_nhwc", "conv_lines", "conv_groups"] {
            calls.extend(data::operators(sets, name)?);
        }
        // Grouped, dilated and one-dimensional ones; the third that is only for judging stays out.
        calls.extend(data::operators(sets, "operators")?.into_iter().filter(|m| !operators::held(&m.call)));
        let answers = |names: [&str; 4]| -> Result<Vec<_>> {
            let mut all = Vec::new();
            for name in names {
                all.extend(choices::read(sets, &sets.own(name)?)?);
            }
            Ok(all)
        };
        let random = answers([
            "conv_choice.txt.gz",
            "conv_choice_lines.txt.gz",
            "conv_choice_groups.txt.gz",
            "conv_choice_missed.txt.gz",
        ])?;
        let mut asked = answers([
            "conv_choice_measured.txt.gz",
            "conv_choice_lines_measured.txt.gz",
            "conv_choice_groups_measured.txt.gz",
            "conv_choice_missed_measured.txt.gz",
        ])?;
        asked.extend(random.iter().copied());
        let named = choices::read_names(sets, &sets.own("conv_named.txt.gz")?)?;
        let (rows, variants) = conv::rows(&calls, &asked, &named);
        let passes = conv::ordinary(&random, &variants, &named, &gpus[sets.own_gpu()?]);
        let table = conv::constants(&rows, gpus);
        let forms = ConvForms::from_forms(table.iter().map(|(k, v)| (k.as_str(), v.as_slice())));
        let (samples, depthwise, [family, tile]) = conv::samples(&rows, gpus, &forms, &passes, products);
        println!(
            "conv: family right in {:.1} %, tile too in {:.1} % of the rows",
            100.0 * family,
            100.0 * tile
        );
        for (name, group) in [("conv/half", "half"), ("conv/tf32", "tf32"), ("conv/fp32", "fp32")] {
            let rows = samples.iter().zip(&rows).filter(|(_, r)| dtype_group(r.task.dtype) == group);
            let part: Vec<Sample> = rows.map(|(s, _)| s.clone()).collect();
            self.learn(Learner::new(name, part, conv_features::FEATURES, switching()));
        }
        self.constants.forms.extend(table);
        self.choosers = Choosers { passes, depthwise };
        Ok(())
    }

    fn plain_convolutions(&mut self) -> Result<()> {
        if !self.picks(plain_conv::NAME) {
            return Ok(());
        }
        let (sets, gpus) = (self.sets, &self.sets.gpus);
        let rows = plain_conv::rows(&neusight::convolutions(sets)?);
        let forms = plain_conv::constants(&rows, gpus);
        let settings = plain_conv::settings();
        let samples = plain_conv::samples(&rows, gpus, &forms);
        let left_out = plain_conv::left_out(&rows, sets)?;
        self.learn(Learner::new(plain_conv::NAME, samples, plain_conv_form::FEATURES, settings))
            .leave_out(left_out);
        self.constants.forms.extend(forms);
        Ok(())
    }

    fn host(&mut self) -> Result<()> {
        if self.picks("host") {
            let (one, more) = (e2e::runs(self.sets, "e2e.csv")?, e2e::runs(self.sets, "e2e_extra.csv")?);
            self.constants.forms.insert("host".into(), e2e::host(&[&one, &more]).to_array().to_vec());
        }
        Ok(())
    }

    /// Bends what was learned so that larger calls take no less, on any GPU of the catalogue.
    fn settle(&mut self) -> Result<()> {
        let calls = laws::calls(&data::operators(self.sets, "ops")?);
        let gpus: Vec<Gpu> = catalog::names().map(|n| Ok(catalog::find(n)?)).collect::<Result<_>>()?;
        let doubled = growth::doubled(&self.model()?, &calls, &gpus);
        self.learned.iter_mut().for_each(|l| l.settle(&doubled, gpus.len()));
        Ok(())
    }

    /// Forms for boards before Hopper.
    fn boards(&mut self, whole: &TimeModel) -> Result<()> {
        if self.picks("boards") {
            self.constants.forms.extend(boards::fit(self.sets, whole)?);
        }
        Ok(())
    }

    /// What the whole model says of published rows that no family was fitted on.
    fn elsewhere(&mut self, whole: &TimeModel) -> Result<()> {
        let (sets, gpus) = (self.sets, &self.sets.gpus);
        let mut rows: Vec<LeftOut> = Vec::new();
        if self.picks("stream") {
            let vectors = neusight::vectors(sets)?;
            let others: Vec<_> =
                vectors.into_iter().filter(|m| rows_form::Kernel::of(&m.call).is_none()).collect();
            rows = unseen::elsewhere(&others, whole, gpus)?;
            rows.extend(rows::left_out(&by_row(sets)?, gpus)?);
        }
        let recurrent = if self.picks("rnn") {
            unseen::elsewhere(&deepbench::recurrent(sets)?, whole, gpus)?
        } else {
            Vec::new()
        };
        for l in &mut self.learned {
            if let Some(family) = stream::FAMILIES.into_iter().find(|f| stream::name(*f) == l.name()) {
                l.leave_out(rows.iter().filter(|v| v.class == family.name()).cloned().collect());
            } else if l.name() == "rnn" {
                l.leave_out(recurrent.clone());
            }
        }
        Ok(())
    }
}

/// Published softmax and layer norm.
fn by_row(sets: &Sets) -> Result<Vec<rows::Row>> {
    Ok(rows::rows(&neusight::vectors(sets)?))
}
