//! How a model is run: the options that every command about a model shares.

use crate::error::InputError;
use crate::input;
use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, StringValueParser, TypedValueParser};
use preflop_core::Gpu;
use preflop_core::cost::search;
use preflop_core::model::{
    CacheKind, Checkpoint, Form, Graph, Iteration, LowerOptions, Mode, OptimizerChoice, Precision, Rule, Run,
    Stage,
};
use preflop_import::exported::Bindings;
use std::ffi::OsStr;

/// Tokens before the new one unless said.
const DEFAULT_CONTEXT: u64 = 1024;

/// Sizes, formats, mode and optimizer of one iteration.
#[derive(Debug, Clone, Args)]
pub struct RunArgs {
    /// Samples of one iteration [default: as the model has it]
    #[arg(long, value_name = "N", value_parser = input::batch, allow_hyphen_values = true)]
    pub batch: Option<u64>,

    /// Tokens of one sample, for language models [default: as the model has it]
    #[arg(long, value_name = "N", value_parser = input::seq, allow_hyphen_values = true)]
    pub seq: Option<u64>,

    /// Size of an open dimension of an .onnx or .pt2 file; may be given several times
    #[arg(long = "dim", value_name = "NAME=N", value_parser = input::dim)]
    pub dims: Vec<(String, u64)>,

    /// Number formats; `pytorch` is what PyTorch does unless told otherwise, TF32 in convolutions and fp32 products; `fp32` is without
    /// TF32; `amp` is autocast over fp32 weights [default: pytorch; bf16 for language models on a cluster, for prefill and for decode]
    #[arg(long, value_name = "FORMAT", value_parser = precision())]
    pub precision: Option<Precision>,

    /// Training (forward, backward, optimizer step), inference, or a step of a language model that generates text
    #[arg(long, value_name = "MODE", default_value = "train", value_parser = step())]
    pub mode: ModeChoice,

    /// With `--mode decode`: tokens of each sequence before the new one
    #[arg(long, value_name = "N", value_parser = input::tokens, allow_hyphen_values = true)]
    pub context: Option<u64>,

    /// With `--mode decode`: keys and values in a tensor of fixed length, or concatenated at every step
    #[arg(long, value_name = "KIND", value_parser = cache_kind())]
    pub cache: Option<CacheKind>,

    /// Optimizer of a training step and its implementation [default: as the model is usually trained, foreach]
    #[arg(long, value_name = "NAME[:HOW]", value_parser = optimizer())]
    pub optimizer: Option<OptimizerChoice>,

    /// Train low-rank adapters of this rank beside the projections of a language model, and freeze the model
    #[arg(long, value_name = "RANK", value_parser = input::rank, allow_hyphen_values = true)]
    pub lora: Option<u64>,

    /// As `--lora`, with the model's own projections kept in 4 bits (NF4, scales quantised twice) and widened before each product
    #[arg(long, value_name = "RANK", value_parser = input::rank, allow_hyphen_values = true, conflicts_with = "lora")]
    pub qlora: Option<u64>,

    #[command(flatten)]
    pub form: FormArgs,

    /// Attention as one fused kernel, or as plain products with the scores in memory
    #[arg(long, value_name = "HOW", default_value = "fused", value_parser = attention())]
    pub attention: AttentionChoice,
}

/// In which form a model is run.
#[derive(Debug, Clone, Copy, Args)]
pub struct FormArgs {
    /// How it is launched: operator by operator, as a CUDA graph, through torch.compile, or both [default: eager, or as recorded]
    #[arg(long = "run", value_name = "HOW", value_parser = launching())]
    pub launching: Option<Run>,

    /// How feature maps lie in memory
    #[arg(long, value_name = "LAYOUT", default_value = "nchw", value_parser = layout())]
    pub layout: Layout,

    /// Activation checkpointing: `full` computes each block again in backward, `every=K` keeps the input of every K blocks
    #[arg(long, value_name = "none|full|every=K", default_value = "none")]
    pub checkpoint: Checkpoint,

    /// Algorithms of convolutions: the library's heuristic, or found by trial (cudnn.benchmark)
    #[arg(long, value_name = "HOW", default_value = "heuristic", value_parser = algorithms())]
    pub algorithms: Algorithms,
}

impl FormArgs {
    /// As the core takes it.
    pub fn form(&self) -> Form {
        Form {
            run: self.launching,
            channels_last: self.layout == Layout::ChannelsLast,
            checkpoint: self.checkpoint,
            autotuned: self.algorithms == Algorithms::Autotuned,
        }
    }
}

/// Who chooses algorithms of convolutions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithms {
    /// The library, by its rules.
    Heuristic,
    /// A trial of each.
    Autotuned,
}

/// What an iteration is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModeChoice {
    /// Forward, backward, optimizer.
    Train,
    /// Forward.
    Infer,
    /// A prompt is read.
    Prefill,
    /// One token more.
    Decode,
}

