//! A recorded run, whatever tool recorded it: what the GPU did, what the host did, and which operator asked for it.
//!
//! The importers fill a [`Profile`] with plain records; everything after that is pure. In the order in which
//! data flows: [`attribution`] links every kernel to its operator, [`window`] chooses the iteration,
//! [`timeline`] splits it, [`operators`] turns shapes into work, [`mod@explain`] and [`mod@compare`] report.
//!
//! Architecture invariant: nothing of a trace's free-form `metadata` is ever held here; only numbers, operator,
//! kernel and module names, and shapes.

pub mod advice;
pub mod analysis;
pub mod attribution;
pub mod compare;
pub mod explain;
#[cfg(any(test, feature = "fixtures"))]
pub mod fixtures;
pub mod host_report;
pub mod inputs;
pub mod kernel_name;
pub mod names;
pub mod occupancy;
pub mod operators;
pub mod origin;
mod parts;
mod record;
pub mod render;
pub mod stalls;
pub mod table;
pub mod timeline;
pub mod transfer;
pub mod window;

pub use analysis::Analysis;
pub use kernel_name::{KernelClass, KernelFamily};
pub use names::{NameId, Names};
pub use table::Table;

use preflop_units::names::one_line;
use serde::Serialize;

/// Which tool wrote the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Format {
    /// PyTorch profiler (Kineto), Chrome trace JSON.
    Kineto,
    /// Nsight Systems, SQLite export.
    NsightSystems,
    /// Nsight Compute, CSV export.
    NsightCompute,
    /// nvprof, CSV.
    Nvprof,
    /// rocprofv3, JSON.
    Rocprof,
    /// Chakra or PyTorch execution trace of the host: operators with shapes, no times.
    Chakra,
}

impl Format {
    /// The name for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kineto => "PyTorch profiler trace",
            Self::NsightSystems => "Nsight Systems export",
            Self::NsightCompute => "Nsight Compute export",
            Self::Nvprof => "nvprof export",
            Self::Rocprof => "rocprofv3 export",
            Self::Chakra => "Chakra host trace",
        }
    }
}

/// What a GPU event is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum GpuKind {
    /// A kernel.
    Kernel,
    /// A copy within a device.
    CopyDevice,
    /// A copy between host and device, either way.
    CopyHost,
    /// A copy between devices.
    CopyPeer,
    /// Memory set to a value.
    Memset,
}

impl GpuKind {
    /// Any copy?
    pub fn is_copy(self) -> bool {
        matches!(self, Self::CopyDevice | Self::CopyHost | Self::CopyPeer)
    }
}

/// Something that ran on a GPU.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GpuEvent {
    /// Start, in nanoseconds of the recording's clock.
    pub start_ns: i64,
    /// Duration in nanoseconds.
    pub dur_ns: i64,
    /// Kernel name.
    pub name: NameId,
    /// Kind.
    pub kind: GpuKind,
    /// Launched by a graph replay, as far as the event itself says.
    pub graph: bool,
    /// Device number.
    pub device: i32,
    /// Stream or queue.
    pub stream: i32,
    /// Links the event to the host call that caused it; 0 when absent.
    pub correlation: i64,
    /// The operator the recorder itself names; 0 when absent.
    pub external: i64,
    /// Thread blocks; 0 when not recorded.
    pub blocks: u64,
    /// Threads of a block; 0 when not recorded.
    pub threads: u32,
    /// Registers of a thread; 0 when not recorded.
    pub registers: u32,
    /// Static and dynamic shared memory of a block in bytes.
    pub shared_bytes: u32,
    /// Were registers and shared memory recorded? AMD traces lack them.
    pub has_resources: bool,
    /// Bytes of a copy or memset.
    pub bytes: u64,
}

impl GpuEvent {
    /// End, in nanoseconds.
    pub fn end_ns(&self) -> i64 {
        self.start_ns.saturating_add(self.dur_ns)
    }
}

/// What a host call of the driver or runtime does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CallKind {
    /// Starts a kernel, copy or memset.
    Launch,
    /// Starts a captured graph.
    GraphLaunch,
    /// Waits for the GPU.
    Sync,
}

