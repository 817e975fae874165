//! `preflop predict`: how long one iteration of a model takes on a GPU, and why.

use crate::input;
use crate::output::{self, Output};
use crate::report::{Question, Report};
use clap::Args;
use preflop_core::model::{LowerOptions, Mode, OptimizerChoice, Precision, lower};
use preflop_core::time::TimeModel;
use std::io::Write as _;

/// Predict one iteration of a model: time, throughput, memory, and where the time goes
#[derive(Debug, Args)]
pub struct PredictArgs {
    /// Model name (see `preflop models`), or a file with a captured graph in JSON
    model: String,

    /// GPU name (see `preflop gpus`) or the path of a GPU file
    #[arg(long, value_name = "GPU")]
    gpu: String,

    /// Samples of one iteration [default: as the model has it]
    #[arg(long, value_name = "N", value_parser = input::batch, allow_hyphen_values = true)]
    batch: Option<u64>,

    /// Tokens of one sample, for language models [default: as the model has it]
    #[arg(long, value_name = "N", value_parser = input::seq, allow_hyphen_values = true)]
    seq: Option<u64>,

    /// Number formats; `amp` is bf16 autocast over fp32 weights, `fp32` is without TF32
    #[arg(long, value_enum, default_value_t = PrecisionArg::Fp32)]
    precision: PrecisionArg,

    /// Training (forward, backward, optimizer step) or inference
    #[arg(long, value_enum, default_value_t = ModeArg::Train)]
    mode: ModeArg,

    /// Optimizer of a training step [default: as the model is usually trained]
    #[arg(long, value_enum)]
    optimizer: Option<OptimizerArg>,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum PrecisionArg {
    Fp32,
    Tf32,
    Amp,
    Bf16,
    Fp16,
    Fp8,
}

impl From<PrecisionArg> for Precision {
    fn from(arg: PrecisionArg) -> Self {
        match arg {
            PrecisionArg::Fp32 => Self::Fp32,
            PrecisionArg::Tf32 => Self::Tf32,
            PrecisionArg::Amp => Self::Amp,
            PrecisionArg::Bf16 => Self::Bf16,
            PrecisionArg::Fp16 => Self::Fp16,
            PrecisionArg::Fp8 => Self::Fp8,
        }
    }
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum ModeArg {
    Train,
    Infer,
}

impl From<ModeArg> for Mode {
    fn from(arg: ModeArg) -> Self {
        match arg {
            ModeArg::Train => Self::Train,
            ModeArg::Infer => Self::Infer,
        }
    }
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum OptimizerArg {
    /// SGD with momentum
    Sgd,
    /// Adam, one tensor at a time
    Adam,
    /// Fused AdamW
    Adamw,
    /// Gradients only
    None,
}

impl From<OptimizerArg> for OptimizerChoice {
    fn from(arg: OptimizerArg) -> Self {
        match arg {
            OptimizerArg::Sgd => Self::Sgd,
            OptimizerArg::Adam => Self::Adam,
            OptimizerArg::Adamw => Self::Adamw,
            OptimizerArg::None => Self::None,
        }
    }
}

/// Model to graph, graph to operators, operators to time, time to a report.
pub fn run(args: &PredictArgs, output: &Output) -> anyhow::Result<()> {
    let gpu = input::gpu(&args.gpu)?;
    let graph = input::model(&args.model, args.batch, args.seq)?;
    let options = LowerOptions {
        mode: args.mode.into(),
        precision: args.precision.into(),
        optimizer: args.optimizer.map(OptimizerChoice::from),
    };
    let iteration = lower(&graph, &options)?;
    let prediction = TimeModel::embedded().predict_iteration(&iteration, &gpu);
    let question = Question {
        model: graph.name.clone(),
        gpu: gpu.name.clone(),
        batch: graph.samples,
        seq: graph.seq,
        precision: options.precision.name(),
        mode: options.mode.name(),
    };
    let report = Report::new(&question, &gpu, &iteration, &prediction);
    if output.json {
        return output::print_json(&report);
    }
    let mut out = output::stdout();
    report.write(&mut out, output)?;
    Ok(out.flush()?)
}
