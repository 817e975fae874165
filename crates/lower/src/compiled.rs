//! The compiled form of an eager iteration that was recorded, of which only the order of operators is known: what Inductor would make of it. (A graph has its
//! flow of data, which `fusion` follows.)
//!
//! Between two calls of a library (products, convolutions, attention) all other operators are fused as far as they walk the same
//! number of places: a chain reads what comes from outside, keeps what its members hand on, and writes what leaves. Reductions end a
//! walk as Inductor's do: along rows in the same kernel, across them in one of their own. Convolutions run channels-last. The optimizer stays as it is.
//!
//! This is a rule for networks whose real listing is not at hand; `docs/run-options.md` says how far it is from listings. A recorded step has
//! the listing itself.

use preflop_graph::{Iteration, Phase, Step};
use preflop_ops::{
    ElementwiseKind as E, Fused, FusedForm, FusedTraits, Op, OpCall, Pass, RowwiseKind, SpatialKind,
};

/// Blocks that an outer reduction is split into, so that all SMs have work.
const SPLITS: u64 = 512;

/// Operators of one number of places that follow each other.
struct Chain {
    places: u64,
    /// Bytes that come from outside and that leave.
    read: f64,
    written: f64,
    /// Bytes of the value that the last member handed on.
    handed: f64,
    /// Bytes of a sum that later layers add to: a norm that follows it reads it here, the next sum elsewhere.
    residual: f64,
    loads: u32,
    functions: u8,
    random: bool,
    rows: Option<u64>,
    name: String,
    phase: Phase,
    call: OpCall,
}

impl Chain {
    fn of(step: &Step, places: u64) -> Self {
        Self {
            places,
            read: 0.0,
            written: 0.0,
            handed: 0.0,
            residual: 0.0,
            loads: 0,
            functions: 0,
            random: false,
            rows: None,
            name: step.name.clone(),
            phase: step.phase,
            call: step.call.clone(),
        }
    }

    /// Another member: it finds in registers what the last one handed on.
    fn join(&mut self, read: f64, written: f64, loads: u32) {
        let kept = self.handed.min(read);
        self.written += written - kept.min(self.written);
        self.read += read - kept;
        self.loads += if kept > 0.0 { loads.saturating_sub(1) } else { loads };
        self.handed = written;
    }

    fn step(&self) -> Step {
        let form = if self.rows.is_some() { FusedForm::Persistent } else { FusedForm::Pointwise };
        let reduced = self.rows.map_or(1, |rows| (self.places / rows.max(1)).max(1));
        let fused = Fused {
            form,
            read: self.read as u64,
            written: self.written as u64,
            elements: (self.places / reduced).max(1),
            reduced,
            loads: self.loads.max(1),
            stores: 1,
            traits: FusedTraits {
                functions: self.functions.min(2),
                random: self.random,
                ..FusedTraits::default()
            },
        };
        self.launch(fused)
    }

    fn launch(&self, fused: Fused) -> Step {
        let call = OpCall::new(Op::Fused(fused), Pass::Fwd, self.call.dtype);
        Step { name: self.name.clone(), phase: self.phase, call, count: 1 }
    }

    /// A sum across rows that reads `bytes`, and the small kernels that finish it.
    fn across(&self, bytes: f64, loads: u32, columns: u64) -> [Step; 2] {
        let elements = columns.saturating_mul(SPLITS).min(self.places).max(1);
        let sum = Fused {
            form: FusedForm::LoopedOuter,
            read: bytes as u64,
            written: 0,
            elements,
            reduced: (self.places / elements).max(1),
            loads,
            stores: 2,
            traits: FusedTraits::default(),
        };
        let finish =
            Fused { read: 8 * elements, elements: columns, reduced: SPLITS, loads: 1, stores: 1, ..sum };
        [self.launch(sum), self.launch(finish)]
    }
}

/// Is a function dear enough to count?
fn function(kind: E) -> bool {
    kind.arity().2 >= 5.0
}

fn is_library(op: &Op) -> bool {
    matches!(
        op,
        Op::Gemm(_)
            | Op::Conv(_)
            | Op::Attention(_)
            | Op::Rnn(_)
            | Op::Optimizer(_)
            | Op::RoiAlign(_)
            | Op::Nms(_)
            | Op::Listed(_)
            | Op::Fused(_)
            | Op::Unmodelled { .. }
    )
}