/// A call of the driver or runtime that starts GPU work or waits for it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HostCall {
    /// Start, in nanoseconds.
    pub start_ns: i64,
    /// Duration in nanoseconds.
    pub dur_ns: i64,
    /// Name.
    pub name: NameId,
    /// Thread, as a name of the interned process and thread numbers.
    pub thread: NameId,
    /// Links it to its GPU event; 0 when absent.
    pub correlation: i64,
    /// What it does.
    pub kind: CallKind,
}

/// An operator on the host, with its inputs as the recorder wrote them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HostOp {
    /// Start, in nanoseconds.
    pub start_ns: i64,
    /// Duration in nanoseconds.
    pub dur_ns: i64,
    /// Name.
    pub name: NameId,
    /// Thread.
    pub thread: NameId,
    /// The recorder's number of it; 0 when absent.
    pub external: i64,
    /// Autograd sequence number; -1 when absent.
    pub sequence: i64,
    /// Does the recorder say that it belongs to a backward pass?
    pub backward: bool,
    /// Raw JSON of the inputs' sizes.
    pub dims: NameId,
    /// Raw JSON of the inputs' types.
    pub types: NameId,
    /// Raw JSON of the inputs' strides.
    pub strides: NameId,
    /// Raw JSON of the scalar inputs.
    pub concrete: NameId,
}

/// A named range on the host: a step, an annotation, a module call.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Mark {
    /// Start, in nanoseconds.
    pub start_ns: i64,
    /// Duration in nanoseconds.
    pub dur_ns: i64,
    /// Name.
    pub name: NameId,
    /// Thread.
    pub thread: NameId,
}

/// Hardware counters of one kernel.
#[derive(Debug, Clone, PartialEq)]
pub struct Counters {
    /// Kernel name.
    pub kernel: NameId,
    /// Its duration in nanoseconds; 0 when not recorded.
    pub dur_ns: i64,
    /// Metric and value, in the metric's base unit.
    pub metrics: Vec<(NameId, f64)>,
}

/// A device as the recorder describes it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Device {
    /// Number.
    pub id: i64,
    /// Name; may be empty.
    pub name: String,
    /// Multiprocessors.
    pub sm_count: Option<u32>,
    /// Device memory in bytes.
    pub memory_bytes: Option<u64>,
    /// Compute capability.
    pub capability: Option<(u32, u32)>,
    /// Threads of a warp.
    pub warp_size: Option<u32>,
}

/// What reading the file gave, apart from the records.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Reading {
    /// Records in the file.
    pub events: u64,
    /// Records kept.
    pub kept: u64,
    /// Records we could make nothing of: wrong types, missing times.
    pub unreadable: u64,
    /// What the first of them was.
    pub first_unreadable: Option<String>,
    /// Records read after invalid UTF-8 or bare NaN was mended.
    pub mended: u64,
    /// Names of fields dropped because they may hold secrets.
    pub dropped_fields: Vec<String>,
}

/// The year 2200 in nanoseconds: recorders count from 1970, from boot or from a base of their own.
const LATEST_NS: i64 = 7_258_118_400_000_000_000;

/// Can a record have this time? It ends before the year 2200 and takes no less than nothing, and between any two such there is a
/// difference in 64 bits.
pub fn time_is_possible(start_ns: i64, dur_ns: i64) -> bool {
    const EARLIEST_NS: i64 = LATEST_NS - i64::MAX;
    dur_ns >= 0
        && start_ns >= EARLIEST_NS
        && start_ns.checked_add(dur_ns).is_some_and(|end_ns| end_ns <= LATEST_NS)
}

/// One recording.
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    /// Name of the file, without its folder.
    pub source: String,
    /// Tool.
    pub format: Format,
    /// Devices described in it.
    pub devices: Vec<Device>,
    /// Every name used by the records.
    pub names: Names,
    /// GPU events, by start.
    pub gpu_events: Table<GpuEvent>,
    /// Launches and waits, by start.
    pub calls: Table<HostCall>,
    /// Operators, by start and then longest first.
    pub ops: Table<HostOp>,
    /// Steps and annotations, by start.
    pub marks: Table<Mark>,
    /// Module calls, by start and then longest first.
    pub modules: Table<Mark>,
    /// Kernels with hardware counters.
    pub counters: Vec<Counters>,
    /// Processes of the job, if it says so.
    pub world_size: Option<u32>,
    /// What reading it gave.
    pub reading: Reading,
}

