//! PyTorch profiler traces (Kineto), as Chrome trace JSON, from 2021 to today, NVIDIA and AMD.

use crate::ImportError;
use crate::chakra;
use crate::control::Meter;
use crate::error::short;
use crate::json_stream::Handler;
use crate::mend::mend;
use crate::number::{count, integer, nanoseconds, product};
use preflop_core::profile::{
    CallKind, Counters, Device, Format, GpuEvent, GpuKind, HostCall, HostOp, Mark, NameId, Profile,
    time_is_possible,
};
use serde::Deserialize;
use serde_json::error::Category;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt::Write as _;

type Raw<'a> = Option<&'a RawValue>;

/// One trace event: only what we use, borrowed.
#[derive(Deserialize)]
struct Event<'a> {
    #[serde(borrow, default)]
    ph: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    cat: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    name: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pid: Raw<'a>,
    #[serde(borrow, default)]
    tid: Raw<'a>,
    #[serde(borrow, default)]
    ts: Raw<'a>,
    #[serde(borrow, default)]
    dur: Raw<'a>,
    #[serde(borrow, default)]
    args: Option<Args<'a>>,
}

#[derive(Deserialize, Default)]
struct Args<'a> {
    #[serde(borrow, default, rename = "External id", alias = "external id")]
    external: Raw<'a>,
    #[serde(borrow, default)]
    correlation: Raw<'a>,
    #[serde(borrow, default)]
    device: Raw<'a>,
    #[serde(borrow, default)]
    stream: Raw<'a>,
    #[serde(borrow, default)]
    grid: Raw<'a>,
    #[serde(borrow, default)]
    block: Raw<'a>,
    #[serde(borrow, default, rename = "registers per thread")]
    registers: Raw<'a>,
    #[serde(borrow, default, rename = "shared memory")]
    shared: Raw<'a>,
    #[serde(borrow, default)]
    bytes: Raw<'a>,
    #[serde(borrow, default, rename = "graph node id")]
    graph_node: Raw<'a>,
    #[serde(borrow, default, rename = "Sequence number", alias = "Sequence Number")]
    sequence: Raw<'a>,
    #[serde(borrow, default, rename = "Fwd thread id")]
    forward_thread: Raw<'a>,
    #[serde(borrow, default, rename = "Input Dims", alias = "Input dims")]
    dims: Raw<'a>,
    #[serde(borrow, default, rename = "Input type")]
    types: Raw<'a>,
    #[serde(borrow, default, rename = "Input Strides")]
    strides: Raw<'a>,
    #[serde(borrow, default, rename = "Concrete Inputs")]
    concrete: Raw<'a>,
}

fn text(raw: Raw<'_>) -> Option<&str> {
    raw.map(RawValue::get)
}

/// What an event is, by its category; names changed over the years.
enum Kind {
    Kernel,
    Copy,
    Memset,
    Operator,
    Call,
    Annotation,
    Python,
    Range,
    /// Known, and of no use: flows, spans, the GPU's echo of annotations (which would count work twice).
    Ignored,
}

fn kind(category: &str) -> Kind {
    match category {
        "kernel" | "Kernel" => Kind::Kernel,
        "gpu_memcpy" | "Memcpy" | "memcpy" => Kind::Copy,
        "gpu_memset" | "Memset" | "memset" => Kind::Memset,
        "cpu_op" | "Operator" | "operator" => Kind::Operator,
        "cuda_runtime" | "cuda_driver" | "Runtime" | "runtime" | "hip_runtime" | "privateuse1_runtime" => {
            Kind::Call
        }
        "user_annotation" | "User Annotation" => Kind::Annotation,
        "python_function" | "Python" => Kind::Python,
        "cuda_profiler_range" => Kind::Range,
        _ => Kind::Ignored,
    }
}

/// Top-level fields that are kept. Everything else, `metadata` first of all, is skipped unread.
const WANTED: [&str; 3] = ["deviceProperties", "distributedInfo", "schema"];

