//! Memory of a compiled iteration: what a fused kernel hands on inside itself has no storage.
//!
//! Results of operators that a compiler fuses are *pending*: they take memory only if a call of a library reads them, or if a kernel does that runs after one. For
//! backward a compiler keeps what library calls read, as eager code does; of what fused operators want, it keeps the least: either the value, or the values that it was computed
//! from (PyTorch's partitioner finds a minimal cut; here each value is weighed when it is met).

use super::backward::{Backward, GradNode};
use super::{Lowering, Value};
use std::collections::{HashMap, HashSet};

/// Values that one is computed from, at most; one of more is kept itself.
const MOST_SOURCES: usize = 64;

/// What is known of values that no kernel has written yet.
#[derive(Debug, Default)]
pub(super) struct Lazy {
    /// What a fused operator's result was computed from.
    sources: HashMap<u32, Vec<u32>>,
    /// Kept for backward.
    kept: HashSet<u32>,
}

impl Backward {
    /// Is the operator a call of a library?
    fn is_library(&self) -> bool {
        matches!(
            self,
            Self::Linear { .. }
                | Self::Bmm { .. }
                | Self::Conv { .. }
                | Self::Attention { .. }
                | Self::Rnn(_)
        )
    }
}

impl Lowering<'_> {
    /// An operator of the forward read `inputs` and made `outs`.
    pub(super) fn settle(&mut self, kind: &Backward, inputs: &[Value], outs: &[Value]) {
        let Some(lazy) = &mut self.lazy else { return };
        if kind.is_library() {
            for v in inputs.iter().chain(outs) {
                self.memory.write(v.storage);
            }
            self.memory.next_kernel();
            return;
        }
        for v in inputs {
            self.memory.read_later(v.storage);
        }
        if matches!(kind, Backward::Cat { .. }) {
            // Not computed again.
            return;
        }
        let mut from: Vec<u32> = Vec::new();
        for v in inputs {
            match lazy.sources.get(&v.storage) {
                Some(more) => from.extend(more),
                None => from.push(v.storage),
            }
        }
        from.sort_unstable();
        from.dedup();
        for out in outs.iter().filter(|o| inputs.iter().all(|i| i.storage != o.storage)) {
            if from.len() > MOST_SOURCES {
                self.memory.write(out.storage);
            } else {
                lazy.sources.insert(out.storage, from.clone());
            }
        }
    }

    /// What is kept for backward of what an operator wants to keep.
    pub(super) fn kept(&mut self, kind: &Backward, saved: &[u32]) -> Vec<u32> {
        let Some(lazy) = &mut self.lazy else { return saved.to_vec() };
        let mut out = Vec::with_capacity(saved.len());
        for &s in saved {
            let known = lazy.kept.contains(&s);
            match lazy.sources.get(&s).filter(|_| !kind.is_library() && !known) {
                Some(from) => {
                    let more = from.iter().filter(|a| !lazy.kept.contains(a));
                    if more.map(|a| self.memory.bytes(*a)).sum::<f64>() <= self.memory.bytes(s) {
                        out.extend(from);
                    } else {
                        out.push(s);
                    }
                }
                None => out.push(s),
            }
        }
        for &s in &out {
            self.memory.write(s);
            lazy.kept.insert(s);
        }
        out
    }

    /// An operator of backward reads its gradients.
    pub(super) fn settle_backward(&mut self, node: &GradNode, grads: &[Option<Value>]) {
        if self.lazy.is_none() {
            return;
        }
        for g in grads.iter().flatten() {
            if node.kind.is_library() {
                self.memory.write(g.storage);
            } else {
                self.memory.read_later(g.storage);
            }
        }
    }

    /// A call of a library in backward has written its results.
    pub(super) fn settle_results(&mut self, node: &GradNode, results: &[Option<Value>]) {
        if self.lazy.is_some() && node.kind.is_library() {
            for r in results.iter().flatten() {
                self.memory.write(r.storage);
            }
            self.memory.next_kernel();
        }
    }
}
