//! Uploads of recordings: explained, refused, cut off, bombs.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Reply, Running};
use preflop_server::Limits;
use std::io::Write as _;

const TRACE: &str = r#"{"deviceProperties": [{"id": 0, "name": "NVIDIA H200", "totalGlobalMem": 150109880320, "numSms": 132, "warpSize": 32}],
  "traceEvents": [
    {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 0, "dur": 40, "args": {"Input Dims": [[4096, 4096], [4096, 4096]], "Input type": ["c10::BFloat16", "c10::BFloat16"]}},
    {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": 10, "dur": 6, "args": {"correlation": 7}},
    {"ph": "X", "cat": "kernel", "name": "nvjet_tst_128x256_64x4_2x1_v_bz_TNT", "pid": 0, "tid": 7, "ts": 20, "dur": 190, "args": {"device": 0, "correlation": 7, "registers per thread": 168, "shared memory": 200000, "grid": [132, 1, 1], "block": [384, 1, 1]}},
    {"ph": "X", "cat": "kernel", "name": "void at::native::vectorized_elementwise_kernel<4>", "pid": 0, "tid": 7, "ts": 220, "dur": 80, "args": {"device": 0, "correlation": 99, "grid": [16384, 1, 1], "block": [128, 1, 1]}}
  ]}"#;

fn upload(server: &Running, query: &str, body: &[u8]) -> Reply {
    server.post(&format!("/api/v1/profile{query}"), "application/octet-stream", body)
}

#[test]
fn a_trace_is_explained_and_carried_to_other_gpus() {
    let server = Running::start();
    let answer = upload(&server, "?name=..%2F..%2Ftrace.json", TRACE.as_bytes()).json();
    assert_eq!(answer["explanation"]["gpu"], "h200");
    assert_eq!(answer["explanation"]["source"], "trace.json", "the folder of a name is dropped");
    assert_eq!(answer["explanation"]["iteration_ms"], 0.3);
    // Of all GPUs, those that have the recorded format.
    assert_eq!(answer["transfer"]["targets"].as_array().unwrap().len(), 54);
    let few = upload(&server, "?to=a100,l4&from=h200", TRACE.as_bytes()).json();
    assert_eq!(few["transfer"]["targets"][1]["gpu"], "l4");
    let unknown = upload(&server, "", TRACE.replace("NVIDIA H200", "Some GPU").as_bytes()).json();
    assert!(unknown["transfer_problem"].as_str().unwrap().contains("which GPU"), "{unknown}");
    server.stop();
}

#[test]
fn what_is_no_recording_is_refused() {
    let server = Running::start();
    for bad in
        [&b""[..], b"hello", b"{", b"{\"traceEvents\": [", &[0x1f, 0x8b, 1, 2, 3], b"SQLite format 3\0"]
    {
        upload(&server, "", bad).error(422);
    }
    upload(&server, "?from=nope", TRACE.as_bytes()).error(422);
    upload(&server, "?to=nope", TRACE.as_bytes()).error(422);
    upload(&server, "?for=h200", TRACE.as_bytes()).error(400);
    server.stop();
}

#[test]
fn large_uploads_are_refused_by_their_head_or_while_they_come() {
    let server = Running::with(Limits { upload_bytes: 1 << 20, ..Limits::default() }, None);
    let mut stream = server.connect();
    let head = format!("POST /api/v1/profile HTTP/1.1\r\nHost: {}\r\n", server.address);
    stream.write_all(format!("{head}Content-Length: 1073741824\r\n\r\n").as_bytes()).unwrap();
    assert!(Reply::read(&stream).unwrap().error(413).contains("1 MiB"));
    // Without a declared length: refused once there is too much.
    let mut stream = server.connect();
    stream.write_all(format!("{head}Transfer-Encoding: chunked\r\n\r\n").as_bytes()).unwrap();
    let chunk = vec![b' '; 64 << 10];
    for _ in 0..17 {
        if stream.write_all(b"10000\r\n").and_then(|()| stream.write_all(&chunk)).is_err() {
            break;
        }
        let _ = stream.write_all(b"\r\n");
    }
    Reply::read(&stream).unwrap().error(413);
    server.stop();
}

#[test]
fn a_bomb_is_cut_off_where_it_unpacks_to_too_much() {
    let server = Running::with(Limits { unpacked_bytes: 8 << 20, ..Limits::default() }, None);
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    packer.write_all(b"{\"metadata\": \"").unwrap();
    for _ in 0..64 {
        packer.write_all(&vec![b'a'; 1 << 20]).unwrap();
    }
    packer.write_all(b"\", \"traceEvents\": []}").unwrap();
    let bomb = packer.finish().unwrap();
    assert!(bomb.len() < 200_000);
    assert!(upload(&server, "", &bomb).error(413).contains("unpacks to more than 8 MiB"));
    server.stop();
}

#[test]
fn an_upload_that_breaks_off_leaves_nothing_behind() {
    let server = Running::start();
    let mut stream = server.connect();
    let head =
        format!("POST /api/v1/profile?name=cut-off-test.json HTTP/1.1\r\nHost: {}\r\n", server.address);
    stream.write_all(format!("{head}Content-Length: 5000\r\n\r\n{{").as_bytes()).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(200));
    drop(stream);
    let is_left = || {
        std::fs::read_dir(std::env::temp_dir())
            .unwrap()
            .flatten()
            .filter(|e| e.file_name().to_string_lossy().starts_with("preflop-"))
            .any(|e| e.path().join("cut-off-test.json").exists())
    };
    let start = std::time::Instant::now();
    while is_left() && start.elapsed().as_secs() < 10 {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert!(!is_left(), "the temporary file is gone");
    assert_eq!(server.get("/api/v1/version").status, 200);
    server.stop();
}

/// Kernels, each of which takes memory.
fn many_events(count: usize) -> Vec<u8> {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(b"{\"traceEvents\": [").unwrap();
    for i in 0..count {
        let comma = if i == 0 { "" } else { "," };
        write!(
            packed,
            r#"{comma}{{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": {i}, "dur": 1}}"#
        )
        .unwrap();
    }
    packed.write_all(b"]}").unwrap();
    packed.finish().unwrap()
}

#[test]
fn a_recording_that_takes_too_much_memory_is_refused_with_a_reason() {
    let limits = Limits { recording_bytes: 4 << 20, ..Limits::default() };
    let server = Running::with(limits, None);
    let reply =
        server.post("/api/v1/profile?name=a.json.gz", "application/octet-stream", &many_events(400_000));
    let message = reply.error(413);
    assert!(message.contains("more than 4 MiB of memory"), "{message}");
    // What it took is given back.
    let small = server.post("/api/v1/profile?name=a.json.gz", "application/octet-stream", &many_events(1000));
    assert_eq!(small.status, 200, "{}", String::from_utf8_lossy(&small.body));
    server.stop();
}