impl ModeChoice {
    /// The name used on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Train => "train",
            Self::Infer => "infer",
            Self::Prefill => "prefill",
            Self::Decode => "decode",
        }
    }

    /// How it is lowered.
    pub fn mode(self) -> Mode {
        if self == Self::Train { Mode::Train } else { Mode::Infer }
    }

    /// Is it a step of generation?
    pub fn generates(self) -> bool {
        matches!(self, Self::Prefill | Self::Decode)
    }
}

/// How feature maps lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// Channel by channel, PyTorch's default.
    Nchw,
    /// Channels innermost.
    ChannelsLast,
}

/// How attention is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttentionChoice {
    /// `scaled_dot_product_attention`.
    Fused,
    /// Products, mask and softmax one by one.
    Eager,
}

/// What runs a model or an operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StackChoice {
    /// The framework's eager code.
    PyTorch,
    /// An inference server.
    Served,
}

/// Reads `--stack`.
pub fn stack() -> impl TypedValueParser<Value = StackChoice> {
    choice(vec![
        (PossibleValue::new("pytorch"), StackChoice::PyTorch),
        (PossibleValue::new("served"), StackChoice::Served),
    ])
}

/// A parser of one of these names, which help and completions list.
pub fn choice<T: Copy + Send + Sync + 'static>(
    known: Vec<(PossibleValue, T)>,
) -> impl TypedValueParser<Value = T> {
    let names = PossibleValuesParser::new(known.iter().map(|(name, _)| name.clone()));
    names.try_map(move |text: String| {
        let found = known.iter().find(|(name, _)| name.matches(&text, false)).map(|(_, value)| *value);
        found.ok_or_else(|| format!("`{text}` is not known"))
    })
}

/// For `--precision`.
pub fn precision() -> impl TypedValueParser<Value = Precision> {
    let said = |p: Precision| {
        let name = PossibleValue::new(p.name());
        if p == Precision::Pytorch { name.alias("default").alias("torch") } else { name }
    };
    choice(Precision::ALL.map(|p| (said(p), p)).to_vec())
}

/// For `--mode`.
pub fn mode() -> impl TypedValueParser<Value = Mode> {
    choice([Mode::Train, Mode::Infer].map(|m| (PossibleValue::new(m.name()), m)).to_vec())
}

/// For `--mode` where steps of generation are modes too.
fn step() -> impl TypedValueParser<Value = ModeChoice> {
    use ModeChoice::{Decode, Infer, Prefill, Train};
    choice(vec![
        (PossibleValue::new("train"), Train),
        (PossibleValue::new("infer"), Infer),
        (PossibleValue::new("prefill").help("Read a prompt of --seq tokens, keep keys and values"), Prefill),
        (PossibleValue::new("decode").help("Write one token after --context tokens"), Decode),
    ])
}

/// For `--cache`.
pub fn cache_kind() -> impl TypedValueParser<Value = CacheKind> {
    choice([CacheKind::Static, CacheKind::Growing].map(|c| (PossibleValue::new(c.name()), c)).to_vec())
}

/// For `--optimizer`. Help and completions list the rules; each takes an implementation behind a colon.
pub fn optimizer() -> impl TypedValueParser<Value = OptimizerChoice> {
    OptimizerParser
}

/// Refuses a wrong name with the rules and their implementations, which a list of names would hide.
#[derive(Debug, Clone, Copy)]
struct OptimizerParser;

impl TypedValueParser for OptimizerParser {
    type Value = OptimizerChoice;

