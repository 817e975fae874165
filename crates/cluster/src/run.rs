//! A run on several GPUs as its user says it: whether its model is cut by its roles or run whole by every GPU, and what that takes.
//!
//! One decision for the command line, tables, and the list of what would make a run fit: the same words must mean the same run
//! everywhere, and a word that no plan has is refused rather than dropped.

use crate::asked::AskedStrategy;
use crate::collective::Collectives;
use crate::data_parallel::{self, DataParallel, Sharding};
use crate::iteration::{Outcome, Setting, ShardCosts};
use crate::model::{Attention, Stack, Transformer};
use crate::rank::CoreTimes;
use crate::strategy::{Recompute, Strategy};
use crate::{Cluster, ClusterError};
use preflop_core::Dtype;
use preflop_core::cost::{Reserve, fit};
use preflop_core::model::{
    Checkpoint, Form, Implementation, Iteration, LowerOptions, OptimizerChoice, Rule, Run,
};
use preflop_core::schedule::Schedule as _;
use preflop_core::units::Bytes;

/// What the user says of one GPU's part of a run.
#[derive(Debug, Clone, Copy)]
pub struct Part {
    /// Samples of one iteration, where they are said.
    pub batch: Option<u64>,
    /// Formats and optimizer.
    pub options: LowerOptions,
    /// Launches, layout, checkpoints, algorithms, as far as they are said.
    pub form: Form,
    /// Are adapters trained beside a frozen model?
    pub adapters: bool,
    /// Is it a recorded step?
    pub recorded: bool,
}

/// How a model is run on several GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Cut by its roles.
    Cut(Strategy),
    /// Every GPU runs all of it on samples of its own.
    Copied(Strategy),
}

/// Are these the optimizer states and the step of a plan: Adam's, in 32 bits on the GPU?
fn is_adam(optimizer: OptimizerChoice) -> bool {
    let adam = matches!(optimizer.rule, Rule::Adam | Rule::Adamw);
    adam && matches!(optimizer.implementation, Implementation::Foreach | Implementation::Fused)
}

fn refused<T>(problem: String) -> Result<T, ClusterError> {
    Err(ClusterError::Plan(problem))
}

impl Part {
    /// The same in the words of a plan, or the first option that no plan has a word for.
    fn in_a_plan(&self) -> Result<AskedStrategy, &'static str> {
        let stack = match self.form.run {
            None => None,
            Some(Run::Eager) => Some(Stack::Eager),
            Some(Run::Compile) => Some(Stack::Compiled),
            Some(Run::Graph | Run::CompileGraph) => return Err("--run"),
        };
        let recompute = match self.form.checkpoint {
            Checkpoint::None => None,
            Checkpoint::Full => Some(Recompute::Full),
            Checkpoint::Every(_) => return Err("--checkpoint"),
        };
        let beyond = [
            ("--optimizer", self.options.optimizer.is_some_and(|o| !is_adam(o))),
            ("--lora", self.adapters),
            ("--layout", self.form.channels_last),
            ("--algorithms", self.form.autotuned),
        ];
        match beyond.iter().find(|(_, given)| *given) {
            Some((option, _)) => Err(option),
            None => Ok(AskedStrategy { batch: self.batch, recompute, stack, ..AskedStrategy::default() }),
        }
    }
}

impl AskedStrategy {
    /// The way this run goes, or why it cannot.
    pub fn way(
        &self,
        part: &Part,
        transformer: &Result<Transformer, ClusterError>,
        cluster: &Cluster,
        attention: Attention,
    ) -> Result<Way, ClusterError> {
        let said = part.in_a_plan();
        let words = said.unwrap_or_default();
        for (one, other, both) in [
            ("--batch", "--global-batch", part.batch.is_some() && self.global_batch.is_some()),
            ("--checkpoint", "--recompute", words.recompute.is_some() && self.recompute.is_some()),
            ("--run", "--stack", words.stack.is_some() && self.stack.is_some()),
        ] {
            if both {
                return refused(format!("`{one}` and `{other}` say the same of a plan: give one of them"));
            }
        }
        let strategy = Self {
            batch: words.batch,
            recompute: self.recompute.or(words.recompute),
            stack: self.stack.or(words.stack),
            ..*self
        }
        .strategy(cluster, attention);
        let s = &strategy;
        let cuts = [s.tp, s.cp, s.pp, s.ep, s.interleave].iter().any(|n| *n > 1);
        match (transformer, said) {
            (Ok(_), Ok(_)) if cuts || !part.recorded => Ok(Way::Cut(strategy)),
            (Ok(_), Err(option)) if cuts => refused(format!(
                "`{option}` is known where every GPU runs the whole model: leave it out, or cut by `--dp`, `--zero` or `--fsdp` alone"
            )),
            (Err(error), _) if cuts => Err(error.clone()),
            _ => {
                strategy.check_count(cluster)?;
                let why = match (transformer, said) {
                    (Err(error), _) => error.to_string(),
                    (Ok(_), Err(option)) => format!("with `{option}` every GPU runs all of it"),
                    (Ok(_), Ok(_)) => "a recorded step keeps what it ran".to_owned(),
                };
                match self.of_roles() {
                    Some(word) => refused(format!(
                        "`{word}` is not known for this model: {why}; `--batch` says the samples of one GPU"
                    )),
                    None => Ok(Way::Copied(strategy)),
                }
            }
        }
    }

