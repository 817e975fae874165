//! The work to look at: a model with its sizes and formats, on some GPUs.

use crate::error::InputError;
use crate::input;
use crate::report::{mode_words, optimizer_words};
use crate::run_args::{Job, RunArgs};
use clap::Args;
use preflop_core::Gpu;
use preflop_core::model::{OptimizerChoice, Precision};

/// What to run, and where.
#[derive(Debug, Clone, Args)]
pub struct JobArgs {
    /// GPUs, by name or the path of a GPU file, separated by commas
    #[arg(long, visible_alias = "gpus", value_name = "GPU[,GPU]", value_delimiter = ',')]
    pub gpu: Vec<String>,

    #[command(flatten)]
    pub run: RunArgs,
}

impl JobArgs {
    /// The GPUs; at least one.
    pub fn gpus(&self) -> anyhow::Result<Vec<Gpu>> {
        if self.gpu.is_empty() {
            return Err(InputError::new("no GPU given").hint("add --gpu, such as --gpu h200").into());
        }
        self.gpus_if_any()
    }

    /// The GPUs named; a recording may say itself where it ran.
    pub fn gpus_if_any(&self) -> anyhow::Result<Vec<Gpu>> {
        self.gpu.iter().map(|name| input::gpu(name)).collect()
    }
}

/// `resnet50 training, batch 64, amp, sgd (foreach)`.
pub fn describe(job: &Job) -> String {
    let seq = job.graph.seq.map_or(String::new(), |s| format!(", sequence {s}"));
    let step = job.graph.steps_with(&job.options);
    format!(
        "{} {}, batch {}{seq}, {}{}",
        job.graph.name,
        mode_words(job.options.mode.name()),
        job.graph.samples,
        formats(job.options.precision),
        optimizer_words(step.map(|o| o.rule.name()), step.and_then(OptimizerChoice::implementation_name))
    )
}

/// Number formats inside a title.
pub fn formats(precision: Precision) -> &'static str {
    match precision {
        Precision::Pytorch => "PyTorch's default formats",
        named => named.name(),
    }
}
