//! What `preflop compare` can be asked.

use crate::commands::roofline::recording::RecordingArgs;
use crate::error::InputError;
use crate::input;
use crate::price_args::PriceArgs;
use crate::run_args::{self, FormArgs};
use clap::Args;
use preflop_core::Gpu;
use preflop_core::cost::fit::Setup;
use preflop_core::cost::search;
use preflop_core::cost::{Catalogue, Limits, Plan, Pricing, RankBy, Reserve, quantity};
use preflop_core::gpu::catalog;
use preflop_core::model::{
    Form, Graph, Iteration, LowerOptions, Mode, ModelError, OptimizerChoice, Precision, zoo,
};
use preflop_core::units::Seconds;
use preflop_import::exported::Bindings;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Compare GPUs for a model: time, memory, dollars and energy, ranked
///
/// Ends with the answer: the fastest GPU that has room, the cheapest, the best value, and what would make it faster still.
#[derive(Debug, Args)]
#[command(after_help = "EXAMPLES
  preflop compare resnet50                                   # every GPU that has room, the fastest first
  preflop compare gpt2 --precision amp --batch auto --top 5  # the best batch of each GPU
  preflop compare my.onnx --dim batch=8 --gpus h100,l4 --rank cost
  preflop compare resnet50 --epochs 90 --dataset-size 1281167 --deadline 2d")]
pub struct CompareArgs {
    /// Model name (see `preflop models`), a file (captured graph, .onnx, .pt2, Hugging Face config.json), or a recording (a profiler's trace), which
    /// is carried over as `preflop transfer` does
    pub model: String,

    /// GPUs, separated by commas (names or GPU files), or `all`; `8xh100,4xa100` compares setups with several GPUs
    #[arg(long, visible_alias = "gpu", value_name = "GPU,..", value_delimiter = ',', default_value = "all")]
    pub gpus: Vec<String>,

    /// Show the GPUs too that have too little memory
    #[arg(long)]
    pub all: bool,

    /// Show only so many GPUs, the best
    #[arg(long, value_name = "N", value_parser = input::batch, allow_hyphen_values = true)]
    pub top: Option<u64>,

    /// Samples of one iteration; of several (`32,64,96`) the best that fits on each GPU, `auto` tries 40 sizes from 1
    /// to 2048 [default: as the model has it]
    #[arg(long, value_name = "N,..|auto", value_delimiter = ',', value_parser = batch_choice, allow_hyphen_values = true)]
    pub batch: Vec<Batch>,

    /// Tokens of one sample, for language models [default: as the model has it]
    #[arg(long, value_name = "N", value_parser = input::seq, allow_hyphen_values = true)]
    pub seq: Option<u64>,

    /// Size of an open dimension of an .onnx or .pt2 file; may be given several times
    #[arg(long = "dim", value_name = "NAME=N", value_parser = input::dim)]
    pub dims: Vec<(String, u64)>,

    /// Number formats, as in `predict`; of several, the best that each GPU has is taken
    #[arg(long, value_name = "FORMAT,..", value_delimiter = ',', default_value = Precision::default().name(), value_parser = run_args::precision())]
    pub precision: Vec<Precision>,

    /// Training or inference
    #[arg(long, value_name = "MODE", default_value = "train", value_parser = run_args::mode())]
    pub mode: Mode,

    /// Optimizer of a training step and its implementation [default: as the model is usually trained, foreach]
    #[arg(long, value_name = "NAME[:HOW]", value_parser = run_args::optimizer())]
    pub optimizer: Option<OptimizerChoice>,

    #[command(flatten)]
    pub form: FormArgs,

    /// What the list is ordered by: time, cost, energy
    #[arg(long, default_value = "time", value_parser = rank_by)]
    pub rank: RankBy,

    #[command(flatten)]
    pub prices: PriceArgs,

    #[command(flatten)]
    pub recording: RecordingArgs,

    /// Your own measured iteration, as `v100=310ms`: every prediction is scaled by it
    #[arg(long, value_name = "GPU=TIME")]
    pub measured: Option<String>,

    /// Your own correction for one of the GPUs, from `preflop fit`
    #[arg(long, value_name = "FILE")]
    pub correction: Option<String>,

    /// The host that the job will run on: fast, usual, slow, a factor such as 1.5x, or a file from `preflop host`
    #[arg(long, value_name = "HOST")]
    pub host: Option<String>,

    /// Show speeds relative to this GPU [default: the measured one]
    #[arg(long, value_name = "GPU")]
    pub baseline: Option<String>,

    /// Passes over the data set
    #[arg(long, value_name = "N", value_parser = input::batch, allow_hyphen_values = true)]
    pub epochs: Option<u64>,

    /// Samples of one epoch
    #[arg(long, value_name = "N", value_parser = dataset_size, allow_hyphen_values = true)]
    pub dataset_size: Option<u64>,

    /// Find the cheapest GPU that finishes in this time, as `2d` or `36h`
    #[arg(long, value_name = "TIME", value_parser = quantity::time, allow_hyphen_values = true)]
    pub deadline: Option<Seconds>,

