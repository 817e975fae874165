//! Which options make a run faster: each alone and in good combinations, predicted and ranked.
//!
//! An option is a change that the caller can make to the run (how it is launched, layout, number formats, optimizer, attention, algorithms,
//! checkpoints, accumulation, batch); for what was recorded the launch and the algorithms can change. Every line says what to write, and at what price.

mod beside;
mod trials;

pub use beside::Cheaper;
use beside::{cheaper, on_host};
use preflop_gpu::Gpu;
use preflop_graph::graph::GraphOp;
use preflop_graph::{
    Checkpoint, Graph, Implementation, LowerOptions, Mode, OptimizerChoice, Precision, Rule, Run, zoo,
};
use preflop_lower::Form;
use preflop_time::TimeModel;
use preflop_units::dtype::Dtype;
use serde::Serialize;
use trials::Trials;
pub use trials::{Asked, helps};

/// One way to run, with what it brings.
#[derive(Debug, Clone, PartialEq, Serialize, utoipa::ToSchema)]
pub struct Advice {
    /// The options, as on the command line.
    pub options: Vec<String>,
    /// Predicted iteration.
    pub iteration_ms: f64,
    /// 90 % interval of it.
    pub low_ms: f64,
    /// 90 % interval of it.
    pub high_ms: f64,
    /// Share of the time per sample that is saved.
    pub gain: f64,
    /// The gain at the upper end of the iteration's interval.
    pub gain_low: f64,
    /// The gain at the lower end of it.
    pub gain_high: f64,
    /// Peak memory.
    pub memory_mib: f64,
    /// Does it fit?
    pub fits: bool,
    /// What to write.
    pub how: Vec<&'static str>,
    /// What each of them costs; empty if nothing.
    pub cost: Vec<&'static str>,
}

/// The answer of `advise`.
#[derive(Debug, Clone, PartialEq, Serialize, utoipa::ToSchema)]
pub struct Ranking {
    /// The run as asked for.
    pub base_ms: f64,
    /// Options of it that are on already.
    pub already: Vec<String>,
    /// Ways to run, the fastest first.
    pub options: Vec<Advice>,
    /// The cheapest GPU that is as fast, where one costs less by the hour.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub cheaper: Option<Cheaper>,
    /// What a reader should know.
    pub notes: Vec<String>,
}

/// A run with some options changed.
#[derive(Debug, Clone)]
struct Trial {
    form: Form,
    precision: Precision,
    optimizer: Option<OptimizerChoice>,
    batch: Option<u64>,
    fused_attention: bool,
    accumulates: bool,
    said: Vec<String>,
    how: Vec<&'static str>,
    cost: Vec<&'static str>,
}

impl Trial {
    /// The run as it is asked for.
    fn base(graph: &Graph, options: LowerOptions, form: Form) -> Self {
        let form = form.over(graph);
        let run = form.run(graph).unwrap_or_default();
        Self {
            form: Form { run: Some(run), ..form },
            precision: options.precision,
            optimizer: options.optimizer,
            batch: None,
            fused_attention: false,
            accumulates: false,
            said: Vec::new(),
            how: Vec::new(),
            cost: Vec::new(),
        }
    }

    fn with(&self, said: &str, how: &'static str, cost: &'static str, change: impl Fn(&mut Self)) -> Self {
        let mut new = self.clone();
        change(&mut new);
        new.said.push(said.to_owned());
        new.how.push(how);
        new.cost.push(cost);
        new
    }
}

/// A single change: what it is called and how it is made.
type Step<'a> = (&'a str, &'static str, &'static str, Box<dyn Fn(&mut Trial)>);

const GRAPH_HOW: &str =
    "torch.cuda.make_graphed_callables(model, inputs), or capture the step with torch.cuda.graph";
const COMPILE_HOW: &str = "model = torch.compile(model)";
const BOTH_HOW: &str = "model = torch.compile(model, mode=\"reduce-overhead\")";

fn launches(base: Run) -> Vec<Step<'static>> {
    let all: [(Run, &'static str, &'static str); 3] = [
        (Run::Graph, GRAPH_HOW, "fixed shapes and addresses; no work on the host between kernels"),
        (Run::Compile, COMPILE_HOW, "the first step compiles for a minute"),
        (Run::CompileGraph, BOTH_HOW, "the first step compiles for a minute; fixed shapes and addresses"),
    ];
    let better = move |run: Run| {
        run != base && (run.compiles() || !base.compiles()) && (run.replays() || !base.replays())
    };
    let chosen = all.into_iter().filter(move |(run, ..)| better(*run));
    chosen
        .map(|(run, how, cost)| {
            let said = match run {
                Run::Graph => "--run graph",
                Run::Compile => "--run compile",
                _ => "--run compile-graph",
            };
            let change: Box<dyn Fn(&mut Trial)> = Box::new(move |t| t.form.run = Some(run));
            (said, how, cost, change)
        })
        .collect()
}

