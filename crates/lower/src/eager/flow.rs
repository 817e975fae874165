//! Which values each step reads and writes, for the compiler's rule of fusion (`crate::fusion`).
//!
//! A storage that is written over holds another *value* from then on, so that values have one maker each.

use super::{Few, Lowering, Value};

/// A value that a step reads or writes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Access {
    /// Its number.
    pub value: u32,
    /// Bytes that are touched: what is repeated along a dimension counts once.
    pub bytes: f64,
}

/// What one step reads and writes; a step of which nothing is known has neither.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Flow {
    pub reads: Vec<Access>,
    pub writes: Vec<Access>,
    /// Are places copied to another order?
    pub moved: bool,
}

/// The flow of data through all steps so far.
#[derive(Debug, Default)]
pub(crate) struct Flows {
    /// Of each step.
    pub of: Vec<Flow>,
    /// Bytes of each value.
    pub bytes: Vec<f64>,
    /// Values that the caller gets beside the result.
    pub kept: Vec<u32>,
    /// The value that a storage holds.
    held: Vec<Option<u32>>,
}

impl Flows {
    fn new_value(&mut self, storage: u32, bytes: f64) -> u32 {
        let at = storage as usize;
        if self.held.len() <= at {
            self.held.resize(at + 1, None);
        }
        let value = self.bytes.len() as u32;
        self.bytes.push(bytes);
        self.held[at] = Some(value);
        value
    }

    /// The value that a storage holds.
    pub fn held(&self, storage: u32) -> Option<u32> {
        self.held.get(storage as usize).copied().flatten()
    }

    fn value(&mut self, storage: u32, bytes: f64) -> u32 {
        self.held(storage).unwrap_or_else(|| self.new_value(storage, bytes))
    }
}

/// Bytes of a view, without what is repeated.
fn touched(v: &Value) -> f64 {
    let repeated = |i: usize| v.strides.get(i) == Some(&0);
    let places = (0..v.shape.len()).filter(|&i| !repeated(i)).map(|i| v.shape[i] as f64);
    places.product::<f64>() * v.dtype.size()
}

impl Lowering<'_> {
    /// The last step reads and writes these.
    pub(super) fn flow(&mut self, reads: &[Value], writes: &[Value]) {
        self.note_flow(reads, &[], writes, &[]);
    }

    /// As [`Self::flow`], of a copy to another order of places.
    pub(super) fn flow_moved(&mut self, from: Value, to: Value) {
        self.flow(&[from], &[to]);
        if let Some(flow) = self.flows.as_mut().and_then(|f| f.of.last_mut()) {
            flow.moved = true;
        }
    }

    /// As [`Self::flow`], and it writes storages beside its result.
    pub(super) fn flow_more(&mut self, reads: &[Value], writes: &[Value], beside: &[u32]) {
        self.note_flow(reads, &[], writes, beside);
    }

    /// As [`Self::flow`], of a step of backward that also reads values of the forward.
    pub(super) fn flow_back<'a>(
        &mut self,
        reads: &[Value],
        wanted: impl IntoIterator<Item = &'a u32>,
        writes: &[Value],
    ) {
        if self.flows.is_none() {
            return;
        }
        let wanted: Few<u32> = wanted.into_iter().copied().collect();
        self.note_flow(reads, &wanted, writes, &[]);
    }

    fn note_flow(&mut self, reads: &[Value], wanted: &[u32], writes: &[Value], beside: &[u32]) {
        let Some(flows) = &mut self.flows else { return };
        let mut flow = Flow::default();
        for v in reads {
            let bytes = touched(v);
            flow.reads.push(Access { value: flows.value(v.storage, bytes), bytes });
        }
        for &value in wanted {
            flow.reads.push(Access { value, bytes: flows.bytes[value as usize] });
        }
        for v in writes {
            let bytes = touched(v);
            flow.writes.push(Access { value: flows.new_value(v.storage, bytes), bytes });
        }
        for &storage in beside {
            let bytes = self.memory.bytes(storage);
            flow.writes.push(Access { value: flows.new_value(storage, bytes), bytes });
        }
        flows.of.resize(self.steps.len().max(1), Flow::default());
        flows.of[self.steps.len().max(1) - 1] = flow;
    }

    /// `storage` stands for what `v` holds: a compiler computes it again from there.
    pub(super) fn flow_alias(&mut self, storage: u32, v: &Value) {
        if let Some(flows) = &mut self.flows {
            let value = flows.value(v.storage, touched(v));
            flows.new_value(storage, 0.0);
            flows.held[storage as usize] = Some(value);
        }
    }

    /// The caller keeps `v`.
    pub(super) fn flow_kept(&mut self, v: &Value) {
        if let Some(flows) = &mut self.flows {
            let value = flows.value(v.storage, touched(v));
            flows.kept.push(value);
        }
    }

    /// The values that storages hold now.
    pub(super) fn versions(&mut self, storages: &[u32]) -> Few<u32> {
        let Some(flows) = &mut self.flows else { return Few::new() };
        storages.iter().map(|&s| flows.value(s, self.memory.bytes(s))).collect()
    }

    /// The last steps were taken back.
    pub(super) fn flow_truncated(&mut self) {
        if let Some(flows) = &mut self.flows {
            flows.of.truncate(self.steps.len());
        }
    }
}
