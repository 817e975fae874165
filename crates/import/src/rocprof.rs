//! rocprofv3 JSON (`rocprofv3 --kernel-trace --memory-copy-trace -f json`): agents, kernel symbols and buffer records of AMD's
//! rocprofiler-sdk. Kernels have no host call, so nothing is attributed to operators.

use crate::ImportError;
use crate::control::Meter;
use preflop_core::profile::{Device, Format, GpuEvent, GpuKind, NameId, Profile};
use serde::Deserialize;
use std::collections::HashMap;
use std::io::Read;

/// What such a file has near its beginning.
pub const MARK: &str = "rocprofiler-sdk-tool";
/// The kind of agent that is a GPU.
const GPU: u32 = 2;

#[derive(Deserialize)]
struct File {
    #[serde(rename = "rocprofiler-sdk-tool")]
    processes: Vec<Process>,
}

#[derive(Deserialize)]
struct Process {
    #[serde(default)]
    agents: Vec<Agent>,
    #[serde(default)]
    kernel_symbols: Vec<Symbol>,
    #[serde(default)]
    buffer_records: Records,
}

#[derive(Deserialize)]
struct Handle {
    handle: u64,
}

#[derive(Deserialize)]
struct Agent {
    id: Handle,
    #[serde(rename = "type", default)]
    kind: u32,
    #[serde(default)]
    name: String,
    #[serde(default)]
    product_name: String,
    #[serde(default)]
    cu_count: u32,
    #[serde(default)]
    wave_front_size: u32,
}

#[derive(Deserialize)]
struct Symbol {
    kernel_id: u64,
    #[serde(default)]
    formatted_kernel_name: String,
    #[serde(default)]
    kernel_name: String,
}

#[derive(Deserialize, Default)]
struct Records {
    #[serde(default)]
    kernel_dispatch: Vec<Dispatch>,
    #[serde(default)]
    memory_copy: Vec<Copy>,
}

#[derive(Deserialize, Clone, Copy)]
struct Size {
    x: u64,
    #[serde(default = "one")]
    y: u64,
    #[serde(default = "one")]
    z: u64,
}

fn one() -> u64 {
    1
}

impl Size {
    fn all(self) -> u64 {
        self.x.saturating_mul(self.y).saturating_mul(self.z)
    }
}

#[derive(Deserialize)]
struct Dispatch {
    start_timestamp: u64,
    end_timestamp: u64,
    #[serde(rename = "dispatch_info")]
    info: Info,
}

#[derive(Deserialize)]
struct Info {
    agent_id: Handle,
    queue_id: Handle,
    kernel_id: u64,
    #[serde(default)]
    group_segment_size: u64,
    workgroup_size: Size,
    grid_size: Size,
}

#[derive(Deserialize)]
struct Copy {
    start_timestamp: u64,
    end_timestamp: u64,
    dst_agent_id: Handle,
    src_agent_id: Handle,
    #[serde(default)]
    bytes: u64,
}

/// Reads the file.
pub fn read(mut reader: impl Read, name: &str, meter: &mut Meter) -> Result<Profile, ImportError> {
    let bytes = meter.read_all(&mut reader)?;
    let file: File = serde_json::from_slice(&bytes).map_err(|e| ImportError::Malformed {
        file: name.to_string(),
        offset: 0,
        detail: format!("not as rocprofv3 writes it: {e}"),
    })?;
    let mut profile = Profile::new(name, Format::Rocprof);
    for process in file.processes {
        add(process, &mut profile);
        meter.check(&profile)?;
    }
    if profile.gpu_events.is_empty() {
        let what = "it holds no kernel; record with `--kernel-trace`".to_string();
        return Err(ImportError::Truncated { file: name.to_string(), what });
    }
    Ok(profile)
}

