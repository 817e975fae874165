//! Any bytes in: a profile or one line of error, never a panic. Small recordings of our own, no one else's.
#![allow(clippy::unwrap_used)]

use flate2::Compression;
use flate2::write::GzEncoder;
use preflop_core::profile::explain::{Explanation, explain};
use preflop_core::profile::{Analysis, Format, GpuKind, window::Choice};
use preflop_core::time::TimeModel;
use preflop_import::import_bytes;
use proptest::prelude::*;
use std::io::Write as _;
use std::sync::LazyLock;

static MODEL: LazyLock<TimeModel> = LazyLock::new(TimeModel::embedded);

/// Two steps of a linear layer, with an orphan, a copy, secrets and a broken name.
const TRACE: &str = r#"{
  "schemaVersion": 1,
  "deviceProperties": [{"id": 0, "name": "NVIDIA H200", "totalGlobalMem": 150109880320, "numSms": 132, "warpSize": 32}],
  "metadata": {"env": {"HF_TOKEN": "none-of-yours"}},
  "traceEvents": [
    {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "pid": 1, "tid": 1, "ts": 1000.0, "dur": 500},
    {"ph": "X", "cat": "cpu_op", "name": "aten::addmm", "pid": 1, "tid": 1, "ts": 1010.5, "dur": 40, "args": {"External id": 5, "Input Dims": [[256], [64, 128], [128, 256], [], []], "Input type": ["float", "float", "float", "Scalar", "Scalar"]}},
    {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": 1020, "dur": 6, "args": {"correlation": 77}},
    {"ph": "X", "cat": "kernel", "name": "ampere_sgemm_64x64_tn", "pid": 0, "tid": 7, "ts": 1040.25, "dur": 100.125, "args": {"device": 0, "stream": 7, "correlation": 77, "registers per thread": 90, "shared memory": 65536, "grid": [4, 1, 1], "block": [128, 1, 1], "memory bandwidth (GB/s)": inf}},
    {"ph": "X", "cat": "Kernel", "name": "orphan", "pid": 0, "tid": 7, "ts": 1200, "dur": 10, "args": {"correlation": 18446744073709551615}},
    {"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy HtoD (Pageable -> Device)", "pid": 0, "tid": 7, "ts": 1300, "dur": 5, "args": {"bytes": 4096}},
    {"ph": "X", "cat": "gpu_user_annotation", "name": "Optimizer.step#Adam.step", "pid": 0, "tid": 7, "ts": 1000, "dur": 400},
    {"ph": "X", "cat": "kernel", "name": "no time", "pid": 0, "tid": 7, "ts": "never", "dur": 1},
    {"ph": "M", "name": "process_name", "pid": 1}
  ]
}"#;

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(bytes).unwrap();
    packed.finish().unwrap()
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest)
}

#[test]
fn plain_and_packed_files_read_alike() {
    for bytes in [TRACE.as_bytes().to_vec(), gzip(TRACE.as_bytes()), zstd(TRACE.as_bytes())] {
        let p = import_bytes(&bytes, "t").unwrap();
        assert_eq!((p.gpu_events.len(), p.ops.len(), p.calls.len()), (3, 1, 1));
        assert_eq!((p.reading.events, p.reading.unreadable, p.reading.mended), (9, 1, 1));
        assert_eq!(p.reading.first_unreadable.as_deref(), Some("event 8: its `ts` or `dur` is no time"));
        assert_eq!(p.reading.dropped_fields, vec!["metadata"]);
        assert_eq!(p.gpu_events.at(2).kind, GpuKind::CopyHost);
        // Nanoseconds, exactly.
        assert_eq!((p.gpu_events.at(0).start_ns, p.gpu_events.at(0).dur_ns), (1_040_250, 100_125));
        let a = Analysis::new(&p, &Choice::default()).unwrap();
        // 10 us of orphan, 5 us of a copy without a call
        assert!((a.unattributed().us() - 15.0).abs() < 1e-9);
        assert!((a.measured().us() - 500.0).abs() < 1e-9);
        assert_eq!(a.work(&a.groups[0]).unwrap().flops.0, 2.0 * 64.0 * 256.0 * 128.0);
    }
}