/// Top-level fields without any secret, of no use here.
const HARMLESS: [&str; 16] = [
    "schemaVersion",
    "displayTimeUnit",
    "baseTimeNanoseconds",
    "record_shapes",
    "profile_memory",
    "with_stack",
    "with_flops",
    "with_modules",
    "cuda_driver_version",
    "cuda_runtime_version",
    "cupti_version",
    "hip_driver_version",
    "hip_runtime_version",
    "roctracer_version",
    "pid",
    "start_ts",
];

/// Fields left out that are told by name.
const MAX_DROPPED: usize = 100;

/// Fills a profile from a trace.
pub struct Importer<'p> {
    profile: &'p mut Profile,
    meter: &'p mut Meter,
    thread: String,
    nodes: chakra::Nodes,
}

impl<'p> Importer<'p> {
    pub fn new(profile: &'p mut Profile, meter: &'p mut Meter) -> Self {
        Self { profile, meter, thread: String::new(), nodes: chakra::Nodes::default() }
    }

    fn thread(&mut self, event: &Event) -> NameId {
        self.thread.clear();
        let _ = write!(self.thread, "{}/{}", text(event.pid).unwrap_or(""), text(event.tid).unwrap_or(""));
        self.profile.names.add(&self.thread)
    }

    fn unreadable(&mut self, why: &str) {
        self.profile.reading.unreadable += 1;
        if self.profile.reading.first_unreadable.is_none() {
            let number = self.profile.reading.events;
            self.profile.reading.first_unreadable = Some(format!("event {number}: {}", short(why)));
        }
    }

    fn event(&mut self, event: &Event, whole: &str) {
        if event.ph.as_deref() != Some("X") {
            return;
        }
        let name = event.name.as_deref().unwrap_or("");
        let step = name.starts_with("ProfilerStep#");
        let kind = match (event.cat.as_deref(), step) {
            (Some("gpu_user_annotation"), _) => Kind::Ignored,
            (_, true) => Kind::Annotation,
            (Some(category), _) => kind(category),
            // The first profilers wrote no category; their threads are named.
            (None, _) if text(event.tid) == Some("\"CUDA functions\"") => Kind::Kernel,
            (None, _) if text(event.tid) == Some("\"CPU functions\"") => Kind::Operator,
            (None, _) => Kind::Ignored,
        };
        if matches!(kind, Kind::Ignored) || (matches!(kind, Kind::Python) && !name.starts_with("nn.Module: "))
        {
            return;
        }
        let start = text(event.ts).and_then(nanoseconds);
        let duration = text(event.dur).map_or(Some(0), nanoseconds);
        let (Some(start_ns), Some(dur_ns)) = (start, duration) else {
            self.unreadable("its `ts` or `dur` is no time");
            return;
        };
        if !time_is_possible(start_ns, dur_ns) {
            self.unreadable("its time is out of range");
            return;
        }
        self.profile.reading.kept += 1;
        let none = Args::default();
        let args = event.args.as_ref().unwrap_or(&none);
        match kind {
            Kind::Kernel => self.gpu(event, args, name, start_ns, dur_ns, GpuKind::Kernel),
            Kind::Memset => self.gpu(event, args, name, start_ns, dur_ns, GpuKind::Memset),
            Kind::Copy => self.gpu(event, args, name, start_ns, dur_ns, copy_kind(name)),
            Kind::Operator => self.operator(event, args, name, start_ns, dur_ns),
            Kind::Call => self.call(event, args, name, start_ns, dur_ns),
            Kind::Annotation | Kind::Python => {
                let thread = self.thread(event);
                let name = self.profile.names.add(name);
                let mark = Mark { start_ns, dur_ns, name, thread };
                let list = if matches!(kind, Kind::Python) {
                    &mut self.profile.modules
                } else {
                    &mut self.profile.marks
                };
                list.push(mark);
            }
            Kind::Range => self.range(name, whole),
            Kind::Ignored => {}
        }
    }