    /// Find the fastest GPU for at most this money, as `100usd`
    #[arg(long, value_name = "USD", value_parser = quantity::usd, allow_hyphen_values = true)]
    pub budget: Option<f64>,

    /// Carbon of the electricity, in grams of CO2 per kWh
    #[arg(long, value_name = "G", value_parser = input::above_zero, allow_hyphen_values = true)]
    pub grams_per_kwh: Option<f64>,

    /// End with status 1 where it fits on none of the GPUs
    #[arg(long)]
    pub fail_if_not_fit: bool,

    /// Write the rows to a file: .csv or .json
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<String>,

    /// Draw time against cost: .svg or .png
    #[arg(long, value_name = "FILE")]
    pub plot: Option<String>,
}

/// How the batch is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Batch {
    /// The best that fits on each GPU.
    Auto,
    /// This one.
    Fixed(u64),
}

impl Batch {
    fn sizes(self) -> Vec<u64> {
        match self {
            Self::Auto => search::usual_batches(),
            Self::Fixed(n) => vec![n],
        }
    }
}

fn batch_choice(text: &str) -> Result<Batch, String> {
    if text == "auto" { Ok(Batch::Auto) } else { input::batch(text).map(Batch::Fixed) }
}

fn rank_by(text: &str) -> Result<RankBy, String> {
    input::one_of(text, &[("time", RankBy::Time), ("cost", RankBy::Cost), ("energy", RankBy::Energy)])
}

fn dataset_size(text: &str) -> Result<u64, String> {
    match quantity::count(text) {
        Ok(n) if (1..=1_000_000_000_000).contains(&n) => Ok(n),
        _ => Err("it must be a whole number from 1 to 1000000000000".to_string()),
    }
}

/// Where the model comes from.
#[derive(Debug)]
pub enum Source {
    /// The zoo: any batch.
    Zoo(&'static str),
    /// A file: its graph for each batch that is asked for. A captured graph has one.
    File(BTreeMap<u64, Graph>),
}

impl Source {
    /// Its name.
    pub fn name(&self) -> &str {
        match self {
            Self::Zoo(name) => name,
            Self::File(graphs) => graphs.values().next().map_or("", |graph| &graph.name),
        }
    }

    /// The graph with that batch.
    pub fn graph(&self, batch: u64, seq: Option<u64>) -> Result<Cow<'_, Graph>, ModelError> {
        match self {
            Self::Zoo(name) => Ok(Cow::Owned(zoo::build(name, Some(batch), seq)?)),
            Self::File(graphs) => graphs.get(&batch).map(Cow::Borrowed).ok_or_else(|| ModelError::Size {
                what: "batch",
                value: batch,
                limit: graphs.keys().next_back().copied().unwrap_or(0),
            }),
        }
    }
}

/// A checked question.
#[derive(Debug)]
pub struct Question {
    /// The model.
    pub model: Source,
    /// Tokens.
    pub seq: Option<u64>,
    /// Mode.
    pub mode: Mode,
    /// In which form it is run.
    pub form: Form,
    /// The GPUs.
    pub gpus: Vec<Gpu>,
    /// Why others of the catalogue are left out.
    pub lacking: Vec<String>,
    /// Were they named one by one?
    pub named: bool,
    /// Ways to run: one, or several of which each GPU takes its best.
    pub setups: Vec<Setup>,
    /// Order.
    pub rank: RankBy,
    /// Prices.
    pub prices: Catalogue,
    /// Which of them.
    pub pricing: Pricing,
    /// The user's measurement.
    pub measured: Option<(String, Seconds)>,
    /// Catalogue name of the GPU to compare with.
    pub baseline: Option<String>,
    /// A whole run.
    pub plan: Option<Plan>,
    /// What it must keep to.
    pub limits: Limits,
    /// Carbon.
    pub grams_per_kwh: Option<f64>,
    /// Memory that must stay free.
    pub reserve: Reserve,
}

impl Question {
    /// How a setup is lowered.
    pub fn options(&self, setup: &Setup) -> LowerOptions {
        LowerOptions { mode: self.mode, precision: setup.precision, optimizer: setup.optimizer }
    }

    /// The iteration of a setup.
    pub fn lower(&self, setup: &Setup) -> Result<Iteration, ModelError> {
        let graph = self.graph(setup)?;
        self.form.lower(&graph, &self.options(setup))
    }

    /// The graph of a setup, in the form that is asked for.
    pub fn graph(&self, setup: &Setup) -> Result<Cow<'_, Graph>, ModelError> {
        let mut graph = self.model.graph(setup.batch, self.seq)?;
        let form = Form { checkpoint: setup.checkpoint, ..self.form };
        if !(Form { run: None, ..form }).is_plain() {
            form.shape(graph.to_mut(), self.options(setup).mode)?;
        }
        Ok(graph)
    }
}