fn formats(base: Precision, gpu: &Gpu) -> Vec<Step<'static>> {
    let mut out: Vec<Step<'static>> = Vec::new();
    let bf16 = gpu.has_tensor(Dtype::Bf16);
    if matches!(base, Precision::Pytorch | Precision::Fp32) && gpu.has_tensor(Dtype::Tf32) {
        out.push((
            "--precision tf32",
            "torch.set_float32_matmul_precision(\"high\")",
            "products keep 10 bits of the fraction",
            Box::new(|t| t.precision = Precision::Tf32),
        ));
    }
    if base.is_full() && bf16 {
        out.push((
            "--precision amp",
            "with torch.autocast(\"cuda\", torch.bfloat16): ..",
            "bf16 products and activations",
            Box::new(|t| t.precision = Precision::Amp),
        ));
    }
    if (base.is_full() || base == Precision::Amp) && bf16 {
        out.push((
            "--precision bf16",
            "model.bfloat16()",
            "16-bit weights: check convergence",
            Box::new(|t| t.precision = Precision::Bf16),
        ));
    }
    out
}

/// The optimizer's step in one kernel for each list of tensors.
fn fused(now: OptimizerChoice) -> Vec<Step<'static>> {
    let (said, how) = match now.rule {
        _ if now.implementation == Implementation::Fused => return Vec::new(),
        Rule::Sgd => ("--optimizer sgd:fused", "torch.optim.SGD(.., fused=True)"),
        Rule::Adam => ("--optimizer adam:fused", "torch.optim.Adam(.., fused=True)"),
        Rule::Adamw => ("--optimizer adamw:fused", "torch.optim.AdamW(.., fused=True)"),
        Rule::None => return Vec::new(),
    };
    let change: Box<dyn Fn(&mut Trial)> =
        Box::new(move |t| t.optimizer = Some(now.by(Implementation::Fused)));
    vec![(said, how, "", change)]
}

/// Is a node attention as plain products?
fn plain_attention(op: &GraphOp) -> bool {
    matches!(op, GraphOp::Attention { eager: true, .. })
}

/// Options of a graph that was not recorded, beside formats and launches.
fn of_graph(graph: &Graph, options: LowerOptions, form: &Form) -> Vec<Vec<Step<'static>>> {
    let mut groups: Vec<Vec<Step<'static>>> = Vec::new();
    let convolves = graph.nodes.iter().any(|n| matches!(n.op, GraphOp::Conv { .. }));
    if convolves && !form.channels_last && !form.run.is_some_and(Run::compiles) {
        groups.push(vec![(
            "--layout channels-last",
            "model = model.to(memory_format=torch.channels_last), and the images too",
            "",
            Box::new(|t| t.form.channels_last = true),
        )]);
    }
    if graph.nodes.iter().any(|n| plain_attention(&n.op)) {
        groups.push(vec![(
            "--attention fused",
            "torch.nn.functional.scaled_dot_product_attention (attn_implementation=\"sdpa\")",
            "no attention weights to look at",
            Box::new(|t| t.fused_attention = true),
        )]);
    }
    if options.mode == Mode::Train {
        groups.push(fused(options.optimizer.unwrap_or(graph.optimizer)));
        let again = Form { checkpoint: Checkpoint::Full, ..*form };
        if form.checkpoint.is_none() && again.can_shape(graph, options.mode) {
            groups.push(vec![(
                "--checkpoint full",
                "torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False) around each block",
                "each block is computed twice",
                Box::new(|t| t.form.checkpoint = Checkpoint::Full),
            )]);
        }
        groups.push(vec![(
            "accumulate x2",
            "optimizer.step() and zero_grad() after every second backward()",
            "twice the samples in a step: other learning rate",
            Box::new(|t| t.accumulates = true),
        )]);
    }
    let twice = graph.samples.saturating_mul(2);
    if zoo::info(&graph.name).is_ok() {
        groups.push(vec![(
            "--batch x2",
            "twice the batch",
            "other learning rate; more memory",
            Box::new(move |t: &mut Trial| t.batch = Some(twice)),
        )]);
    }
    groups
}

