//! Writes a synthetic trace of so many megabytes, reads and explains it, and prints time and peak memory.
//!
//! `cargo run --release -p preflop-import --example import_speed -- 1000`; with `dense` behind it the trace is nothing but launches
//! and kernels, the most records that a megabyte holds.
#![allow(clippy::print_stdout)]

use preflop_core::profile::{Analysis, explain::explain, window::Choice};
use preflop_core::time::TimeModel;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::time::Instant;

/// Operators of one layer, with the kernel that each launches. The mix of records (operators, Python frames, calls,
/// kernels, flows, instants) and their lengths follow a trace recorded with shapes and stacks.
const LAYER: [(&str, &str, &str); 4] = [
    (
        "aten::addmm",
        "[[4096], [8192, 1024], [1024, 4096], [], []]",
        "nvjet_tst_128x256_64x4_2x1_v_bz_coopA_bias_TNT",
    ),
    (
        "aten::gelu",
        "[[16, 512, 4096], []]",
        "void at::native::vectorized_elementwise_kernel<4, at::native::GeluCUDAKernelImpl(at::TensorIteratorBase&, at::native::GeluType)::{lambda()#2}::operator()() const::{lambda()#4}::operator()() const::{lambda(c10::BFloat16)#1}, std::array<char*, 2ul> >(int, at::native::GeluCUDAKernelImpl(at::TensorIteratorBase&, at::native::GeluType)::{lambda()#2}::operator()() const::{lambda()#4}::operator()() const::{lambda(c10::BFloat16)#1}, std::array<char*, 2ul>)",
    ),
    (
        "aten::native_layer_norm",
        "[[16, 512, 1024], [], [1024], [1024], []]",
        "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>(int, float, float const*, float const*, float const*, float*, float*, float*)",
    ),
    (
        "aten::mul",
        "[[16, 512, 1024], [16, 512, 1024]]",
        "void at::native::vectorized_elementwise_kernel<4, at::native::BinaryFunctor<c10::BFloat16, c10::BFloat16, c10::BFloat16, at::native::binary_internal::MulFunctor<float> >, std::array<char*, 3ul> >(int)",
    ),
];

