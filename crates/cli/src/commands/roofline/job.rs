//! The work to look at: a model with its sizes and formats, on some GPUs.

use crate::error::InputError;
use crate::input;
use clap::Args;
use preflop_core::Gpu;
use preflop_core::model::{Graph, Iteration, LowerOptions, Mode, OptimizerChoice, Precision, lower};

/// What to run, and where.
#[derive(Debug, Clone, Args)]
pub struct JobArgs {
    /// GPUs, by name or the path of a GPU file, separated by commas
    #[arg(long, value_name = "GPU[,GPU]", value_delimiter = ',')]
    pub gpu: Vec<String>,

    /// Samples of one iteration [default: as the model has it]
    #[arg(long, value_name = "N", value_parser = input::batch)]
    pub batch: Option<u64>,

    /// Tokens of one sample, for language models [default: as the model has it]
    #[arg(long, value_name = "N", value_parser = input::seq)]
    pub seq: Option<u64>,

    /// Number formats: fp32, tf32, amp, bf16, fp16 or fp8
    #[arg(long, value_name = "FORMAT", default_value = "fp32", value_parser = precision)]
    pub precision: Precision,

    /// Training or inference: train or infer
    #[arg(long, value_name = "MODE", default_value = "train", value_parser = mode)]
    pub mode: Mode,

    /// Optimizer: sgd, adam, adamw or none [default: as the model is usually trained]
    #[arg(long, value_name = "NAME", value_parser = optimizer)]
    pub optimizer: Option<OptimizerChoice>,
}

fn precision(text: &str) -> Result<Precision, String> {
    Precision::ALL
        .into_iter()
        .find(|p| p.name() == text)
        .ok_or_else(|| "it must be fp32, tf32, amp, bf16, fp16 or fp8".to_string())
}

fn mode(text: &str) -> Result<Mode, String> {
    match text {
        "train" => Ok(Mode::Train),
        "infer" => Ok(Mode::Infer),
        _ => Err("it must be train or infer".to_string()),
    }
}

fn optimizer(text: &str) -> Result<OptimizerChoice, String> {
    match text {
        "sgd" => Ok(OptimizerChoice::Sgd),
        "adam" => Ok(OptimizerChoice::Adam),
        "adamw" => Ok(OptimizerChoice::Adamw),
        "none" => Ok(OptimizerChoice::None),
        _ => Err("it must be sgd, adam, adamw or none".to_string()),
    }
}

/// A model made ready: its graph and the operators of an iteration.
pub struct Job {
    pub graph: Graph,
    pub iteration: Iteration,
}

impl JobArgs {
    /// The GPUs; at least one.
    pub fn gpus(&self) -> anyhow::Result<Vec<Gpu>> {
        if self.gpu.is_empty() {
            return Err(InputError::new("no GPU given").hint("add --gpu, such as --gpu h200").into());
        }
        self.gpu.iter().map(|name| input::gpu(name)).collect()
    }

    /// The model, with another batch or sequence length where a sweep says so.
    pub fn job(&self, model: &str, batch: Option<u64>, seq: Option<u64>) -> anyhow::Result<Job> {
        let graph = input::model(model, batch.or(self.batch), seq.or(self.seq))?;
        let options = LowerOptions { mode: self.mode, precision: self.precision, optimizer: self.optimizer };
        let iteration = lower(&graph, &options)?;
        Ok(Job { graph, iteration })
    }
}

/// `resnet50, batch 64, amp, train`.
pub fn describe(job: &Job, args: &JobArgs) -> String {
    let seq = job.graph.seq.map_or(String::new(), |s| format!(", sequence {s}"));
    format!(
        "{}, batch {}{seq}, {}, {}",
        job.graph.name,
        job.graph.samples,
        args.precision.name(),
        args.mode.name()
    )
}