impl Profile {
    /// An empty profile.
    pub fn new(source: impl Into<String>, format: Format) -> Self {
        Self {
            source: source.into(),
            format,
            devices: Vec::new(),
            names: Names::new(),
            gpu_events: Table::new(),
            calls: Table::new(),
            ops: Table::new(),
            marks: Table::new(),
            modules: Table::new(),
            counters: Vec::new(),
            world_size: None,
            reading: Reading::default(),
        }
    }

    /// Memory that it takes while it is explained and carried to other GPUs, about.
    pub fn explained_bytes(&self) -> usize {
        /// Where each event comes from: its operator, its call, its place in the window (with several devices) and its group, a number each.
        const EVENT: usize = 4 * size_of::<u32>();
        /// The operator around a call, and the call by its number (see [`Table`]).
        const CALL: usize = size_of::<u32>() + 6;
        /// An operator's parent, module, pass and number, and its group with its sums, once for the GPU and once while it is carried.
        const OPERATOR: usize = 4 * size_of::<u32>() + 2 * size_of::<analysis::Group>();
        // Records that do not come by start are put in order: a key, a place, and a copy of the table.
        const SORTED: usize = size_of::<(i64, i64, u32)>();
        let records = [self.gpu_events.len(), self.calls.len(), self.ops.len(), self.modules.len()];
        let most = records.into_iter().max().unwrap_or(0);
        let explained = records[0] * EVENT + records[1] * CALL + records[2] * OPERATOR;
        // Kernels without an operator have a group for each of their kinds.
        let kinds = self.gpu_events.kinds() * 2 * size_of::<analysis::Group>();
        self.memory_bytes() + (explained + kinds).max(most * SORTED)
    }

    /// Memory that it takes, about.
    pub fn memory_bytes(&self) -> usize {
        fn of<T>(records: &Vec<T>) -> usize {
            records.capacity() * size_of::<T>()
        }
        let metrics: usize = self.counters.iter().map(|c| of(&c.metrics)).sum();
        self.names.memory_bytes()
            + self.gpu_events.memory_bytes()
            + self.calls.memory_bytes()
            + self.ops.memory_bytes()
            + self.marks.memory_bytes()
            + self.modules.memory_bytes()
            + of(&self.counters)
            + metrics
    }

    /// Puts the records in the order that the other modules rely on, without those whose times cannot be and without control
    /// characters in names.
    pub fn sort(&mut self) {
        let impossible = self.gpu_events.retain(|e| time_is_possible(e.start_ns, e.dur_ns))
            + self.calls.retain(|c| time_is_possible(c.start_ns, c.dur_ns))
            + self.ops.retain(|o| time_is_possible(o.start_ns, o.dur_ns))
            + self.marks.retain(|m| time_is_possible(m.start_ns, m.dur_ns))
            + self.modules.retain(|m| time_is_possible(m.start_ns, m.dur_ns));
        if impossible > 0 {
            self.reading.unreadable += impossible as u64;
            self.reading.first_unreadable.get_or_insert_with(|| "a time is out of range".to_string());
        }
        self.names.make_visible();
        for name in self.devices.iter_mut().map(|d| &mut d.name).chain([&mut self.source]) {
            *name = one_line(name);
        }
        self.gpu_events.sort_by_key(|e| e.start_ns);
        self.calls.sort_by_key(|c| c.start_ns);
        self.ops.sort_by_key(|o| (o.start_ns, std::cmp::Reverse(o.dur_ns)));
        self.marks.sort_by_key(|m| (m.start_ns, std::cmp::Reverse(m.dur_ns)));
        self.modules.sort_by_key(|m| (m.start_ns, std::cmp::Reverse(m.dur_ns)));
    }
}