/// The iteration as a compiler would launch it.
#[must_use]
pub fn compiled(iteration: &Iteration) -> Iteration {
    let inference = iteration.steps.iter().all(|s| s.phase == Phase::Forward);
    let mut run = Fusion { steps: Vec::with_capacity(iteration.steps.len()), chains: Vec::new(), inference };
    for step in &iteration.steps {
        run.add(step);
    }
    run.flush();
    let host = crate::launching(iteration.host, &run.steps);
    Iteration { host, steps: run.steps, ..iteration.clone() }
}

struct Fusion {
    steps: Vec<Step>,
    chains: Vec<Chain>,
    /// Is nothing kept for a backward?
    inference: bool,
}

impl Fusion {
    fn flush(&mut self) {
        for chain in self.chains.drain(..) {
            self.steps.push(chain.step());
        }
    }

    fn add(&mut self, step: &Step) {
        if self.chains.first().is_some_and(|c| c.phase != step.phase) {
            self.flush();
        }
        if step.phase == Phase::Optimizer || is_library(&step.call.op) {
            self.flush();
            self.steps.push(crate::fusion::library(step));
            return;
        }
        for _ in 0..step.count {
            self.fuse(step);
        }
    }

    /// The chain of this number of places, begun if there is none.
    fn chain(&mut self, step: &Step, places: u64) -> &mut Chain {
        let at = self.chains.iter().position(|c| c.places == places).unwrap_or_else(|| {
            self.chains.push(Chain::of(step, places));
            self.chains.len() - 1
        });
        &mut self.chains[at]
    }

    fn fuse(&mut self, step: &Step) {
        let traffic = step.call.traffic();
        let (read, written) = (traffic.read.0, traffic.written.0);
        let backward = step.call.pass != Pass::Fwd;
        match &step.call.op {
            Op::Elementwise(e) => {
                let chain = self.chain(step, e.n);
                chain.join(read, written, e.kind.arity().0.ceil() as u32);
                if e.kind.arity().0 > 1.0 && !backward {
                    chain.residual = written;
                }
                chain.functions += u8::from(function(e.kind) && chain.functions < 2);
                chain.random |= e.kind == E::Dropout;
            }
            Op::Movement(m) => {
                let places = m.rows.saturating_mul(m.cols);
                self.chain(step, places).join(read, written, 1);
            }
            Op::Rowwise(r) => {
                let places = r.rows.saturating_mul(r.cols);
                let across = matches!(r.kind, RowwiseKind::SumCols | RowwiseKind::SumChannels);
                let norm = matches!(r.kind, RowwiseKind::LayerNorm | RowwiseKind::RmsNorm);
                let chain = self.chain(step, places);
                if across {
                    // What the chain holds is summed while it is there, but in a kernel of its own.
                    let sums = chain.across(read, 1, r.cols);
                    self.steps.extend(sums);
                    return;
                }
                chain.rows = Some(r.rows);
                chain.join(read, written, if backward { 3 } else { 2 });
                if norm && !backward {
                    chain.written += std::mem::take(&mut chain.residual);
                }
                if norm && backward {
                    let sums = chain.across(read, 2, r.cols);
                    self.steps.extend(sums);
                }
            }
            Op::Spatial(s) => self.spatial(step, s.kind, read, written),
            Op::CrossEntropy(c) => {
                let places = c.rows.saturating_mul(c.classes);
                let chain = self.chain(step, places);
                if backward {
                    chain.join(read, written, 2);
                    return;
                }
                let scores = Fused {
                    form: FusedForm::LoopedInner,
                    read: read as u64,
                    written: 8 * c.rows,
                    elements: c.rows,
                    reduced: c.classes,
                    loads: 1,
                    stores: 2,
                    traits: FusedTraits { functions: 1, online_softmax: true, ..FusedTraits::default() },
                };
                let launch = chain.launch(scores);
                self.chains.retain(|c| c.places != places);
                self.steps.push(launch);
            }
            _ => {
                let places = (written.max(read) / step.call.dtype.size()) as u64;
                let chain = self.chain(step, places.max(1));
                chain.join(read, written, 2);
            }
        }
    }

