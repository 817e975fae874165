//! What repeats in each kind of record, and what does not.

use super::table::{MOST_NUMBERS, Record};
use super::{CallKind, GpuEvent, GpuKind, HostCall, HostOp, Mark, NameId};

/// All of a GPU event but when it ran and what asked for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Launch {
    name: NameId,
    kind: GpuKind,
    graph: bool,
    device: i32,
    stream: i32,
    blocks: u64,
    threads: u32,
    registers: u32,
    shared_bytes: u32,
    has_resources: bool,
    bytes: u64,
}

impl Record for GpuEvent {
    type Kind = Launch;
    const NUMBERS: usize = 4;

    fn split(&self) -> (Launch, [i64; MOST_NUMBERS]) {
        let Self { start_ns, dur_ns, name, kind, graph, device, stream, correlation, external, .. } = *self;
        let Self { blocks, threads, registers, shared_bytes, has_resources, bytes, .. } = *self;
        let launch = Launch {
            name,
            kind,
            graph,
            device,
            stream,
            blocks,
            threads,
            registers,
            shared_bytes,
            has_resources,
            bytes,
        };
        (launch, [start_ns, dur_ns, correlation, external])
    }

    fn join(launch: Launch, [start_ns, dur_ns, correlation, external]: [i64; MOST_NUMBERS]) -> Self {
        let Launch { name, kind, graph, device, stream, .. } = launch;
        let Launch { blocks, threads, registers, shared_bytes, has_resources, bytes, .. } = launch;
        Self {
            start_ns,
            dur_ns,
            name,
            kind,
            graph,
            device,
            stream,
            correlation,
            external,
            blocks,
            threads,
            registers,
            shared_bytes,
            has_resources,
            bytes,
        }
    }
}

impl Record for HostCall {
    type Kind = (NameId, NameId, CallKind);
    const NUMBERS: usize = 3;

    fn split(&self) -> (Self::Kind, [i64; MOST_NUMBERS]) {
        ((self.name, self.thread, self.kind), [self.start_ns, self.dur_ns, self.correlation, 0])
    }

    fn join(
        (name, thread, kind): Self::Kind,
        [start_ns, dur_ns, correlation, _]: [i64; MOST_NUMBERS],
    ) -> Self {
        Self { start_ns, dur_ns, name, thread, correlation, kind }
    }
}

/// An operator on a thread with its inputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Inputs {
    name: NameId,
    thread: NameId,
    backward: bool,
    dims: NameId,
    types: NameId,
    strides: NameId,
    concrete: NameId,
}

impl Record for HostOp {
    type Kind = Inputs;
    const NUMBERS: usize = 4;

    fn split(&self) -> (Inputs, [i64; MOST_NUMBERS]) {
        let Self {
            start_ns,
            dur_ns,
            external,
            sequence,
            name,
            thread,
            backward,
            dims,
            types,
            strides,
            concrete,
        } = *self;
        let inputs = Inputs { name, thread, backward, dims, types, strides, concrete };
        (inputs, [start_ns, dur_ns, external, sequence])
    }

    fn join(inputs: Inputs, [start_ns, dur_ns, external, sequence]: [i64; MOST_NUMBERS]) -> Self {
        let Inputs { name, thread, backward, dims, types, strides, concrete } = inputs;
        Self { start_ns, dur_ns, name, thread, external, sequence, backward, dims, types, strides, concrete }
    }
}

impl Record for Mark {
    type Kind = (NameId, NameId);
    const NUMBERS: usize = 2;

    fn split(&self) -> (Self::Kind, [i64; MOST_NUMBERS]) {
        ((self.name, self.thread), [self.start_ns, self.dur_ns, 0, 0])
    }

    fn join((name, thread): Self::Kind, [start_ns, dur_ns, ..]: [i64; MOST_NUMBERS]) -> Self {
        Self { start_ns, dur_ns, name, thread }
    }
}