#[test]
fn traces_of_2021_read_too() {
    let old = r#"{"traceEvents": [
        {"ph": "X", "cat": "Operator", "name": "aten::mm", "pid": 1, "tid": "1", "ts": 0, "dur": 40, "args": {"External id": "5", "Input dims": [[64, 128], [128, 256]]}},
        {"ph": "X", "cat": "Runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": "1", "ts": 10, "dur": 6, "args": {"correlation": "77"}},
        {"ph": "X", "cat": "Kernel", "name": "k", "pid": 0, "tid": "stream 7", "ts": 20, "dur": 10, "args": {"device": 0, "correlation": "77"}},
        {"ph": "X", "cat": "Memset", "name": "Memset (Device)", "pid": 0, "tid": "stream 7", "ts": 40, "dur": 10}]}"#;
    let p = import_bytes(old.as_bytes(), "t").unwrap();
    let a = Analysis::new(&p, &Choice::default()).unwrap();
    assert_eq!(p.names.text(a.groups[0].name), "aten::mm");
    assert_eq!(p.gpu_events.at(1).kind, GpuKind::Memset);
}

#[test]
fn grids_of_hip_module_launches_are_in_threads() {
    let amd = r#"{"traceEvents": [
        {"ph": "X", "cat": "cuda_runtime", "name": "hipExtModuleLaunchKernel", "pid": 1, "tid": 1, "ts": 0, "dur": 6, "args": {"correlation": 1}},
        {"ph": "X", "cat": "kernel", "name": "Cijk_A", "pid": 2, "tid": 0, "ts": 20, "dur": 10, "args": {"correlation": 1, "grid": [114944, 1, 1], "block": [256, 1, 1]}}]}"#;
    let p = import_bytes(amd.as_bytes(), "t").unwrap();
    assert_eq!((p.gpu_events.at(0).blocks, p.gpu_events.at(0).has_resources), (449, false));
}

#[test]
fn host_traces_have_operators() {
    let et = r#"{"schema": "1.1.0-chakra.0.0.4", "pid": 1, "nodes": [
        {"id": 1, "name": "[pytorch|profiler|execution_trace|thread]", "ctrl_deps": 1, "inputs": {}, "attrs": []},
        {"id": 2, "name": "aten::mm", "ctrl_deps": 1, "inputs": {"values": [], "shapes": [[64, 128], [128, 256]], "types": ["Tensor(float)", "Tensor(float)"]}, "attrs": []}]}"#;
    let p = import_bytes(et.as_bytes(), "t").unwrap();
    assert_eq!((p.format, p.ops.len()), (Format::Chakra, 1));
    assert!(Analysis::new(&p, &Choice::default()).is_err());
}

#[test]
fn bad_files_say_what_is_wrong() {
    let cut = &gzip(TRACE.as_bytes())[..200];
    for (bytes, word) in [
        (&b""[..], "empty"),
        (b"  \n ", "empty"),
        (b"\xff\xfe\x00garbage", "no profile we know"),
        (b"hello", "no profile we know"),
        (b"{\"a\": 1}", "without trace events"),
        (b"{\"traceEvents\": []}", "without trace events"),
        (b"{\"traceEvents\": [1, 2]}", "can be used"),
        (b"{\"traceEvents\": 5}", "without trace events"),
        (b"[]", "without trace events"),
        (b"{\"traceEvents\": [{\"ph\": }]}", "malformed at byte 17"),
        (b"{\"traceEvents\": [{\"ph\": \"X\"}", "cut off"),
        (b"SQLite format 3\0 and nothing", "`t`"),
        (b"\"ID\",\"Kernel Name\"\n\"0", "cut off"),
        (cut, "cut off"),
    ] {
        let error = import_bytes(bytes, "t").unwrap_err().to_string();
        assert!(error.contains(word) && !error.contains('\n'), "{error}");
    }
}

fn finite(said: &Explanation) -> bool {
    let times =
        [said.iteration_ms, said.gpu_wall_ms, said.host_ms, said.timeline.total_ms, said.idle.total_ms()];
    times.iter().all(|t| t.is_finite() && *t >= 0.0)
}

