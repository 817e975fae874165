//! Recorded iterations: what the Python package writes when it runs a training step without a GPU.
//!
//! A capture lists every ATen operator of one iteration in order, with the tensors it reads and writes, and every
//! storage with its lifetime. `document` is the file, `operators` turns ATen operators into ours, `memory` replays
//! the storages. Nothing is derived from the model's source: backward, casts and the optimizer stand in the list.

mod document;
mod memory;
mod operators;
mod view;

pub use document::{Capture, CaptureError};

use preflop_graph::graph::Masks;
use preflop_graph::{
    Checkpoint, Fixed, Graph, HostWork, Iteration, Mode, OptimizerChoice, Phase, Precision, Run, Stage,
    StandIns,
};
use preflop_units::dtype::Dtype;
use std::sync::Arc;

impl Capture {
    /// The iteration as our operators.
    pub fn fixed(&self) -> Fixed {
        let dispatched = |phase| {
            let ops = self.ops.iter().filter(|op| op.phase == phase);
            ops.map(|op| operators::dispatched(self, op)).sum::<u64>()
        };
        let training = self.mode == Mode::Train;
        let host = HostWork {
            forward_ops: dispatched(Phase::Forward),
            module_calls: self.module_calls,
            backward_ops: dispatched(Phase::Backward),
            parameter_tensors: if training { self.parameter_tensors } else { 0 },
            lead_s: 0.0,
        };
        let steps = operators::steps(self);
        let iteration = Iteration {
            memory: memory::peak(self),
            steps,
            host,
            parameters: self.parameters,
            samples: self.samples,
            replayed: self.run().replays(),
            autotuned: false,
            stand_ins: StandIns::default(),
        };
        Fixed {
            iteration,
            mode: self.mode,
            precision: self.precision(),
            run: self.run(),
            notes: self.notes(),
        }
    }

    /// How it was launched.
    fn run(&self) -> Run {
        let compiled = self.compile.as_ref().is_some_and(|c| c.graphs > 0);
        let replayed = self.replayed || self.compile.as_ref().is_some_and(|c| c.cuda_graphs);
        match (compiled, replayed) {
            (true, true) => Run::CompileGraph,
            (true, false) => Run::Compile,
            (false, true) => Run::Graph,
            (false, false) => Run::Eager,
        }
    }

    /// What the recording says about itself.
    fn notes(&self) -> Vec<String> {
        let mut notes = self.notes.clone();
        notes.extend(self.assumptions.iter().map(|a| {
            let times = if a.count > 1 { format!(", {} times", a.count) } else { String::new() };
            format!("assumed for `{}` at {}{times}: {}", a.operator, a.line, a.assumed)
        }));
        let Some(compile) = &self.compile else { return notes };
        if compile.graphs > 0 {
            let by = compile.torch.as_ref().map_or_else(String::new, |v| format!(" by PyTorch {v}"));
            notes.push(format!(
                "compiled for {}{by}: another GPU or version may get other kernels",
                compile.gpu
            ));
        }
        notes.extend(compile.breaks.iter().map(|why| format!("the compiler broke the graph: {why}")));
        if compile.autotune {
            notes.push("autotuning was asked for; kernels are listed as without it".to_owned());
        }
        for name in &compile.eager {
            // Measured: 25 compiled iterations against the same ones eager.
            notes.push(format!(
                "recorded as eager, not compiled: {name}; compiled steps kept the GPU busy for 22 to 166 % of the eager time"
            ));
        }
        notes
    }

    /// A graph that stands for this iteration wherever models are asked for.
    pub fn into_graph(self) -> Graph {
        Graph {
            name: self.name.clone(),
            samples: self.samples,
            seq: self.seq,
            tensors: Vec::new(),
            parameters: Vec::new(),
            channels_last: false,
            checkpoint: Checkpoint::None,
            masks: Masks::Never,
            buffer_elements: 0,
            nodes: Vec::new(),
            kept: Vec::new(),
            held: Vec::new(),
            loss: None,
            optimizer: OptimizerChoice::NONE,
            stage: Stage::Full,
            cache_elements_per_token: 0,
            stored: None,
            fixed: Some(Arc::new(self.fixed())),
        }
    }

    /// The number formats as users name them.
    fn precision(&self) -> Precision {
        if self.autocast.is_some() {
            return Precision::Amp;
        }
        // What most of the products run in decides; fp32 ones by PyTorch's flags.
        let products = operators::steps(self).into_iter().filter(|s| {
            use preflop_ops::Op;
            matches!(s.call.op, Op::Gemm(_) | Op::Conv(_) | Op::Attention(_) | Op::Rnn(_))
        });
        let mut flops = [(Precision::Bf16, 0.0), (Precision::Fp16, 0.0)];
        let mut all = 0.0;
        for step in products {
            let work = step.call.flops().0 * f64::from(step.count);
            all += work;
            let at = match step.call.dtype {
                Dtype::Bf16 => 0,
                Dtype::Fp16 => 1,
                _ => continue,
            };
            flops[at].1 += work;
        }
        let full = match (self.tf32_products, self.tf32_convolutions) {
            (true, _) => Precision::Tf32,
            (false, true) => Precision::Pytorch,
            (false, false) => Precision::Fp32,
        };
        flops.into_iter().find(|(_, work)| *work > all / 2.0).map_or(full, |(name, _)| name)
    }
}
