//! In which form a network is run: launches, layout, checkpoints, algorithms. One place for every command, table and page.

use crate::eager::lower_fused;
use crate::{launched, lower};
use preflop_graph::graph::Masks;
use preflop_graph::{Checkpoint, Graph, Iteration, LowerOptions, Mode, ModelError, Run, Stage};
use preflop_ops::Op;

/// What is said where no compiler was asked.
const COMPILED_BY_RULE: &str = "the compiled form follows a rule of fusion, not a compiler's listing: record the step with `preflop.capture` for the \
    kernels that Inductor would launch";
/// What is said where a library runs other operators.
const MASKED: &str = "Hugging Face's code builds its masks as tensors while it is compiled or captured, and attention then computes all scores (an encoder as plain products): it can be \
    slower than eager";
/// What is said about algorithms found by trial.
const AUTOTUNED: &str = "autotuned convolutions: in 16-bit formats cudnn.benchmark changed no measured network of an H200 by more than 0.5 %, so the \
    prediction stays and its interval reaches down to the fastest kernel that the library may run; in other formats nothing was measured, and that kernel is the prediction";

/// A form; the default is eager PyTorch as it comes, or as recorded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Form {
    /// How it is launched; as recorded, or eagerly, if nothing is said.
    pub run: Option<Run>,
    /// Do feature maps lie channels-last?
    pub channels_last: bool,
    /// Which activations are computed again.
    pub checkpoint: Checkpoint,
    /// Are algorithms of convolutions found by trial?
    pub autotuned: bool,
}

impl From<Run> for Form {
    fn from(run: Run) -> Self {
        Self { run: Some(run), ..Self::default() }
    }
}

/// Does the code run other operators once it is compiled or captured?
fn masks_under_capture(graph: &Graph) -> bool {
    graph.masks == Masks::UnderCapture && graph.stage == Stage::Full && graph.fixed.is_none()
}

fn refused<T>(problem: String) -> Result<T, ModelError> {
    Err(ModelError::Form { problem })
}

impl Form {
    /// Is it eager PyTorch as it comes?
    #[must_use]
    pub fn is_plain(&self) -> bool {
        Self { run: self.run.filter(|r| *r != Run::Eager), ..*self } == Self::default()
    }

    /// The form as far as the graph has it itself, with what is asked for in addition.
    #[must_use]
    pub fn over(self, graph: &Graph) -> Self {
        let checkpoint = if self.checkpoint.is_none() { graph.checkpoint } else { self.checkpoint };
        Self { channels_last: self.channels_last || graph.channels_last, checkpoint, ..self }
    }

    /// Puts layout and checkpoints into the graph. What was recorded has its own.
    pub fn shape(&self, graph: &mut Graph, mode: Mode) -> Result<(), ModelError> {
        let recorded = graph.fixed.is_some();
        if self.channels_last {
            if recorded {
                return refused(format!(
                    "`{}` is a recorded iteration, which has its layout: record it with `model.to(memory_format=torch.channels_last)`",
                    graph.name
                ));
            }
            graph.channels_last = true;
        }
        if self.checkpoint.is_none() {
            return Ok(());
        }
        if recorded {
            return refused(format!(
                "`{}` is a recorded iteration, which keeps its activations as recorded: record it with `torch.utils.checkpoint`",
                graph.name
            ));
        }
        if mode != Mode::Train {
            return refused(
                "`--checkpoint` is about backward, so it is for training (`--mode train`)".to_owned(),
            );
        }
        graph.checkpoint = self.checkpoint;
        if graph.segments().is_empty() {
            return refused(format!(
                "`{}` has no list of blocks to checkpoint: record the step with `torch.utils.checkpoint` where you want it",
                graph.name
            ));
        }
        Ok(())
    }

    /// How a graph is launched in this form.
    pub fn run(&self, graph: &Graph) -> Result<Run, ModelError> {
        let recorded = graph.fixed.as_ref().map_or(Run::Eager, |f| f.run);
        let run = self.run.unwrap_or(recorded);
        if recorded.compiles() && !run.compiles() {
            return refused(format!(
                "`{}` was recorded compiled and has no eager form: record it without torch.compile",
                graph.name
            ));
        }
        Ok(run)
    }

    /// The iteration of a graph that has this shape.
    pub fn lower(&self, graph: &Graph, options: &LowerOptions) -> Result<Iteration, ModelError> {
        let run = self.run(graph)?;
        let masked;
        let graph = if run != Run::Eager && masks_under_capture(graph) {
            masked = Graph { masks: Masks::Always, ..graph.clone() };
            &masked
        } else {
            graph
        };
        let iteration = if run.compiles() { lower_fused(graph, options)? } else { lower(graph, options)? };
        let iteration = launched(iteration, run);
        Ok(Iteration { autotuned: self.autotuned, ..iteration })
    }

    /// What a reader of the result should know about it.
    #[must_use]
    pub fn notes(&self, graph: &Graph, iteration: &Iteration) -> Vec<String> {
        let recorded = graph.fixed.as_ref().map_or(Run::Eager, |f| f.run);
        let mut notes = graph.fixed.as_ref().map_or_else(Vec::new, |f| f.notes.clone());
        if self.run.unwrap_or(recorded).compiles() && !recorded.compiles() {
            notes.push(COMPILED_BY_RULE.to_owned());
        }
        if self.run.is_some_and(|r| r != Run::Eager) && masks_under_capture(graph) {
            notes.push(MASKED.to_owned());
        }
        if self.autotuned && iteration.steps.iter().any(|s| matches!(s.call.op, Op::Conv(_))) {
            notes.push(AUTOTUNED.to_owned());
        }
        notes
    }
}