#[test]
fn times_that_cannot_be_are_left_out_in_every_format() {
    let rocprof = |start: u64, end: u64| {
        format!(
            r#"{{"rocprofiler-sdk-tool": [{{"agents": [{{"id": {{"handle": 9}}, "type": 2, "name": "gfx942"}}],
            "kernel_symbols": [], "buffer_records": {{"memory_copy": [], "kernel_dispatch": [
              {{"start_timestamp": 10, "end_timestamp": 20, "dispatch_info": {{"agent_id": {{"handle": 9}}, "queue_id": {{"handle": 2}}, "kernel_id": 3, "workgroup_size": {{"x": 1, "y": 1, "z": 1}}, "grid_size": {{"x": 1, "y": 1, "z": 1}}}}}},
              {{"start_timestamp": {start}, "end_timestamp": {end}, "dispatch_info": {{"agent_id": {{"handle": 9}}, "queue_id": {{"handle": 2}}, "kernel_id": 3, "workgroup_size": {{"x": 1, "y": 1, "z": 1}}, "grid_size": {{"x": 1, "y": 1, "z": 1}}}}}}]}}}}]}}"#
        )
    };
    let nvprof = |grid: &str, dur: &str| {
        format!(
            "\"Start\",\"Duration\",\"Grid X\",\"Grid Y\",\"Grid Z\",\"Block X\",\"Block Y\",\"Block Z\",\"Device\",\"Context\",\"Stream\",\"Name\"\n\
             s,us,,,,,,,,,,\n1,1,1,1,1,1,1,1,\"V100 (0)\",1,7,k\n1,{dur},{grid},{grid},2,{grid},{grid},1,\"V100 (0)\",1,7,k\n"
        )
    };
    let kineto = |ts: &str, dur: &str| {
        format!(
            r#"{{"traceEvents": [{{"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": 1}}, {{"ph": "X", "cat": "kernel", "name": "k", "ts": {ts}, "dur": {dur}}}]}}"#
        )
    };
    for (text, kept) in [
        (rocprof(u64::MAX - 1, u64::MAX), 1),
        (rocprof(0, u64::MAX), 1),
        (rocprof(0, 7_258_118_400_000_000_000), 2),
        (nvprof("1e30", "1"), 2),
        (nvprof("1", "1e300"), 1),
        (kineto("7258118400000000", "0"), 2),
        (kineto("7258118400000000", "1"), 1),
        (kineto("-7258118400000000", "7258118400000000"), 1),
    ] {
        let p = import_bytes(text.as_bytes(), "t").unwrap();
        assert_eq!((p.gpu_events.len(), p.reading.unreadable), (kept, 2 - kept as u64), "{text}");
        let a = Analysis::new(&p, &Choice::default()).unwrap();
        assert!(finite(&explain(&a, &MODEL, None)), "{text}");
    }
}

#[test]
fn names_have_no_control_characters() {
    let text = TRACE
        .replace("\"orphan\"", r#""or\u001b[31m\u009bphan""#)
        .replace("NVIDIA H200", r"NVIDIA\u0007H200");
    let p = import_bytes(text.as_bytes(), "t").unwrap();
    let names: Vec<&str> = p.gpu_events.iter().map(|e| p.names.text(e.name)).collect();
    assert_eq!(names[1], "or [31m phan");
    assert_eq!(p.devices[0].name, "NVIDIA H200");
}

/// A profile or an error; a profile can be explained.
fn survives(bytes: &[u8]) -> Result<(), TestCaseError> {
    match import_bytes(bytes, "t") {
        Ok(p) => {
            if let Ok(a) = Analysis::new(&p, &Choice::default()) {
                prop_assert!(a.measured().0.is_finite() && a.gpu_busy().0.is_finite());
                prop_assert!(finite(&explain(&a, &MODEL, None)));
            }
        }
        Err(e) => prop_assert!(!e.to_string().contains('\n')),
    }
    Ok(())
}

proptest! {
    #[test]
    fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        survives(&bytes)?;
    }

    #[test]
    fn every_cut_is_an_error(cut in 0..TRACE.len()) {
        prop_assert!(import_bytes(&TRACE.as_bytes()[..cut], "t").is_err());
    }

    #[test]
    fn changed_bytes(at in 0..TRACE.len(), byte in any::<u8>(), more in any::<[u8; 3]>()) {
        let mut bytes = TRACE.as_bytes().to_vec();
        bytes[at] = byte;
        survives(&bytes)?;
        bytes.splice(at..at, more);
        survives(&bytes)?;
    }

    #[test]
    fn changed_packed_bytes(at in 0_usize..700, byte in any::<u8>()) {
        for mut bytes in [gzip(TRACE.as_bytes()), zstd(TRACE.as_bytes())] {
            let at = at % bytes.len();
            bytes[at] = byte;
            survives(&bytes)?;
        }
    }

    #[test]
    fn odd_numbers(ts in "-?[0-9]{1,25}(\\.[0-9]{0,12})?", dur in "-?[0-9]{1,22}", grid in "-?[0-9]{1,22}", corr in "-?[0-9]{1,40}") {
        let text = format!(r#"{{"traceEvents": [
            {{"ph": "X", "cat": "kernel", "name": "k", "ts": {ts}, "dur": {dur}, "args": {{"grid": [{grid}, {grid}, 1], "block": [{grid}, 1, 1], "correlation": {corr}, "shared memory": {grid}}}}},
            {{"ph": "X", "cat": "kernel", "name": "k", "ts": 5, "dur": 5}}]}}"#);
        survives(text.as_bytes())?;
    }
}