/// Where prices are needed some GPU must have one; the others are listed without.
fn check_prices(question: &Question) -> anyhow::Result<()> {
    let needed = question.rank == RankBy::Cost || question.limits.goal().is_some();
    if !needed {
        return Ok(());
    }
    let names: Vec<&str> = question.gpus.iter().map(|g| g.name.as_str()).collect();
    let lacking = super::unpriced(question, names.iter().copied()).len();
    if lacking == names.len() {
        question.prices.need(&names, question.pricing)?;
    }
    Ok(())
}

impl CompareArgs {
    /// Checks everything before anything is computed.
    pub fn question(&self) -> anyhow::Result<Question> {
        let mut batches: Vec<u64> = self.batch.iter().flat_map(|b| b.sizes()).collect();
        batches.sort_unstable();
        batches.dedup();
        let model = self.source(&mut batches)?;
        let named = self.gpus != ["all"];
        let gpus = if named {
            let mut gpus: Vec<Gpu> = Vec::new();
            for name in &self.gpus {
                let gpu = input::gpu(name)?;
                if gpus.iter().all(|g| g.name != gpu.name) {
                    gpus.push(gpu);
                }
            }
            gpus
        } else {
            catalog::all()?
        };
        let mut precisions: Vec<Precision> = Vec::new();
        for p in &self.precision {
            if !precisions.contains(p) {
                precisions.push(*p);
            }
        }
        let mut mode = self.mode;
        if let Source::File(graphs) = &model
            && let Some(fixed) = graphs.values().find_map(|graph| graph.fixed.as_ref())
        {
            (precisions, mode) = (vec![fixed.precision], fixed.mode);
        }
        let recorded =
            matches!(&model, Source::File(graphs) if graphs.values().any(|graph| graph.fixed.is_some()));
        let mut lacking = Vec::new();
        if !recorded {
            for gpu in &gpus {
                if precisions.iter().all(|p| search::lacks(gpu, *p).is_some()) {
                    lacking.extend(search::lacks(gpu, precisions[0]));
                }
            }
        }
        if let Some(first) = lacking.first().filter(|_| named) {
            return Err(InputError::new(first.clone()).into());
        }
        let able = |gpu: &Gpu| recorded || precisions.iter().any(|p| search::native(gpu, *p));
        let gpus: Vec<Gpu> = gpus.into_iter().filter(able).collect();
        let setups = precisions
            .iter()
            .flat_map(|p| {
                batches.iter().map(|b| Setup {
                    batch: *b,
                    precision: *p,
                    optimizer: self.optimizer,
                    checkpoint: self.form.checkpoint,
                })
            })
            .collect();
        let limits = Limits { deadline: self.deadline, budget_usd: self.budget };
        let plan = Plan::new(self.epochs, self.dataset_size, &limits)?;
        let measured = self.measured()?;
        let baseline = match &self.baseline {
            Some(name) => Some(input::gpu(name)?.name),
            None => measured.as_ref().map(|(name, _)| name.clone()),
        };
        if let Some(name) = baseline.as_ref().filter(|_| self.baseline.is_some())
            && gpus.iter().all(|g| g.name != *name)
        {
            return Err(InputError::new(format!("`--baseline {name}` is not among the GPUs compared"))
                .hint("name it in `--gpus` too")
                .into());
        }
        let question = Question {
            model,
            seq: self.seq,
            mode,
            form: self.form.form(),
            gpus,
            lacking,
            named,
            setups,
            rank: self.rank,
            prices: self.prices.catalogue()?,
            pricing: self.prices.pricing,
            measured,
            baseline,
            plan,
            limits,
            grams_per_kwh: self.grams_per_kwh,
            reserve: Reserve::default(),
        };
        check_prices(&question)?;
        Ok(question)
    }

    /// The model, and the batches where none were asked for. A file is read anew for each: shapes follow from them.
    fn source(&self, batches: &mut Vec<u64>) -> anyhow::Result<Source> {
        if let Ok(info) = zoo::info(&self.model) {
            if let Some((name, _)) = self.dims.first() {
                let message = format!("`--dim {name}=..` is for .onnx and .pt2 files");
                return Err(InputError::new(message).hint("use `--batch` and `--seq`").into());
            }
            if batches.is_empty() {
                batches.push(info.default_batch);
            }
            return Ok(Source::Zoo(info.name));
        }
        let read = |batch: Option<u64>| {
            let dims = self.dims.iter().cloned().collect();
            input::sized_model(&self.model, &Bindings { dims, batch, seq: self.seq })
        };
        let mut graphs = BTreeMap::new();
        if batches.is_empty() {
            let graph = read(None)?;
            batches.push(graph.samples);
            graphs.insert(graph.samples, graph);
        }
        for batch in batches.iter() {
            if !graphs.contains_key(batch) {
                graphs.insert(*batch, read(Some(*batch))?);
            }
        }
        Ok(Source::File(graphs))
    }

    fn measured(&self) -> anyhow::Result<Option<(String, Seconds)>> {
        let Some(text) = &self.measured else { return Ok(None) };
        let (name, time) = input::pair(text, "--measured", "v100=310ms")?;
        Ok(Some((input::gpu(name)?.name, quantity::time(time)?)))
    }
}
