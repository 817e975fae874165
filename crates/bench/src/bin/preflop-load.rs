//! Asks a server as fast as it answers, over real HTTP, and prints how many answers a second came and how late.
//!
//! `preflop-load PATH_OF_PREFLOP [SECONDS [CLIENTS]]` starts `preflop serve` on a free port. Clients share the machine's cores
//! with it, and what memory it takes is said ten times on the way. Three kinds of load: the very same question (answered from memory), questions that are all different
//! (nothing can be answered from memory), and single design changes one after the other, as a slider makes them.
#![allow(clippy::print_stdout)]

use serde_json::{Value, json};
use std::error::Error;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Connections that ask at the same time, unless the command says how many.
const CLIENTS: usize = 8;
/// Parts of a load after each of which memory is looked at.
const PARTS: usize = 10;
/// Seconds after which asking the very same question shows nothing more.
const MOST_SECONDS_OF_THE_SAME: f64 = 30.0;

/// A server that ends with us.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start(preflop: &str) -> Outcome<Self> {
        let mut child = Command::new(preflop)
            .args(["serve", "--port", "0", "--no-open", "--json"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut text = String::new();
        let mut lines = BufReader::new(child.stdout.take().ok_or("no output")?);
        // The JSON may be spread over several lines.
        let answer: Value = loop {
            if lines.read_line(&mut text)? == 0 {
                return Err("the server did not say where it listens".into());
            }
            if let Ok(answer) = serde_json::from_str(&text) {
                break answer;
            }
        };
        let url = answer["url"].as_str().ok_or("no address")?;
        let address = url.trim_start_matches("http://").trim_end_matches('/').to_string();
        Ok(Self { child, address })
    }
}

impl Server {
    /// Processor time of the server so far, in seconds: what other programs on the machine do not change.
    fn processor_seconds(&self) -> Option<f64> {
        // The system counts in ticks of a hundredth of a second; user and system time are fields 14 and 15, and the
        // second field ends with a parenthesis.
        const TICKS_PER_SECOND: f64 = 100.0;
        let text = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).ok()?;
        let fields: Vec<&str> = text.rsplit(')').next()?.split_whitespace().collect();
        let ticks = |i: usize| fields.get(i)?.parse::<f64>().ok();
        Some((ticks(11)? + ticks(12)?) / TICKS_PER_SECOND)
    }

    /// Memory that the server holds now, in MiB.
    fn resident_mib(&self) -> Option<f64> {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).ok()?;
        let kib = text.lines().find_map(|l| l.strip_prefix("VmRSS:"))?;
        Some(kib.trim().trim_end_matches(" kB").parse::<f64>().ok()? / 1024.0)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// One connection that stays open.
struct Client {
    stream: BufReader<TcpStream>,
    address: String,
    body: Vec<u8>,
}

impl Client {
    fn new(address: &str) -> Outcome<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream: BufReader::with_capacity(1 << 18, stream),
            address: address.into(),
            body: Vec::new(),
        })
    }

    /// Asks and reads the whole answer; the time it took.
    fn ask(&mut self, question: &str, body: &str) -> Outcome<Duration> {
        let request = format!(
            "POST /api/v1/{question} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        );
        let start = Instant::now();
        self.stream.get_mut().write_all(request.as_bytes())?;
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        if !line.starts_with("HTTP/1.1 200") {
            return Err(format!("{question} {body}: {}", line.trim()).into());
        }
        let mut length = 0;
        loop {
            line.clear();
            self.stream.read_line(&mut line)?;
            if line.trim().is_empty() {
                break;
            }
            if let Some(n) = line.to_ascii_lowercase().strip_prefix("content-length: ") {
                length = n.trim().parse()?;
            }
        }
        self.body.resize(length, 0);
        self.stream.read_exact(&mut self.body)?;
        Ok(start.elapsed())
    }
}