/// Tries the options that apply, alone and together, and ranks them; looks for a cheaper GPU too.
pub fn rank(
    model: &TimeModel,
    graph: &Graph,
    options: LowerOptions,
    form: impl Into<Form>,
    gpu: &Gpu,
) -> Ranking {
    let form = form.into();
    let mut ranking = rank_together(model, graph, options, form, gpu, MOST_TOGETHER);
    if let Ok(iteration) = form.lower(graph, &options) {
        ranking.cheaper = cheaper(model, &iteration, gpu, options.precision);
    }
    ranking
}

/// As [`rank`], with at most so many options together: one takes a tenth of the time that three take.
pub fn rank_together(
    model: &TimeModel,
    graph: &Graph,
    options: LowerOptions,
    form: impl Into<Form>,
    gpu: &Gpu,
    most_together: usize,
) -> Ranking {
    let recorded = graph.fixed.is_some();
    let base = Trial::base(graph, options, form.into());
    let (form, run) = (base.form, base.form.run.unwrap_or_default());
    let groups = groups(graph, options, &base, gpu);
    // Each alone, then each choice of one group with each of another, then all groups together.
    let mut trials: Vec<Trial> = Vec::new();
    let mut level = vec![(base.clone(), 0_usize)];
    for _ in 0..most_together {
        let mut next = Vec::new();
        for (trial, from) in &level {
            for (i, group) in groups.iter().enumerate().skip(*from) {
                for (said, how, cost, change) in group {
                    next.push((trial.with(said, how, cost, change), i + 1));
                }
            }
        }
        // A compiler lays feature maps channels-last by itself.
        let compiled = |t: &Trial| t.form.run.is_some_and(Run::compiles);
        next.retain(|(t, _)| !(compiled(t) && t.form.channels_last && !base.form.channels_last));
        trials.extend(next.iter().map(|(t, _)| t.clone()));
        level = next;
    }
    let mut tests = Trials::new(model, graph, options, gpu);
    let Some(now) = tests.predict(&base) else {
        return Ranking {
            base_ms: 0.0,
            already: Vec::new(),
            options: Vec::new(),
            cheaper: None,
            notes: Vec::new(),
        };
    };
    if !form.autotuned && now.convolves {
        trials.push(autotuned(&base));
    }
    let mut found: Vec<Advice> =
        trials.iter().filter_map(|t| Some(tests.predict(t)?.advice(t, &now))).collect();
    found.sort_by(|a, b| b.fits.cmp(&a.fits).then(b.gain.total_cmp(&a.gain)));
    let mut already = Vec::new();
    if run != Run::Eager {
        already.push(format!("--run {}", run.name()));
    }
    if form.channels_last {
        already.push("--layout channels-last".to_owned());
    }
    if !matches!(options.precision, Precision::Pytorch | Precision::Fp32) {
        already.push(format!("--precision {}", options.precision.name()));
    }
    if !form.checkpoint.is_none() {
        already.push(format!("--checkpoint {}", form.checkpoint));
    }
    if form.autotuned {
        already.push("--algorithms autotuned".to_owned());
    }
    let mut notes = graph.fixed.as_ref().map_or_else(Vec::new, |f| f.notes.clone());
    notes.extend(on_host(graph, now.time));
    if !run.compiles() {
        notes.push(RULE.to_owned());
    }
    if recorded {
        notes.push("a recorded iteration keeps its formats, layout, optimizer and batch: record the others to compare them".to_owned());
    }
    Ranking { base_ms: now.time.ms(), already, options: found, cheaper: None, notes }
}

/// Options tried together at most.
const MOST_TOGETHER: usize = 3;
/// What is said about compiled forms that no compiler listed.
const RULE: &str = "compiled forms follow a rule of fusion; `preflop.capture` of the compiled step lists the compiler's own kernels";

/// The option that finds algorithms by trial.
fn autotuned(base: &Trial) -> Trial {
    base.with(
        "--algorithms autotuned",
        "torch.backends.cudnn.benchmark = True",
        "the first step of every shape tries all algorithms",
        |t| t.form.autotuned = true,
    )
}

/// The options that apply, in groups of which one can be chosen.
fn groups(graph: &Graph, options: LowerOptions, base: &Trial, gpu: &Gpu) -> Vec<Vec<Step<'static>>> {
    let mut groups = vec![launches(base.form.run.unwrap_or_default())];
    if graph.fixed.is_none() {
        groups.push(formats(options.precision, gpu));
        groups.extend(of_graph(graph, options, &base.form));
    }
    groups
}
