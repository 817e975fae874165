//! Records of made-up recordings, for tests here and in the crates above.

use super::{CallKind, Format, GpuEvent, GpuKind, HostCall, HostOp, NameId, Names, Profile};

/// An empty profile.
pub fn profile() -> Profile {
    Profile::new("test.json", Format::Kineto)
}

/// An operator on the one thread, without shapes.
pub fn op(names: &mut Names, name: &str, start_ns: i64, dur_ns: i64) -> HostOp {
    HostOp {
        start_ns,
        dur_ns,
        name: names.add(name),
        thread: names.add("1/1"),
        external: 0,
        sequence: -1,
        backward: false,
        dims: NameId::EMPTY,
        types: NameId::EMPTY,
        strides: NameId::EMPTY,
        concrete: NameId::EMPTY,
    }
}

/// A launch on the one thread.
pub fn call(names: &mut Names, start_ns: i64, dur_ns: i64, correlation: i64) -> HostCall {
    let (name, thread) = (names.add("cudaLaunchKernel"), names.add("1/1"));
    HostCall { start_ns, dur_ns, name, thread, correlation, kind: CallKind::Launch }
}

/// A kernel of 100 blocks of 128 threads.
pub fn event(names: &mut Names, name: &str, start_ns: i64, dur_ns: i64, correlation: i64) -> GpuEvent {
    GpuEvent {
        start_ns,
        dur_ns,
        name: names.add(name),
        kind: GpuKind::Kernel,
        graph: false,
        device: 0,
        stream: 7,
        correlation,
        external: 0,
        blocks: 100,
        threads: 128,
        registers: 32,
        shared_bytes: 0,
        has_resources: true,
        bytes: 0,
    }
}