fn write_trace(path: &Path, megabytes: u64, dense: bool) -> io::Result<u64> {
    let mut out = BufWriter::with_capacity(1 << 20, File::create(path)?);
    let mut written = 0_u64;
    let mut put = |text: &str| -> io::Result<u64> {
        out.write_all(text.as_bytes())?;
        written += text.len() as u64;
        Ok(written)
    };
    put(
        "{\"schemaVersion\": 1, \"deviceProperties\": [{\"id\": 0, \"name\": \"NVIDIA H200\", \"totalGlobalMem\": 150109880320, \"computeMajor\": 9, \"computeMinor\": 0, \"warpSize\": 32, \"numSms\": 132}],\n\"traceEvents\": [\n",
    )?;
    let limit = megabytes * 1_000_000;
    let (mut number, mut now) = (0_u64, 1_000_000_u64);
    loop {
        let (op, dims, kernel) = LAYER[(number % 4) as usize];
        number += 1;
        now += 20;
        let text = if dense {
            format!(
                "{{\"ph\": \"X\", \"cat\": \"cuda_runtime\", \"name\": \"cudaLaunchKernel\", \"pid\": 768, \"tid\": 768, \"ts\": {now}.500, \"dur\": 2.731, \"args\": {{\"correlation\": {number}}}}},\n\
                 {{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"{op}\", \"pid\": 0, \"tid\": 7, \"ts\": {now}.900, \"dur\": 3.48, \"args\": {{\"device\": 0, \"stream\": 7, \"correlation\": {number}, \"grid\": [16384, 1, 1], \"block\": [128, 1, 1]}}}}"
            )
        } else {
            format!(
                "{{\"ph\": \"X\", \"cat\": \"python_function\", \"name\": \"torch/nn/modules/module.py(1532): _call_impl\", \"pid\": 768, \"tid\": 768, \"ts\": {now}.125, \"dur\": 18.5, \"args\": {{\"Python parent id\": {number}, \"Python id\": {number}, \"Ev Idx\": {number}}}}},\n\
             {{\"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"{op}\", \"pid\": 768, \"tid\": 768, \"ts\": {now}.250, \"dur\": 15.867, \"args\": {{\"External id\": {number}, \"Record function id\": 0, \"Concrete Inputs\": [\"\", \"\", \"\", \"1\", \"1\"], \"Input type\": [\"c10::BFloat16\", \"c10::BFloat16\", \"c10::BFloat16\", \"Scalar\", \"Scalar\"], \"Input Strides\": [[1], [1024, 1], [1, 1024], [], []], \"Input Dims\": {dims}, \"Sequence number\": {number}, \"Fwd thread id\": 0, \"Ev Idx\": {number}}}}},\n\
             {{\"ph\": \"X\", \"cat\": \"cuda_runtime\", \"name\": \"cudaLaunchKernel\", \"pid\": 768, \"tid\": 768, \"ts\": {now}.500, \"dur\": 5.731, \"args\": {{\"External id\": {number}, \"cbid\": 211, \"correlation\": {number}}}}},\n\
             {{\"ph\": \"s\", \"id\": {number}, \"pid\": 768, \"tid\": 768, \"ts\": {now}.500, \"cat\": \"ac2g\", \"name\": \"ac2g\"}},\n\
             {{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"{kernel}\", \"pid\": 0, \"tid\": 7, \"ts\": {now}.900, \"dur\": 12.48, \"args\": {{\"External id\": {number}, \"queued\": 0, \"device\": 0, \"context\": 1, \"stream\": 7, \"correlation\": {number}, \"registers per thread\": 32, \"shared memory\": 0, \"blocks per SM\": 124.121, \"warps per SM\": 496.484, \"grid\": [16384, 1, 1], \"block\": [128, 1, 1], \"est. achieved occupancy %\": 100}}}},\n\
             {{\"ph\": \"f\", \"id\": {number}, \"pid\": 0, \"tid\": 7, \"ts\": {now}.900, \"cat\": \"ac2g\", \"name\": \"ac2g\", \"bp\": \"e\"}},\n\
             {{\"ph\": \"i\", \"cat\": \"cpu_instant_event\", \"s\": \"t\", \"name\": \"[memory]\", \"pid\": 768, \"tid\": 768, \"ts\": {now}.960, \"args\": {{\"Total Reserved\": 2629828608, \"Total Allocated\": 1003059712, \"Bytes\": 18317312, \"Addr\": 137877174353920, \"Device Id\": 0, \"Device Type\": 1, \"Ev Idx\": {number}}}}}"
            )
        };
        if put(&text)? >= limit {
            break;
        }
        put(",\n")?;
    }
    put("\n]}\n")?;
    out.flush()?;
    Ok(written)
}

/// Peak resident memory of this process in MB, where the system tells.
fn peak_mb() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|l| l.starts_with("VmHWM:"))?;
    let kib: f64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib * 1024.0 / 1e6)
}

/// Processor time of this process so far in seconds, where the system tells: what other programs take does not count.
fn processor_seconds() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/self/schedstat").ok()?;
    let ns: f64 = text.split_whitespace().next()?.parse().ok()?;
    Some(ns / 1e9)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let megabytes = std::env::args().nth(1).map_or(Ok(100), |a| a.parse::<u64>())?;
    let path = std::env::temp_dir().join(format!("preflop-import-speed-{}.json", std::process::id()));
    let dense = std::env::args().nth(2).is_some_and(|word| word == "dense");
    let size = write_trace(&path, megabytes, dense)?;
    let before = processor_seconds().unwrap_or(0.0);
    let start = Instant::now();
    let profile = preflop_import::import(&path);
    let seconds = start.elapsed().as_secs_f64();
    let processor = processor_seconds().unwrap_or(0.0) - before;
    std::fs::remove_file(&path)?;
    let profile = profile?;
    println!(
        "{:.0} MB, {} events, {} operators, {} GPU events: {seconds:.2} s ({processor:.2} s of processor time, {:.0} MB/s), peak memory {:.0} MB",
        size as f64 / 1e6,
        profile.reading.events,
        profile.ops.len(),
        profile.gpu_events.len(),
        size as f64 / 1e6 / processor.max(1e-9),
        peak_mb().unwrap_or(0.0)
    );
    let analysis = Analysis::new(&profile, &Choice::default())?;
    let explanation = explain(&analysis, &TimeModel::embedded(), None);
    println!(
        "explained, {} operators: {:.2} s of processor time in all, peak memory {:.0} MB",
        explanation.operators.len(),
        processor_seconds().unwrap_or(0.0) - before,
        peak_mb().unwrap_or(0.0)
    );
    Ok(())
}