    fn spatial(&mut self, step: &Step, kind: SpatialKind, read: f64, written: f64) {
        let Op::Spatial(s) = &step.call.op else { return };
        let places =
            [s.channels, s.h, s.w].into_iter().fold(s.batch, |n: u64, size| n.saturating_mul(size)).max(1);
        let value = places as f64 * step.call.dtype.size();
        let backward = step.call.pass != Pass::Fwd;
        match kind {
            SpatialKind::BatchNorm | SpatialKind::BatchNormNative | SpatialKind::GroupNorm => {
                let inputs = if backward { 2.0 } else { 1.0 };
                let chain = self.chain(step, places);
                // What the chain made so far is written for the statistics to read, then read again.
                let made = chain.read > 0.0;
                let sums = chain.across(inputs * value, inputs as u32, s.channels);
                if made {
                    let before = chain.step();
                    self.chains.retain(|c| c.places != places);
                    self.steps.push(before);
                }
                self.steps.extend(sums);
                self.chain(step, places).join(inputs * value, value, if backward { 7 } else { 5 });
            }
            SpatialKind::BatchNormEval => self.chain(step, places).join(value, value, 5),
            SpatialKind::GlobalAvgPool => {
                let chain = self.chain(step, places);
                chain.rows = Some(s.batch.saturating_mul(s.channels));
                chain.join(read, written, 1);
            }
            SpatialKind::MaxPool | SpatialKind::AvgPool | SpatialKind::AdaptiveAvgPool => {
                let window = (s.window * s.window).clamp(1, 16) as u32;
                let chain = Chain::of(step, places);
                // What is pooled is computed for each place of the window, and written for nobody.
                let alone = |c: &Chain| c.places == places && c.rows.is_none() && c.read > 0.0;
                let inlined =
                    self.chains.pop_if(|c| self.inference && alone(c)).map_or(0.0, |c| c.read - value);
                let pooled = Fused {
                    form: FusedForm::Pointwise,
                    read: (read + inlined.max(0.0)) as u64,
                    written: written as u64,
                    elements: if backward {
                        places
                    } else {
                        (written / step.call.dtype.size()).max(1.0) as u64
                    },
                    reduced: 1,
                    loads: window,
                    stores: 1,
                    traits: FusedTraits {
                        pooling_gradient: backward && kind == SpatialKind::MaxPool,
                        ..FusedTraits::default()
                    },
                };
                self.flush();
                self.steps.push(chain.launch(pooled));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use preflop_graph::MemoryUse;
    use preflop_ops::{Elementwise, Gemm};
    use preflop_units::dtype::Dtype;

    fn step(op: Op) -> Step {
        Step { name: "layer".into(), phase: Phase::Forward, call: OpCall::fwd(op, Dtype::Bf16), count: 1 }
    }

    fn iteration(steps: Vec<Step>) -> Iteration {
        Iteration { steps, memory: MemoryUse::default(), samples: 1, ..Iteration::default() }
    }

    #[test]
    fn neighbours_of_one_size_become_one_kernel_that_reads_and_writes_once() {
        let op = |kind| step(Op::Elementwise(Elementwise { kind, n: 1000 }));
        let product = step(Op::Gemm(Gemm::linear(8, 8, 8, false)));
        let fused = compiled(&iteration(vec![product.clone(), op(E::AddBias), op(E::Relu), product]));
        assert_eq!(fused.steps.len(), 3);
        let Op::Fused(f) = &fused.steps[1].call.op else { panic!("not fused") };
        // 1000 values of 2 bytes in, 1000 out
        assert_eq!((f.read, f.written), (2000, 2000));
    }

    #[test]
    fn a_residual_sum_reads_both_its_operands() {
        let op = |kind| step(Op::Elementwise(Elementwise { kind, n: 1000 }));
        let fused = compiled(&iteration(vec![op(E::Relu), op(E::Add)]));
        let Op::Fused(f) = &fused.steps[0].call.op else { panic!("not fused") };
        assert_eq!((fused.steps.len(), f.read, f.written), (1, 4000, 2000));
    }

    #[test]
    fn other_sizes_and_library_calls_are_kernels_of_their_own() {
        let op = |n| step(Op::Elementwise(Elementwise { kind: E::Cast, n }));
        assert_eq!(compiled(&iteration(vec![op(10), op(20), op(10)])).steps.len(), 2);
    }
}