    fn parse_ref(
        &self,
        command: &clap::Command,
        arg: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<Self::Value, clap::Error> {
        let parser = StringValueParser::new().try_map(|text| text.parse::<OptimizerChoice>());
        parser.parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let said = |(name, of): (&'static str, OptimizerChoice)| {
            let help = match of.rule {
                Rule::Sgd => "SGD with momentum; also sgd:single, sgd:fused",
                Rule::Adam => "Adam; also adam:single, adam:fused, adam:8bit, adam:paged, adam:paged-8bit",
                Rule::Adamw => {
                    "Adam with decoupled weight decay; also adamw:single, adamw:fused, adamw:8bit, adamw:paged, adamw:paged-8bit"
                }
                Rule::None => "Gradients only",
            };
            PossibleValue::new(name).help(help).hide(name.contains(':'))
        };
        Some(Box::new(OptimizerChoice::SPELLINGS.into_iter().map(said)))
    }
}

/// For `--run`.
pub fn launching() -> impl TypedValueParser<Value = Run> {
    choice(Run::ALL.map(|r| (PossibleValue::new(r.name()), r)).to_vec())
}

/// For `--layout`.
fn layout() -> impl TypedValueParser<Value = Layout> {
    choice(vec![
        (PossibleValue::new("nchw").help("PyTorch's default"), Layout::Nchw),
        (
            PossibleValue::new("channels-last").help("model.to(memory_format=torch.channels_last)"),
            Layout::ChannelsLast,
        ),
    ])
}

/// For `--algorithms`.
fn algorithms() -> impl TypedValueParser<Value = Algorithms> {
    choice(vec![
        (PossibleValue::new("heuristic").help("PyTorch's default"), Algorithms::Heuristic),
        (
            PossibleValue::new("autotuned").help("torch.backends.cudnn.benchmark = True"),
            Algorithms::Autotuned,
        ),
    ])
}

/// For `--attention`.
fn attention() -> impl TypedValueParser<Value = AttentionChoice> {
    choice(vec![
        (PossibleValue::new("fused").help("PyTorch's scaled_dot_product_attention"), AttentionChoice::Fused),
        (
            PossibleValue::new("eager").help("attn_implementation=\"eager\" of Hugging Face"),
            AttentionChoice::Eager,
        ),
    ])
}

/// A model made ready: its graph and the operators of an iteration.
#[derive(Debug)]
pub struct Job {
    /// The model.
    pub graph: Graph,
    /// What one iteration runs.
    pub iteration: Iteration,
    /// How: a recorded iteration has its own mode and formats.
    pub options: LowerOptions,
    /// In which form.
    pub form: Form,
    /// How it is launched.
    pub run: Run,
    /// What a reader of the result should know.
    pub notes: Vec<String>,
}

impl Job {
    /// Refuses a GPU that lacks the formats that were asked for; a recorded iteration has those of where it was recorded.
    pub fn check_on(&self, gpu: &Gpu) -> anyhow::Result<()> {
        match search::lacks(gpu, self.options.precision).filter(|_| self.graph.fixed.is_none()) {
            Some(lacks) => Err(InputError::new(lacks).into()),
            None => Ok(()),
        }
    }
}

impl RunArgs {
    /// Number formats on one GPU.
    pub fn precision(&self) -> Precision {
        self.precision.unwrap_or(if self.mode.generates() { Precision::Bf16 } else { Precision::default() })
    }

    /// What is computed of a language model.
    pub fn stage(&self) -> anyhow::Result<Stage> {
        if self.mode != ModeChoice::Decode {
            if self.context.is_some() || self.cache.is_some() {
                let message = "`--context` and `--cache` are for `--mode decode`";
                return Err(InputError::new(message).hint("`--seq` says how long a prompt is").into());
            }
            return Ok(if self.mode == ModeChoice::Prefill { Stage::Prefill } else { Stage::Full });
        }
        if self.seq.is_some() {
            let message = "`--mode decode` computes one token of each sequence, so it takes no `--seq`";
            return Err(InputError::new(message).hint("`--context` says how many are before it").into());
        }
        Ok(Stage::Decode {
            context: self.context.unwrap_or(DEFAULT_CONTEXT),
            cache: self.cache.unwrap_or_default(),
        })
    }

    /// Are layout, attention, checkpoints, algorithms and open dimensions left as they are?
    pub fn is_plain(&self) -> bool {
        let form = Form { run: None, ..self.form.form() };
        form.is_plain() && self.attention == AttentionChoice::Fused && self.dims.is_empty()
    }

    /// How the model is lowered.
    pub fn options(&self) -> LowerOptions {
        LowerOptions { mode: self.mode.mode(), precision: self.precision(), optimizer: self.optimizer }
    }

    /// The network, with another batch or sequence length where a sweep says so; layout and checkpoints are no part of it.
    pub fn network(&self, model: &str, batch: Option<u64>, seq: Option<u64>) -> anyhow::Result<Graph> {
        let dims = self.dims.iter().cloned().collect();
        let (batch, seq) = (batch.or(self.batch), seq.or(self.seq));
        let mut graph = input::staged_model(model, &Bindings { dims, batch, seq }, self.stage()?)?;
        if let Some(rank) = self.lora.or(self.qlora) {
            if self.mode != ModeChoice::Train {
                let option = if self.lora.is_some() { "--lora" } else { "--qlora" };
                return Err(InputError::new(format!(
                    "`{option}` trains adapters, so it is for `--mode train`"
                ))
                .hint("merged adapters cost nothing in inference")
                .into());
            }
            let packed = self.qlora.is_some();
            graph = if packed { graph.with_packed_adapters(rank) } else { graph.with_adapters(rank) }?;
        }
        Ok(if self.attention == AttentionChoice::Eager { graph.with_eager_attention() } else { graph })
    }

    /// The model, with another batch or sequence length where a sweep says so.
    pub fn job(&self, model: &str, batch: Option<u64>, seq: Option<u64>) -> anyhow::Result<Job> {
        let mut graph = self.network(model, batch, seq)?;
        let options = graph.settled(self.options());
        let form = self.form.form();
        form.shape(&mut graph, options.mode)?;
        let run = form.run(&graph)?;
        let iteration = form.lower(&graph, &options)?;
        let mut notes = form.notes(&graph, &iteration);
        if self.qlora.is_some() {
            notes.push("no step with weights in 4 bits was measured: what widening them takes follows from its bytes".into());
        }
        let optimizer = options.optimizer.filter(|_| options.mode == Mode::Train);
        notes.extend(optimizer.and_then(|o| o.implementation.note()).map(Into::into));
        Ok(Job { graph, iteration, options, form: Form { run: Some(run), ..form }, run, notes })
    }
}