    fn gpu(&mut self, event: &Event, args: &Args, name: &str, start_ns: i64, dur_ns: i64, kind: GpuKind) {
        let number = |raw: Raw| text(raw).and_then(integer).unwrap_or(0);
        let name = self.profile.names.add(name);
        let device = text(args.device).or(text(event.pid)).and_then(integer).unwrap_or(0) as i32;
        let stream = text(args.stream).or(text(event.tid)).and_then(integer).unwrap_or(0) as i32;
        self.profile.gpu_events.push(GpuEvent {
            start_ns,
            dur_ns,
            name,
            kind,
            graph: number(args.graph_node) != 0,
            device,
            stream,
            correlation: number(args.correlation),
            external: number(args.external),
            blocks: product(text(args.grid)),
            threads: product(text(args.block)).min(1 << 20) as u32,
            registers: count(text(args.registers)).min(1 << 16) as u32,
            shared_bytes: count(text(args.shared)).min(1 << 30) as u32,
            has_resources: args.registers.is_some(),
            bytes: count(text(args.bytes)),
        });
    }

    fn operator(&mut self, event: &Event, args: &Args, name: &str, start_ns: i64, dur_ns: i64) {
        let thread = self.thread(event);
        let names = &mut self.profile.names;
        let mut keep = |raw: Raw| text(raw).map_or(NameId::EMPTY, |t| names.add(t));
        let (dims, types) = (keep(args.dims), keep(args.types));
        let (strides, concrete) = (keep(args.strides), keep(args.concrete));
        let backward = count(text(args.forward_thread)) > 0 || name.starts_with("autograd::engine");
        let name = self.profile.names.add(name);
        self.profile.ops.push(HostOp {
            start_ns,
            dur_ns,
            name,
            thread,
            external: text(args.external).and_then(integer).unwrap_or(0),
            sequence: text(args.sequence).and_then(integer).unwrap_or(-1),
            backward,
            dims,
            types,
            strides,
            concrete,
        });
    }

    fn call(&mut self, event: &Event, args: &Args, name: &str, start_ns: i64, dur_ns: i64) {
        let Some(kind) = call_kind(name) else { return };
        let thread = self.thread(event);
        let name = self.profile.names.add(name);
        let correlation = text(args.correlation).and_then(integer).unwrap_or(0);
        self.profile.calls.push(HostCall { start_ns, dur_ns, name, thread, correlation, kind });
    }

    /// Counters of the CUPTI range profiler: the kernels ran alone and again and again, so their time is none.
    fn range(&mut self, name: &str, whole: &str) {
        #[derive(Deserialize)]
        struct Counted {
            args: std::collections::BTreeMap<String, serde_json::Value>,
        }
        let Ok(counted) = serde_json::from_str::<Counted>(whole) else { return };
        let metrics = counted
            .args
            .iter()
            .filter_map(|(metric, value)| Some((self.profile.names.add(metric), value.as_f64()?)))
            .collect();
        let kernel = self.profile.names.add(name);
        self.profile.counters.push(Counters { kernel, dur_ns: 0, metrics });
    }
}

/// Direction of a copy, by its name.
pub fn copy_kind(name: &str) -> GpuKind {
    if name.contains("HtoD") || name.contains("DtoH") || name.contains("HtoH") {
        GpuKind::CopyHost
    } else if name.contains("PtoP") {
        GpuKind::CopyPeer
    } else {
        GpuKind::CopyDevice
    }
}

/// What a call of the CUDA or HIP runtime or driver does; `None` for those that neither launch nor wait.
pub fn call_kind(name: &str) -> Option<CallKind> {
    if name.contains("GraphLaunch") {
        Some(CallKind::GraphLaunch)
    } else if name.contains("Launch") || name.contains("Memcpy") || name.contains("Memset") {
        Some(CallKind::Launch)
    } else if name.contains("Synchronize") {
        Some(CallKind::Sync)
    } else {
        None
    }
}

/// HIP's extended module launch counts its grid in threads, not in blocks.
const LAUNCH_IN_THREADS: &str = "hipExtModuleLaunchKernel";

