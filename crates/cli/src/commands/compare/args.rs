//! What `preflop compare` can be asked.

use crate::error::InputError;
use crate::input;
use crate::price_args::PriceArgs;
use crate::run_args;
use clap::Args;
use preflop_core::Gpu;
use preflop_core::cost::fit::Setup;
use preflop_core::cost::search;
use preflop_core::cost::{Catalogue, Limits, Plan, Pricing, RankBy, Reserve, quantity};
use preflop_core::gpu::catalog;
use preflop_core::model::{
    Graph, Iteration, LowerOptions, Mode, ModelError, OptimizerChoice, Precision, lower, zoo,
};
use preflop_core::units::Seconds;

/// Compare GPUs for a model: time, memory, dollars and energy, ranked
#[derive(Debug, Args)]
pub struct CompareArgs {
    /// Model name (see `preflop models`), or a file with a captured graph in JSON
    pub model: String,

    /// GPUs, separated by commas (names or GPU files), or `all`; `8xh100,4xa100` compares setups with several GPUs
    #[arg(long, value_name = "GPU,..", value_delimiter = ',', default_value = "all")]
    pub gpus: Vec<String>,

    /// Samples of one iteration; of several (`32,64,96`) the best that fits on each GPU, `auto` tries 40 sizes from 1
    /// to 2048 [default: as the model has it]
    #[arg(long, value_name = "N,..|auto", value_delimiter = ',', value_parser = batch_choice, allow_hyphen_values = true)]
    pub batch: Vec<Batch>,

    /// Tokens of one sample, for language models [default: as the model has it]
    #[arg(long, value_name = "N", value_parser = input::seq, allow_hyphen_values = true)]
    pub seq: Option<u64>,

    /// Number formats; of several, the best that each GPU has is taken
    #[arg(long, value_name = "FORMAT,..", value_delimiter = ',', default_value = "fp32", value_parser = run_args::precision())]
    pub precision: Vec<Precision>,

    /// Training or inference
    #[arg(long, value_name = "MODE", default_value = "train", value_parser = run_args::mode())]
    pub mode: Mode,

    /// Optimizer of a training step [default: as the model is usually trained]
    #[arg(long, value_name = "NAME", value_parser = run_args::optimizer())]
    pub optimizer: Option<OptimizerChoice>,

    /// What the list is ordered by: time, cost, energy
    #[arg(long, default_value = "time", value_parser = rank_by)]
    pub rank: RankBy,

    #[command(flatten)]
    pub prices: PriceArgs,

    /// Your own measured iteration, as `v100=310ms`: every prediction is scaled by it
    #[arg(long, value_name = "GPU=TIME")]
    pub measured: Option<String>,

    /// Your own correction for one of the GPUs, from `preflop fit`
    #[arg(long, value_name = "FILE")]
    pub correction: Option<String>,

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
    /// A captured graph: the batch it was captured with.
    Captured(Box<Graph>),
}

impl Source {
    /// Its name.
    pub fn name(&self) -> &str {
        match self {
            Self::Zoo(name) => name,
            Self::Captured(graph) => &graph.name,
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
    /// The GPUs.
    pub gpus: Vec<Gpu>,
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
        let options = self.options(setup);
        match &self.model {
            Source::Zoo(name) => lower(&zoo::build(name, Some(setup.batch), self.seq)?, &options),
            Source::Captured(graph) => lower(graph, &options),
        }
    }
}

/// A GPU that was named must have a price where one is needed; of all GPUs, some must.
fn check_prices(question: &Question) -> anyhow::Result<()> {
    let needed = question.rank == RankBy::Cost || question.limits.goal().is_some();
    if !needed {
        return Ok(());
    }
    let names: Vec<&str> = question.gpus.iter().map(|g| g.name.as_str()).collect();
    let lacking = super::unpriced(question, names.iter().copied()).len();
    if question.named || lacking == names.len() {
        question.prices.need(&names, question.pricing)?;
    }
    Ok(())
}

impl CompareArgs {
    /// Checks everything before anything is computed.
    pub fn question(&self) -> anyhow::Result<Question> {
        let (model, default_batch) = self.source()?;
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
        let mut batches: Vec<u64> = self.batch.iter().flat_map(|b| b.sizes()).collect();
        if batches.is_empty() {
            batches.push(default_batch);
        }
        batches.sort_unstable();
        batches.dedup();
        let mut precisions: Vec<Precision> = Vec::new();
        for p in &self.precision {
            if !precisions.contains(p) {
                precisions.push(*p);
            }
        }
        let mut mode = self.mode;
        if let Source::Captured(graph) = &model
            && let Some(fixed) = &graph.fixed
        {
            (precisions, mode) = (vec![fixed.precision], fixed.mode);
        }
        let setups = precisions
            .iter()
            .flat_map(|p| {
                batches.iter().map(|b| Setup { batch: *b, precision: *p, optimizer: self.optimizer })
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
            gpus,
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

    fn source(&self) -> anyhow::Result<(Source, u64)> {
        if let Ok(info) = zoo::info(&self.model) {
            return Ok((Source::Zoo(info.name), info.default_batch));
        }
        let batch = self.batch.first().and_then(|b| b.sizes().first().copied());
        let graph = input::model(&self.model, batch, self.seq)?;
        let samples = graph.samples;
        Ok((Source::Captured(Box::new(graph)), samples))
    }

    fn measured(&self) -> anyhow::Result<Option<(String, Seconds)>> {
        let Some(text) = &self.measured else { return Ok(None) };
        let (name, time) = input::pair(text, "--measured", "v100=310ms")?;
        Ok(Some((input::gpu(name)?.name, quantity::time(time)?)))
    }
}
