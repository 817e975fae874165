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

    /// Does it change the graph that is run?
    pub fn shapes(&self) -> bool {
        self.channels_last || !self.checkpoint.is_none()
    }

    /// Puts layout and checkpoints into the graph. What was recorded has its own.
    pub fn shape(&self, graph: &mut Graph, mode: Mode) -> Result<(), ModelError> {
        self.check_shape(graph, mode)?;
        graph.channels_last |= self.channels_last;
        if !self.checkpoint.is_none() {
            graph.checkpoint = self.checkpoint;
        }
        Ok(())
    }

    /// Can layout and checkpoints be put into the graph?
    pub fn can_shape(&self, graph: &Graph, mode: Mode) -> bool {
        self.check_shape(graph, mode).is_ok()
    }

    fn check_shape(&self, graph: &Graph, mode: Mode) -> Result<(), ModelError> {
        let recorded = graph.fixed.is_some();
        if self.channels_last && recorded {
            return refused(format!(
                "`{}` is a recorded iteration, which has its layout: record it with `model.to(memory_format=torch.channels_last)`",
                graph.name
            ));
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
        if graph.segments_of(self.checkpoint).is_empty() {
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
        Ok(self.replayed(graph, self.lower_once(graph, options)?))
    }

    /// As [`Form::lower`] before it is captured and its algorithms are chosen: forms of one [`Form::lowers_like`] share it.
    pub fn lower_once(&self, graph: &Graph, options: &LowerOptions) -> Result<Iteration, ModelError> {
        let run = self.run(graph)?;
        let masked;
        let graph = if run != Run::Eager && masks_under_capture(graph) {
            masked = Graph { masks: Masks::Always, ..graph.clone() };
            &masked
        } else {
            graph
        };
        let iteration = if run.compiles() { lower_fused(graph, *options)? } else { lower(graph, options)? };
        Ok(launched(iteration, if run.compiles() { Run::Compile } else { Run::Eager }))
    }

    /// The iteration that [`Form::lower_once`] gave, captured where this form is and with its algorithms.
    #[must_use]
    pub fn replayed(&self, graph: &Graph, iteration: Iteration) -> Iteration {
        let replays = self.run(graph).is_ok_and(Run::replays);
        let iteration = if replays { launched(iteration, Run::Graph) } else { iteration };
        Iteration { autotuned: self.autotuned, ..iteration }
    }

    /// The form with which this one shares its lowering.
    #[must_use]
    pub fn lowers_like(&self, graph: &Graph) -> Self {
        let run = self.run(graph).map(|run| match run {
            Run::CompileGraph => Run::Compile,
            Run::Graph if !masks_under_capture(graph) => Run::Eager,
            run => run,
        });
        Self { run: run.ok().or(self.run), autotuned: false, ..*self }
    }

    /// What a reader of the result should know about it.
    #[must_use]
    pub fn notes(&self, graph: &Graph, iteration: &Iteration) -> Vec<String> {
        let recorded = graph.fixed.as_ref().map_or(Run::Eager, |f| f.run);
        let mut notes = graph.fixed.as_ref().map_or_else(Vec::new, |f| f.notes.clone());
        notes.extend(graph.stored.map(|stored| {
            format!(
                "the checkpoint keeps its weights in {}: this is PyTorch with weights as the precision has them; `preflop generate --stack served` takes them as they are",
                stored.name()
            )
        }));
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

#[cfg(test)]
mod tests {
    use super::*;
    use preflop_graph::{Phase, Precision, zoo};
    use preflop_ops::Pass;

    const AMP: LowerOptions = LowerOptions { mode: Mode::Train, precision: Precision::Amp, optimizer: None };

    fn lowered(form: Form, model: &str, batch: u64, options: LowerOptions) -> Iteration {
        let mut graph = zoo::build(model, Some(batch), None).unwrap();
        form.shape(&mut graph, options.mode).unwrap();
        form.lower(&graph, &options).unwrap()
    }

    #[test]
    fn a_checkpointed_block_runs_its_attention_twice_forward_and_once_backward() {
        let form = Form { checkpoint: Checkpoint::Full, ..Form::default() };
        let [plain, again] = [Form::default(), form].map(|f| lowered(f, "gpt2", 8, AMP));
        let attention = |i: &Iteration, pass, phase| {
            let all = i.steps.iter().filter(|s| matches!(s.call.op, Op::Attention(_)));
            all.filter(|s| s.call.pass == pass && s.phase == phase).count()
        };
        // Twelve blocks.
        assert_eq!(attention(&plain, Pass::Fwd, Phase::Backward), 0);
        assert_eq!(attention(&again, Pass::Fwd, Phase::Forward), 12);
        assert_eq!(attention(&again, Pass::Fwd, Phase::Backward), 12);
        assert_eq!(attention(&again, Pass::Bwd, Phase::Backward), 12);
        // Measured on an H200: 13,080 and 6,710 MiB.
        assert!((plain.memory.peak.mib() / 13080.0 - 1.0).abs() < 0.02, "{:?}", plain.memory);
        assert!((again.memory.peak.mib() / 6710.0 - 1.0).abs() < 0.02, "{:?}", again.memory);
    }

    #[test]
    fn forms_that_share_a_lowering_lower_to_the_same() {
        let options = LowerOptions { mode: Mode::Infer, ..AMP };
        for model in ["gpt2", "bert-base", "resnet18"] {
            let graph = zoo::build(model, Some(2), None).unwrap();
            for run in Run::ALL {
                let form = Form { autotuned: true, ..Form::from(run) };
                let shared = form.lowers_like(&graph).lower_once(&graph, &options).unwrap();
                assert_eq!(
                    form.replayed(&graph, shared),
                    form.lower(&graph, &options).unwrap(),
                    "{model} {run:?}"
                );
            }
        }
    }

    #[test]
    fn fewer_kept_inputs_compute_no_less() {
        let every = |k| Form { checkpoint: Checkpoint::Every(k), ..Form::default() };
        let full = Form { checkpoint: Checkpoint::Full, ..Form::default() };
        assert_eq!(lowered(every(1), "resnet18", 8, AMP), lowered(full, "resnet18", 8, AMP));
        let [one, two] = [1, 2].map(|k| lowered(every(k), "resnet18", 8, AMP).steps.len());
        assert!(one <= two, "{one} {two}");
    }

    #[test]
    fn checkpoints_are_for_training() {
        let mut graph = zoo::build("gpt2", Some(1), None).unwrap();
        let form = Form { checkpoint: Checkpoint::Full, ..Form::default() };
        let refused = form.shape(&mut graph, Mode::Infer).unwrap_err().to_string();
        assert!(refused.contains("--mode train"), "{refused}");
    }

    #[test]
    fn compiled_training_takes_the_memory_that_was_measured() {
        // Peaks of an H200, MiB.
        for (model, batch, measured) in [
            ("resnet50", 64, 2958.0),
            ("gpt2", 8, 7190.0),
            ("resnet18", 128, 1553.0),
            ("convnext_tiny", 64, 3858.0),
            ("mobilenet_v2", 256, 6885.0),
            ("efficientnet_b0", 128, 3577.0),
            ("densenet121", 32, 2159.0),
        ] {
            let peak = lowered(Form::from(Run::Compile), model, batch, AMP).memory.peak.mib();
            assert!((peak / measured - 1.0).abs() < 0.05, "{model}: {peak} MiB, measured {measured}");
        }
    }

    #[test]
    fn compiled_inference_takes_the_memory_that_was_measured() {
        let options = LowerOptions { mode: Mode::Infer, ..AMP };
        for (model, batch, seq, measured) in [
            ("resnet50", 64, None, 421.0),
            ("gpt2", 8, Some(1024), 1701.0),
            ("resnet18", 128, None, 515.0),
            ("mobilenet_v2", 256, None, 962.0),
            ("bert-base", 16, Some(512), 1019.0),
            ("t5-small", 16, Some(256), 696.0),
            ("swin_t", 32, None, 398.0),
        ] {
            let graph = zoo::build(model, Some(batch), seq).unwrap();
            let peak = Form::from(Run::Compile).lower(&graph, &options).unwrap().memory.peak.mib();
            assert!((peak / measured - 1.0).abs() < 0.03, "{model}: {peak} MiB, measured {measured}");
        }
    }

    #[test]
    fn a_compiled_network_launches_as_many_fused_kernels_as_the_profiler_saw() {
        // Training and inference, of `data/measured/h200/compiled.csv.gz`: kernels whose names begin with `triton_`.
        for (model, batch, seq, measured) in [
            ("resnet50", 64, None, [560.0, 106.0]),
            ("gpt2", 8, Some(1024), [365.0, 171.0]),
            ("vit_b_16", 64, None, [405.0, 175.0]),
            ("resnet18", 128, None, [219.0, 41.0]),
            ("convnext_tiny", 64, None, [508.0, 156.0]),
            ("mobilenet_v2", 256, None, [604.0, 107.0]),
            ("bert-base", 16, Some(512), [590.0, 247.0]),
            ("efficientnet_b0", 128, None, [722.0, 167.0]),
            ("swin_t", 32, None, [598.0, 232.0]),
        ] {
            let graph = zoo::build(model, Some(batch), seq).unwrap();
            for (mode, measured) in [Mode::Train, Mode::Infer].into_iter().zip(measured) {
                let options = LowerOptions { mode, ..AMP };
                let iteration = Form::from(Run::Compile).lower(&graph, &options).unwrap();
                let fused = iteration.steps.iter().filter(|s| matches!(s.call.op, Op::Fused(_)));
                let launched: u32 = fused.map(|s| s.count).sum();
                let off = f64::from(launched) / measured - 1.0;
                assert!(off.abs() < 0.10, "{model} {mode:?}: {launched} fused kernels, measured {measured}");
            }
        }
    }

    #[test]
    fn a_compiled_encoder_of_hugging_face_multiplies_plainly() {
        let attention = |i: &Iteration| i.steps.iter().any(|s| matches!(s.call.op, Op::Attention(_)));
        let options = LowerOptions { mode: Mode::Infer, ..AMP };
        assert!(attention(&lowered(Form::default(), "bert-base", 2, options)));
        assert!(!attention(&lowered(Form::from(Run::Compile), "bert-base", 2, options)));
        assert!(attention(&lowered(Form::from(Run::Compile), "vit_b_16", 2, options)));
    }
}