/// The latencies of all answers, in milliseconds.
fn load(
    address: &str,
    seconds: f64,
    clients: usize,
    next: &AtomicUsize,
    question: &Questions,
) -> Outcome<Vec<f64>> {
    let start = Instant::now();
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..clients)
            .map(|_| {
                scope.spawn(|| -> Outcome<Vec<f64>> {
                    let mut client = Client::new(address)?;
                    let mut times = Vec::new();
                    while start.elapsed().as_secs_f64() < seconds {
                        let body = question(next.fetch_add(1, Ordering::Relaxed));
                        times.push(client.ask("predict", &body)?.as_secs_f64() * 1e3);
                    }
                    Ok(times)
                })
            })
            .collect();
        let mut all = Vec::new();
        for client in clients {
            all.extend(client.join().map_err(|_| "a client broke")??);
        }
        Ok(all)
    })
}

fn percentile(sorted: &[f64], share: f64) -> f64 {
    sorted.get(((sorted.len() - 1) as f64 * share) as usize).copied().unwrap_or(f64::NAN)
}

/// The question of a number.
type Questions = dyn Fn(usize) -> String + Sync;

fn main() -> Outcome<()> {
    let mut args = std::env::args().skip(1);
    let preflop = args.next().ok_or("usage: preflop-load PATH_OF_PREFLOP [SECONDS [CLIENTS]]")?;
    let seconds: f64 = args.next().map_or(Ok(5.0), |s| s.parse())?;
    let clients: usize = args.next().map_or(Ok(CLIENTS), |s| s.parse())?;
    let server = Server::start(&preflop)?;
    let (same, varied) = (|_: usize| preflop_bench::same(), preflop_bench::varied);
    load(&server.address, 0.5, clients, &AtomicUsize::new(0), &same)?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let kinds: [(&str, f64, &Questions); 2] = [
        ("resnet50, the same question", seconds.min(MOST_SECONDS_OF_THE_SAME), &same),
        ("resnet50, all different", seconds, &varied),
    ];
    for (what, seconds, question) in kinds {
        let (before, start) = (server.processor_seconds(), Instant::now());
        let (next, mut times, mut memory) = (AtomicUsize::new(0), Vec::new(), Vec::new());
        for _ in 0..PARTS {
            times.extend(load(&server.address, seconds / PARTS as f64, clients, &next, question)?);
            memory.extend(server.resident_mib().map(|mib| format!("{mib:.0}")));
        }
        let rate = times.len() as f64 / start.elapsed().as_secs_f64();
        times.sort_by(f64::total_cmp);
        let used = before.zip(server.processor_seconds()).map(|(a, b)| (b - a) * 1e3 / times.len() as f64);
        println!(
            "{what:<32} {rate:8.0} /s    p50 {:.2} ms, p99 {:.2} ms; wanted: 2,000 /s, p99 under 250 ms with 200 clients",
            percentile(&times, 0.5),
            percentile(&times, 0.99)
        );
        if let Some(used) = used {
            println!(
                "{:>32} {:8.0} /s    with {cores} cores to itself: {used:.3} ms of processor time each; {clients} clients shared them",
                "server alone",
                cores as f64 * 1e3 / used
            );
        }
        println!("{:>32} {} MiB", "memory on the way", memory.join(", "));
    }
    let mut client = Client::new(&server.address)?;
    let mut times = Vec::new();
    for i in 0..400 {
        let scale = 1.0 + f64::from(i) / 100.0;
        let body = json!({ "network": "resnet152", "base": "titan-xp",
            "designs": [{ "name": "slider", "scales": { "mac_per_sm": scale, "dram_bw": scale / 2.0 } }] });
        times.push(client.ask("explore", &body.to_string())?.as_secs_f64() * 1e3);
    }
    times.sort_by(f64::total_cmp);
    println!(
        "explore ResNet152, one change  p50 {:.2} ms, p99 {:.2} ms, most {:.2} ms; wanted: under 50 ms",
        percentile(&times, 0.5),
        percentile(&times, 0.99),
        percentile(&times, 1.0)
    );
    Ok(())
}
