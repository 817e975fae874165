//! `preflop serve` as a process: addresses, tokens, memory under large uploads, its end.
#![allow(clippy::unwrap_used)]

use serde_json::Value;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

struct Served {
    child: Child,
    url: String,
    address: String,
}

fn serve(args: &[&str]) -> Served {
    let mut child = Command::new(env!("CARGO_BIN_EXE_preflop"))
        .args(["serve", "--port", "0", "--no-open", "--json"])
        .args(args)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut text = String::new();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let answer: Value = loop {
        assert!(lines.read_line(&mut text).unwrap() > 0, "no address: {text}");
        if let Ok(answer) = serde_json::from_str(&text) {
            break answer;
        }
    };
    let url = answer["url"].as_str().unwrap().to_string();
    let address =
        url.trim_start_matches("http://").split('/').next().unwrap().replace("0.0.0.0", "127.0.0.1");
    Served { child, url, address }
}

impl Served {
    fn request(&self, head: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
        stream.write_all(head.as_bytes()).unwrap();
        stream
    }

    fn get(&self, path: &str) -> String {
        text(
            self.request(&format!(
                "GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n",
                self.address
            )),
        )
    }

    /// The most memory that the process ever had, in MiB.
    #[cfg(target_os = "linux")]
    fn peak_mib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|l| l.starts_with("VmHWM")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn text(mut stream: TcpStream) -> String {
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

#[test]
fn the_page_and_the_scoreboard_are_in_the_binary() {
    let served = serve(&[]);
    assert!(served.url.starts_with("http://127.0.0.1:"), "{}", served.url);
    let page = served.get("/predict");
    assert!(page.starts_with("HTTP/1.1 200") && page.contains("<div id=\"app\">"), "{page}");
    let board = served.get("/api/v1/accuracy");
    let json: Value = serde_json::from_str(board.split("\r\n\r\n").nth(1).unwrap()).unwrap();
    assert!(json["rows"].as_array().unwrap().len() > 5 && json["cross_validation"].is_array());
}

#[test]
fn the_command_line_and_the_server_say_the_same() {
    let served = serve(&[]);
    let asked = |name: &str, body: &str| -> Value {
        let head = format!(
            "POST /api/v1/{name} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            served.address,
            body.len()
        );
        let reply = text(served.request(&head));
        serde_json::from_str(reply.split("\r\n\r\n").nth(1).unwrap()).unwrap()
    };
    let printed = |args: &[&str]| -> Value {
        let out = Command::new(env!("CARGO_BIN_EXE_preflop")).args(args).arg("--json").output().unwrap();
        serde_json::from_slice(&out.stdout).unwrap()
    };
    assert_eq!(
        asked(
            "predict",
            r#"{"model": "gpt2", "gpu": "t4", "batch": 64, "precision": "fp16", "changes": true}"#
        ),
        printed(&["predict", "gpt2", "--gpu", "t4", "--batch", "64", "--precision", "fp16"])
    );
    assert_eq!(asked("gpus", "{}"), printed(&["gpus"]));
    assert_eq!(asked("gpu", r#"{"gpu": "a100"}"#), printed(&["gpus", "show", "a100"]));
    assert_eq!(asked("models", "{}"), printed(&["models"]));
    let same = |ours: &Value, theirs: &Value, keys: &[&str]| {
        for key in keys {
            assert_eq!(ours[*key], theirs[*key], "{key}");
        }
    };
    let rows = asked("compare", r#"{"model": "resnet50", "gpus": ["h100", "rtx-4090"], "precision": "amp"}"#);
    let other = printed(&["compare", "resnet50", "--gpus", "h100,rtx-4090", "--precision", "amp"]);
    for place in 0..2 {
        let keys = [
            "gpu",
            "batch",
            "iteration_ms",
            "low_ms",
            "high_ms",
            "samples_per_s",
            "memory_mib",
            "needed_mib",
            "fits",
            "usd_per_hour",
            "price_date",
            "usd_per_million_samples",
            "joules_per_sample",
            "bound",
            "pareto",
        ];
        same(&rows[place], &other[place], &keys);
    }
    let designs = asked("explore", r#"{"network": "vgg16", "base": "p100-pcie"}"#);
    let other = printed(&["explore", "vgg16", "--base", "p100-pcie"]);
    same(&designs, &other, &["base", "network", "base_time_ms", "layers"]);
    for place in 0..9 {
        let keys = ["name", "scales", "time_ms", "speedup", "bottlenecks", "cost", "on_front"];
        same(&designs["designs"][place], &other["designs"][place], &keys);
    }
    let layers = asked("delta", r#"{"network": "googlenet", "gpu": "titan-xp"}"#);
    let other = printed(&["delta", "googlenet", "--gpu", "titan-xp"]);
    same(&layers, &other, &["gpu", "total_ms", "bottlenecks"]);
    let keys = ["name", "l1_bytes", "l2_bytes", "dram_bytes", "time_ms", "bottleneck", "cta_tile", "num_cta"];
    same(&layers["layers"][7], &other["layers"][7], &keys);
}

#[test]
fn others_need_a_word_and_a_token() {
    let refused = Command::new(env!("CARGO_BIN_EXE_preflop"))
        .args(["serve", "--port", "0", "--no-open", "--host", "0.0.0.0"])
        .output()
        .unwrap();
    assert_eq!(refused.status.code(), Some(2));
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("--allow-remote") && said.lines().count() == 2, "{said}");
    let weak = Command::new(env!("CARGO_BIN_EXE_preflop"))
        .args(["serve", "--port", "0", "--no-open", "--token", "123"])
        .output()
        .unwrap();
    assert_eq!(weak.status.code(), Some(2));
    let served = serve(&["--host", "0.0.0.0", "--allow-remote"]);
    let code = served.url.split("code=").nth(1).expect("a code in the address");
    assert_eq!(code.len(), 48);
    assert!(served.get("/api/v1/version").starts_with("HTTP/1.1 401"));
    assert!(served.get(&format!("/?code={code}")).starts_with("HTTP/1.1 303"));
    assert!(served.get(&format!("/?code={code}")).starts_with("HTTP/1.1 401"), "it works once");
}

#[test]
fn a_taken_port_is_said() {
    let served = serve(&[]);
    let port = served.address.split(':').nth(1).unwrap();
    let second = Command::new(env!("CARGO_BIN_EXE_preflop"))
        .args(["serve", "--port", port, "--no-open"])
        .output()
        .unwrap();
    assert_eq!(second.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&second.stderr).contains("--port 0"));
}

/// Sends a gigabyte: refused at once where the head declares it, cut off where it does not, and read as a stream
/// where the limit allows it. Memory stays far below what is sent.
#[cfg(target_os = "linux")]
#[test]
fn a_gigabyte_does_not_fill_the_memory() {
    const GIB: u64 = 1 << 30;
    const MOST_MIB: u64 = 100;
    let served = serve(&["--max-upload-mib", "64"]);
    let host = format!("Host: {}\r\nConnection: close\r\n", served.address);
    let start = Instant::now();
    let declared = text(
        served.request(&format!("POST /api/v1/profile HTTP/1.1\r\n{host}Content-Length: {GIB}\r\n\r\n")),
    );
    assert!(declared.starts_with("HTTP/1.1 413") && declared.contains("64 MiB"), "{declared}");
    assert!(start.elapsed() < Duration::from_secs(5));
    let mut chunked =
        served.request(&format!("POST /api/v1/profile HTTP/1.1\r\n{host}Transfer-Encoding: chunked\r\n\r\n"));
    send(&mut chunked, GIB, b"{\"metadata\": \"", b"\"}");
    assert!(text(chunked).starts_with("HTTP/1.1 413"));
    println!("a gigabyte refused: peak memory {} MiB", served.peak_mib());
    assert!(served.peak_mib() < MOST_MIB, "{} MiB", served.peak_mib());

    let served = serve(&["--max-upload-mib", "1200"]);
    let host = format!("Host: {}\r\nConnection: close\r\n", served.address);
    let mut streamed =
        served.request(&format!("POST /api/v1/profile HTTP/1.1\r\n{host}Transfer-Encoding: chunked\r\n\r\n"));
    let events = br#"", "traceEvents": [{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 20, "dur": 190, "args": {"device": 0}}]}"#;
    send(&mut streamed, GIB, b"{\"metadata\": \"", events);
    let reply = text(streamed);
    assert!(reply.starts_with("HTTP/1.1 200") && reply.contains("gpu_busy_ms"), "{reply}");
    println!("a gigabyte read: peak memory {} MiB", served.peak_mib());
    assert!(served.peak_mib() < MOST_MIB, "{} MiB", served.peak_mib());
}

/// A body of `total` bytes in chunks; a server that has heard enough may close before its end.
#[cfg(target_os = "linux")]
fn send(stream: &mut TcpStream, total: u64, first: &[u8], last: &[u8]) {
    let filling = vec![b'a'; 1 << 20];
    let mut chunk = |bytes: &[u8]| -> std::io::Result<()> {
        stream.write_all(format!("{:x}\r\n", bytes.len()).as_bytes())?;
        stream.write_all(bytes)?;
        stream.write_all(b"\r\n")
    };
    let mut sent = chunk(first);
    for _ in 0..total >> 20 {
        sent = sent.and_then(|()| chunk(&filling));
    }
    let _ = sent.and_then(|()| chunk(last)).and_then(|()| stream.write_all(b"0\r\n\r\n"));
}

/// Twenty million events in a few megabytes: the answer is a reason, and memory stays within what is stated.
#[cfg(target_os = "linux")]
#[test]
fn a_small_file_of_very_many_events_does_not_fill_the_memory() {
    let served = serve(&[]);
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(b"{\"traceEvents\": [{}").unwrap();
    let event = br#",{"ph":"X","cat":"kernel","name":"k","ts":1,"dur":1}"#.repeat(10_000);
    for _ in 0..1900 {
        packed.write_all(&event).unwrap();
    }
    packed.write_all(b"]}").unwrap();
    let body = packed.finish().unwrap();
    let mut stream = served.request(&format!(
        "POST /api/v1/profile?name=a.json.gz HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
        served.address,
        body.len()
    ));
    stream.write_all(&body).unwrap();
    let reply = text(stream);
    assert!(reply.starts_with("HTTP/1.1 413") && reply.contains("300 MiB of memory"), "{reply}");
    println!("{} MB with 19 million events: peak memory {} MiB", body.len() / 1_000_000, served.peak_mib());
    assert!(served.peak_mib() < 400, "{} MiB", served.peak_mib());
}

#[cfg(unix)]
#[test]
fn it_stops_within_five_seconds_while_it_reads() {
    let mut served = serve(&["--max-upload-mib", "1200"]);
    let host = format!("Host: {}\r\nConnection: close\r\n", served.address);
    // A gigabyte of zeros in a megabyte, which takes a while to unpack.
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(b"{\"metadata\": \"").unwrap();
    let filling = vec![b'a'; 1 << 20];
    for _ in 0..1000 {
        packed.write_all(&filling).unwrap();
    }
    packed.write_all(b"\", \"traceEvents\": []}").unwrap();
    let body = packed.finish().unwrap();
    let mut reading: Vec<TcpStream> = Vec::new();
    for _ in 0..2 {
        let mut stream = served.request(&format!(
            "POST /api/v1/profile?name=a.json.gz HTTP/1.1\r\n{host}Content-Length: {}\r\n\r\n",
            body.len()
        ));
        stream.write_all(&body).unwrap();
        reading.push(stream);
    }
    std::thread::sleep(Duration::from_millis(300));
    let pid = served.child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    let start = Instant::now();
    while served.child.try_wait().unwrap().is_none() {
        assert!(start.elapsed() < Duration::from_secs(5), "still running");
        std::thread::sleep(Duration::from_millis(20));
    }
    println!("ended {:.1} s after SIGTERM", start.elapsed().as_secs_f64());
}

#[cfg(unix)]
#[test]
fn it_stops_when_told_to() {
    let mut served = serve(&[]);
    let pid = served.child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    let start = Instant::now();
    let status = loop {
        if let Some(status) = served.child.try_wait().unwrap() {
            break status;
        }
        assert!(start.elapsed() < Duration::from_secs(10), "still running");
        std::thread::sleep(Duration::from_millis(20));
    };
    assert!(status.success(), "{status}");
}