    /// The first word of a plan that only a model with known roles has.
    fn of_roles(&self) -> Option<&'static str> {
        let words = [
            ("--recompute", self.recompute.is_some()),
            ("--offload", self.offload.is_some()),
            ("--schedule", self.schedule.is_some()),
            ("--sequence-parallel", self.sequence_parallel),
            ("--micro-batch", self.micro_batch.is_some()),
            ("--global-batch", self.global_batch.is_some()),
            ("--stack", self.stack.is_some()),
        ];
        words.iter().find(|(_, given)| *given).map(|(word, _)| *word)
    }
}

/// A model with known roles on a cluster.
#[derive(Debug, Clone, Copy)]
pub struct Roles<'a> {
    /// The model.
    pub model: &'a Transformer,
    /// Tokens of a sequence.
    pub seq: u64,
    /// Of activations and of products.
    pub dtypes: [Dtype; 2],
    /// Where.
    pub cluster: &'a Cluster,
    /// How long operators take there.
    pub times: &'a CoreTimes<'a>,
    /// How long collectives take.
    pub collectives: &'a Collectives,
}

impl<'a> Roles<'a> {
    /// As iterations ask for it.
    pub fn setting(&self, stack: Stack) -> Setting<'a> {
        Setting {
            model: self.model,
            seq: self.seq,
            dtype: self.dtypes[0],
            product: self.dtypes[1],
            cluster: self.cluster,
            collectives: self.collectives,
            contention: None,
            host: stack.host(),
        }
    }

    /// One iteration by this plan.
    pub fn predict(&self, s: &Strategy) -> Result<(Outcome, ShardCosts), ClusterError> {
        s.check(self.model, self.seq, self.cluster)?;
        let costs =
            ShardCosts::new(self.model, s.shard(self.seq, self.dtypes[0], self.dtypes[1]), self.times);
        Ok((self.setting(s.stack).predict(s, &costs, self.times)?, costs))
    }
}

/// What it takes that every GPU runs the whole model.
#[derive(Debug, Clone, Copy)]
pub struct Copies {
    /// Time.
    pub data: DataParallel,
    /// Of the memory of one GPU.
    pub peak: Bytes,
    /// Is there room for it?
    pub fits: bool,
}

impl Copies {
    /// Predicts an iteration of which one GPU's part is known; gradients are as wide as weights, of `size` bytes.
    pub fn predict(
        iteration: &Iteration,
        times: &CoreTimes<'_>,
        cluster: &Cluster,
        collectives: &Collectives,
        strategy: &Strategy,
        size: f64,
    ) -> Self {
        let sharding = match (strategy.fsdp, strategy.stage()) {
            (Some(how), _) => Sharding::Shards(how),
            (None, 1 | 2) => Sharding::States,
            _ => Sharding::Copies,
        };
        let one = times.model.predict_iteration(iteration, times.gpu);
        let imbalance = data_parallel::EVEN_IMBALANCE;
        let data = data_parallel::predict(iteration, &one, cluster, collectives, sharding, size, imbalance);
        let alone = fit::prudent_peak(iteration);
        let peak = Bytes(data_parallel::peak(iteration, alone, cluster, strategy.stage(), data.bytes));
        Self { data, peak, fits: Reserve::default().fits(peak, times.gpu) }
    }
}
