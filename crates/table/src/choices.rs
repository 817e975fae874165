//! Columns that take one of a few names.

use crate::columns::Columns;
use preflop_cluster::model::Stack;
use preflop_cluster::strategy::{Fsdp, Offload, Recompute, Schedule};
use preflop_core::model::{CacheKind, Mode, OptimizerChoice, Precision, Run, Stage};
use preflop_core::names::did_you_mean;

/// What an iteration is, as the column `mode` says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Step {
    /// Forward, backward, optimizer.
    Train,
    /// Forward.
    Infer,
    /// A prompt is read.
    Prefill,
    /// One token more.
    Decode,
}

/// Tokens before the new one unless said, as on the command line.
const DEFAULT_CONTEXT: u64 = 1024;

impl Step {
    /// How it is lowered.
    pub fn mode(self) -> Mode {
        if self == Self::Train { Mode::Train } else { Mode::Infer }
    }

    /// Number formats on one GPU unless said.
    pub fn precision(self) -> Precision {
        match self {
            Self::Train | Self::Infer => Precision::default(),
            Self::Prefill | Self::Decode => Precision::Bf16,
        }
    }

    /// What is computed of the model; `context` and `cache` mean something for one token alone, which has no `seq`.
    pub fn stage(
        self,
        seq: Option<u64>,
        context: Option<u64>,
        cache: Option<CacheKind>,
    ) -> Result<Stage, String> {
        if self != Self::Decode {
            return match (context, cache) {
                (None, None) if self == Self::Prefill => Ok(Stage::Prefill),
                (None, None) => Ok(Stage::Full),
                _ => {
                    Err("`context` and `cache` are for `mode` decode; `seq` says how long a prompt is".into())
                }
            };
        }
        if seq.is_some() {
            return Err("`mode` decode computes one token of each sequence, so it takes no `seq`; `context` says how many are before it".into());
        }
        Ok(Stage::Decode { context: context.unwrap_or(DEFAULT_CONTEXT), cache: cache.unwrap_or_default() })
    }
}

pub(crate) const STEPS: [(&str, Step); 4] =
    [("train", Step::Train), ("infer", Step::Infer), ("prefill", Step::Prefill), ("decode", Step::Decode)];
pub(crate) const CACHES: [(&str, CacheKind); 2] =
    [("static", CacheKind::Static), ("growing", CacheKind::Growing)];
pub(crate) const RUNS: [(&str, Run); 4] = [
    ("eager", Run::Eager),
    ("graph", Run::Graph),
    ("compile", Run::Compile),
    ("compile-graph", Run::CompileGraph),
];
pub(crate) const LAYOUTS: [(&str, bool); 2] = [("nchw", false), ("channels-last", true)];
pub(crate) const ALGORITHMS: [(&str, bool); 2] = [("heuristic", false), ("autotuned", true)];
pub(crate) const ATTENTIONS: [(&str, bool); 2] = [("fused", false), ("eager", true)];
pub(crate) const RECOMPUTES: [(&str, Recompute); 3] =
    [("none", Recompute::None), ("selective", Recompute::Selective), ("full", Recompute::Full)];
pub(crate) const FSDPS: [(&str, Fsdp); 3] =
    [("full", Fsdp::Full), ("grad-op", Fsdp::GradOp), ("hybrid", Fsdp::Hybrid)];
pub(crate) const SCHEDULES: [(&str, Schedule); 3] =
    [("1f1b", Schedule::OneFOneB), ("gpipe", Schedule::Gpipe), ("zero-bubble", Schedule::ZeroBubble)];
pub(crate) const OFFLOADS: [(&str, Offload); 3] =
    [("none", Offload::None), ("optimizer", Offload::Optimizer), ("activations", Offload::Activations)];
pub(crate) const STACKS: [(&str, Stack); 4] = [
    ("eager", Stack::Eager),
    ("compiled", Stack::Compiled),
    ("megatron", Stack::Megatron),
    ("te", Stack::Te),
];

/// The values that a column may have, where it has only some.
pub fn choices(column: &str) -> Option<Vec<&'static str>> {
    fn names<T>(known: &[(&'static str, T)]) -> Vec<&'static str> {
        known.iter().map(|(name, _)| *name).collect()
    }
    Some(match column {
        "precision" => Precision::ALL.map(Precision::name).to_vec(),
        "mode" => names(&STEPS),
        "cache" => names(&CACHES),
        "optimizer" => names(&OptimizerChoice::SPELLINGS),
        "run" => names(&RUNS),
        "layout" => names(&LAYOUTS),
        "algorithms" => names(&ALGORITHMS),
        "attention" => names(&ATTENTIONS),
        "recompute" => names(&RECOMPUTES),
        "fsdp" => names(&FSDPS),
        "schedule" => names(&SCHEDULES),
        "offload" => names(&OFFLOADS),
        "stack" => names(&STACKS),
        _ => return None,
    })
}

/// Is this one of the values that the column may have?
pub(crate) fn check_choice(column: &str, value: &str) -> Result<(), String> {
    let Some(known) = choices(column) else { return Ok(()) };
    if known.contains(&value) {
        return Ok(());
    }
    let hint = did_you_mean(value, known.iter().copied());
    Err(format!("`{column}` is `{value}`{hint} (it may be {})", known.join(", ")))
}

/// What the cell of a row names.
pub(crate) fn pick<T: Copy>(
    columns: &Columns,
    name: &str,
    row: usize,
    known: &[(&str, T)],
) -> Result<Option<T>, String> {
    let Some(text) = columns.get(name).map_or(Ok(None), |c| c.text(row))? else { return Ok(None) };
    if let Some((_, value)) = known.iter().find(|(n, _)| *n == text) {
        return Ok(Some(*value));
    }
    check_choice(name, text).map(|()| None)
}