fn add(process: Process, profile: &mut Profile) {
    let mut devices: HashMap<u64, i32> = HashMap::new();
    for agent in process.agents.into_iter().filter(|a| a.kind == GPU) {
        let Ok(id) = i32::try_from(devices.len()) else { break };
        devices.insert(agent.id.handle, id);
        if profile.devices.iter().all(|d| d.id != i64::from(id)) {
            profile.devices.push(Device {
                id: i64::from(id),
                name: if agent.product_name.is_empty() { agent.name } else { agent.product_name },
                sm_count: (agent.cu_count > 0).then_some(agent.cu_count),
                warp_size: (agent.wave_front_size > 0).then_some(agent.wave_front_size),
                ..Device::default()
            });
        }
    }
    let mut names: HashMap<u64, NameId> = HashMap::new();
    for symbol in process.kernel_symbols {
        let name = if symbol.formatted_kernel_name.is_empty() {
            symbol.kernel_name
        } else {
            symbol.formatted_kernel_name
        };
        names.insert(symbol.kernel_id, profile.names.add(name.trim_end_matches(".kd")));
    }
    let unknown = profile.names.add("(kernel without a symbol)");
    let copied = profile.names.add("memory copy");
    let records = process.buffer_records;
    profile.reading.events += (records.kernel_dispatch.len() + records.memory_copy.len()) as u64;
    for d in records.kernel_dispatch {
        let Some(device) = devices.get(&d.info.agent_id.handle) else { continue };
        let Some(dur_ns) = d.end_timestamp.checked_sub(d.start_timestamp) else {
            profile.reading.unreadable += 1;
            continue;
        };
        let threads = d.info.workgroup_size.all().max(1);
        profile.reading.kept += 1;
        profile.gpu_events.push(GpuEvent {
            start_ns: i64::try_from(d.start_timestamp).unwrap_or(i64::MAX),
            dur_ns: i64::try_from(dur_ns).unwrap_or(i64::MAX),
            name: names.get(&d.info.kernel_id).copied().unwrap_or(unknown),
            kind: GpuKind::Kernel,
            graph: false,
            device: *device,
            stream: d.info.queue_id.handle as i32,
            correlation: 0,
            external: 0,
            // AMD's grids count threads, not blocks.
            blocks: d.info.grid_size.all().div_ceil(threads),
            threads: u32::try_from(threads).unwrap_or(0),
            registers: 0,
            shared_bytes: u32::try_from(d.info.group_segment_size).unwrap_or(0),
            has_resources: false,
            bytes: 0,
        });
    }
    for c in records.memory_copy {
        let (from, to) = (devices.get(&c.src_agent_id.handle), devices.get(&c.dst_agent_id.handle));
        let (kind, device) = match (from, to) {
            (Some(a), Some(b)) if a == b => (GpuKind::CopyDevice, *a),
            (Some(a), Some(_)) => (GpuKind::CopyPeer, *a),
            (Some(a), None) | (None, Some(a)) => (GpuKind::CopyHost, *a),
            (None, None) => continue,
        };
        let Some(dur_ns) = c.end_timestamp.checked_sub(c.start_timestamp) else {
            profile.reading.unreadable += 1;
            continue;
        };
        profile.reading.kept += 1;
        profile.gpu_events.push(GpuEvent {
            start_ns: i64::try_from(c.start_timestamp).unwrap_or(i64::MAX),
            dur_ns: i64::try_from(dur_ns).unwrap_or(i64::MAX),
            name: copied,
            kind,
            graph: false,
            device,
            stream: 0,
            correlation: 0,
            external: 0,
            blocks: 0,
            threads: 0,
            registers: 0,
            shared_bytes: 0,
            has_resources: false,
            bytes: c.bytes,
        });
    }
}

#[cfg(test)]
mod tests {
    use crate::import_bytes;
    use preflop_core::profile::{Format, GpuKind};

    const FILE: &str = r#"{"rocprofiler-sdk-tool": [{
        "metadata": {"pid": 4711},
        "agents": [
            {"id": {"handle": 1}, "type": 1, "name": "AMD EPYC", "product_name": "AMD EPYC", "cu_count": 64},
            {"id": {"handle": 9}, "type": 2, "name": "gfx942", "product_name": "AMD Instinct MI300X", "cu_count": 304, "wave_front_size": 64}],
        "kernel_symbols": [{"kernel_id": 3, "kernel_name": "_Z3gemm.kd", "formatted_kernel_name": "Cijk_Ailk_Bljk_BBS_MT256x256x64.kd"}],
        "buffer_records": {
            "kernel_dispatch": [{"start_timestamp": 1000, "end_timestamp": 51000, "dispatch_info": {
                "agent_id": {"handle": 9}, "queue_id": {"handle": 2}, "kernel_id": 3, "group_segment_size": 32768,
                "workgroup_size": {"x": 256, "y": 1, "z": 1}, "grid_size": {"x": 65536, "y": 2, "z": 1}}}],
            "memory_copy": [{"start_timestamp": 100, "end_timestamp": 900, "dst_agent_id": {"handle": 9}, "src_agent_id": {"handle": 1}, "bytes": 4096}]
        }}]}"#;

    #[test]
    fn dispatches_and_copies_are_read() {
        let p = import_bytes(FILE.as_bytes(), "results.json").unwrap();
        assert_eq!((p.format, p.gpu_events.len()), (Format::Rocprof, 2));
        let (copy, kernel) = (&p.gpu_events.at(0), &p.gpu_events.at(1));
        assert_eq!((copy.kind, copy.bytes, copy.dur_ns), (GpuKind::CopyHost, 4096, 800));
        assert_eq!(p.names.text(kernel.name), "Cijk_Ailk_Bljk_BBS_MT256x256x64");
        // 65536 x 2 threads in groups of 256: 512 blocks
        assert_eq!((kernel.dur_ns, kernel.blocks, kernel.threads), (50_000, 512, 256));
        assert_eq!((p.devices[0].name.as_str(), p.devices[0].sm_count), ("AMD Instinct MI300X", Some(304)));
    }

    #[test]
    fn odd_files_get_one_line() {
        let cut = import_bytes(&FILE.as_bytes()[..400], "cut.json").unwrap_err().to_string();
        assert!(cut.contains("cut.json") && cut.contains("rocprofv3"), "{cut}");
        let none = import_bytes(br#"{"rocprofiler-sdk-tool": [{"agents": []}]}"#, "none.json")
            .unwrap_err()
            .to_string();
        assert!(none.contains("--kernel-trace"), "{none}");
    }
}