fn grids_in_blocks(profile: &mut Profile) {
    let in_threads: HashSet<i64> = profile
        .calls
        .iter()
        .filter(|c| profile.names.text(c.name) == LAUNCH_IN_THREADS)
        .map(|c| c.correlation)
        .collect();
    if in_threads.is_empty() {
        return;
    }
    let counted = profile.gpu_events.iter().map(|mut event| {
        if event.threads > 0 && in_threads.contains(&event.correlation) {
            event.blocks = event.blocks.div_ceil(u64::from(event.threads));
        }
        event
    });
    profile.gpu_events = counted.collect();
}

impl Handler for Importer<'_> {
    fn is_events(&self, key: &str) -> bool {
        key == "traceEvents" || key == "nodes"
    }

    fn wants(&self, key: &str) -> bool {
        WANTED.contains(&key)
    }

    fn field(&mut self, key: &str, value: &[u8]) {
        match key {
            "deviceProperties" => self.profile.devices = devices(value),
            "distributedInfo" => {
                #[derive(Deserialize)]
                struct Distributed {
                    world_size: Option<u32>,
                }
                let info: Option<Distributed> = serde_json::from_slice(value).ok();
                self.profile.world_size = info.and_then(|d| d.world_size);
            }
            _ => {}
        }
    }

    fn skipped(&mut self, key: &str) {
        if !HARMLESS.contains(&key) && self.profile.reading.dropped_fields.len() < MAX_DROPPED {
            self.profile.reading.dropped_fields.push(short(key));
        }
    }

    fn element(&mut self, key: &str, element: &[u8]) -> Result<(), String> {
        self.profile.reading.events += 1;
        if key == "nodes" {
            self.profile.format = Format::Chakra;
            return match self.nodes.node(element, self.profile) {
                Ok(()) => Ok(()),
                Err(e) if e.classify() == Category::Data => {
                    self.unreadable(&e.to_string());
                    Ok(())
                }
                Err(e) => Err(e.to_string()),
            };
        }
        let error = match parse(element) {
            Ok(event) => {
                // Checked by the parser where it matters; only counters read it again.
                let whole = std::str::from_utf8(element).unwrap_or("");
                self.event(&event, whole);
                return Ok(());
            }
            Err(e) => e,
        };
        let mended = mend(element).unwrap_or_default();
        if let Ok(event) = parse(mended.as_bytes()) {
            self.profile.reading.mended += 1;
            self.event(&event, &mended);
            return Ok(());
        }
        if error.classify() == Category::Data {
            self.unreadable(&error.to_string());
            return Ok(());
        }
        Err(error.to_string())
    }

    fn pause(&mut self) -> Result<(), ImportError> {
        self.meter.check(self.profile)
    }

    fn finish(&mut self) -> Result<(), String> {
        grids_in_blocks(self.profile);
        let p = &self.profile;
        if p.format == Format::Chakra {
            return if p.ops.is_empty() { Err("it holds no operators".to_string()) } else { Ok(()) };
        }
        if p.reading.events == 0 {
            return Err("it is JSON without trace events".to_string());
        }
        if p.reading.kept == 0 {
            let first = p.reading.first_unreadable.as_deref().unwrap_or("no event is of a kind we know");
            return Err(format!("none of its {} events can be used ({first})", p.reading.events));
        }
        Ok(())
    }
}

fn parse(element: &[u8]) -> Result<Event<'_>, serde_json::Error> {
    serde_json::from_slice(element)
}

fn devices(value: &[u8]) -> Vec<Device> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Properties {
        #[serde(default)]
        id: i64,
        #[serde(default)]
        name: String,
        num_sms: Option<u32>,
        total_global_mem: Option<u64>,
        compute_major: Option<u32>,
        compute_minor: Option<u32>,
        warp_size: Option<u32>,
    }
    let properties: Vec<Properties> = serde_json::from_slice(value).unwrap_or_default();
    properties
        .into_iter()
        .map(|p| Device {
            id: p.id,
            name: p.name,
            sm_count: p.num_sms,
            memory_bytes: p.total_global_mem,
            capability: p.compute_major.zip(p.compute_minor),
            warp_size: p.warp_size,
        })
        .collect()
}
