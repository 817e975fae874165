//! `cargo xtask bench`: how fast the tool itself is. Prints; does not judge, since wall time is not the code's alone.

use crate::python;
use crate::run::{cargo, output_of, program, succeed, works};
use anyhow::Context as _;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Stdio;
use std::time::Instant;

/// Rows of the operator file.
const ROWS: usize = 500_000;
/// Runs of a program whose median counts.
const RUNS: usize = 31;

/// Builds in release mode and measures.
pub fn run(root: &Path) -> anyhow::Result<()> {
    succeed(&mut cargo(
        root,
        &["build", "--release", "--quiet", "--locked", "-p", "preflop", "-p", "preflop-bench"],
    ))?;
    let preflop = root.join("target/release/preflop");
    let library = root.join("target/release/preflop-bench");

    start(root, &preflop)?;

    let args = ["compare", "resnet50", "--batch", "auto", "--precision", "fp32,tf32,amp,bf16", "--json"];
    let whole = median_ms(root, &preflop, &args)?;
    println!(
        "compare, all GPUs x 40 sizes x 4 formats {whole:5.0} ms    {:.1} x faster than the 1 s wanted",
        1e3 / whole
    );
    print!("  {}", output_of(&mut program(root, &library, &["search"]))?);

    let rates = output_of(&mut program(root, &library, &[]))?;
    let mut rates = rates.split_whitespace().map(str::parse::<f64>);
    let mut next = || anyhow::Ok(rates.next().context("the library's rates are missing")??);
    let (alone, rate) = (next()?, next()?);
    println!("operator predictions, one core   {rate:12.0} /s    {:.1} x the 400,000 /s wanted", rate / 4e5);
    println!("  one by one                     {alone:12.0} /s    {:.1} x slower", rate / alone);

    let file = root.join("target/bench-ops.csv");
    std::fs::write(&file, operator_file()).context("cannot write the operator file")?;
    let start = Instant::now();
    let file = file.to_string_lossy();
    succeed(program(root, &preflop, &["ops", &file, "--gpu", "h200"]).stdout(Stdio::null()))?;
    let rows = ROWS as f64 / start.elapsed().as_secs_f64();
    println!("operator file, read to printed   {rows:12.0} /s    {:.1} x the 300,000 /s wanted", rows / 3e5);
    println!("share of a row that is prediction {:10.0} %", 100.0 * rows / rate);

    print!("{}", output_of(&mut program(root, root.join("target/release/preflop-tables"), &[]))?);

    let load = root.join("target/release/preflop-load");
    print!("{}", output_of(&mut program(root, &load, &[&preflop.to_string_lossy()]))?);

    if works(&mut program(root, "valgrind", &["--version"])) {
        let (few, many) = (1, 3);
        let size: f64 = output_of(&mut program(root, &library, &["1"]))?.trim().parse()?;
        for (what, together) in [("one prediction  ", None), ("one among many  ", Some("many"))] {
            let run = |passes: u32| {
                let passes = passes.to_string();
                let args: Vec<&str> = together.into_iter().chain([passes.as_str()]).collect();
                instructions(root, &library, &args)
            };
            let each = (run(many)? - run(few)?) / (f64::from(many - few) * size);
            println!("instructions of {what} {each:12.0}");
        }
    } else {
        println!("instructions of one prediction     (needs valgrind)");
    }
    python::bench(root)
}

/// How long a one-shot question takes from the start of the process, beside a program that does nothing.
fn start(root: &Path, preflop: &Path) -> anyhow::Result<()> {
    let empty = root.join("target/release/preflop-nothing");
    let args = ["predict", "resnet152", "--mode", "train", "--gpu", "h200"];
    // By turns, so that what else the machine does strikes all alike.
    let mut times = [const { Vec::new() }; 3];
    for _ in 0..RUNS {
        for (times, (binary, args)) in
            times.iter_mut().zip([(&*empty, &[][..]), (preflop, &["--version"]), (preflop, &args)])
        {
            times.push(milliseconds(root, binary, args)?);
        }
    }
    let [nothing, version, whole] = times.map(median);
    println!("a program that does nothing          {nothing:8.2} ms");
    println!("preflop --version                    {version:8.2} ms    {:.1} x that", version / nothing);
    println!(
        "predict resnet152, training          {whole:8.2} ms    {:.1} x that; wanted: under 10 ms",
        whole / nothing
    );
    if works(&mut program(root, "valgrind", &["--version"])) {
        let millions = instructions(root, preflop, &args)? / 1e6;
        println!("  instructions                       {millions:8.1} M     wanted: under 60 M");
    }
    Ok(())
}

fn milliseconds(root: &Path, binary: &Path, args: &[&str]) -> anyhow::Result<f64> {
    let start = Instant::now();
    succeed(program(root, binary, args).stdout(Stdio::null()))?;
    Ok(start.elapsed().as_secs_f64() * 1e3)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn median_ms(root: &Path, binary: &Path, args: &[&str]) -> anyhow::Result<f64> {
    let times: anyhow::Result<Vec<f64>> = (0..RUNS).map(|_| milliseconds(root, binary, args)).collect();
    Ok(median(times?))
}

/// Rows of many shapes, so that no cache of ours or of the processor flatters the figure.
fn operator_file() -> String {
    let mut text = String::from("op,phase,dtype,shape\n");
    for i in 0..ROWS {
        let (a, b, c) = (1 + i % 4099, 1 + (i * 7) % 2053, 8 + (i * 13) % 1021);
        let dtype = ["fp32", "tf32", "bf16", "fp16"][i % 4];
        // Writing to a string cannot fail.
        let _ = match i % 5 {
            0 => writeln!(
                text,
                r#"mm,fwd,{dtype},"{{""m"": {a}, ""n"": {b}, ""k"": {c}, ""layout"": ""tn""}}""#
            ),
            1 => writeln!(
                text,
                r#"conv2d,dgrad,{dtype},"{{""b"": 16, ""ci"": {c}, ""hw"": 28, ""co"": {b}, ""k"": 3, ""stride"": 1, ""pad"": 1, ""groups"": 1}}""#
            ),
            2 => writeln!(text, r#"softmax,bwd,{dtype},"{{""rows"": {a}, ""cols"": {b}}}""#),
            3 => writeln!(text, r#"elementwise,fwd,{dtype},"{{""n"": {a}}}""#),
            _ => writeln!(
                text,
                r#"sdpa,fwd,bf16,"{{""b"": 4, ""h"": 8, ""kv"": 8, ""s"": {c}, ""d"": 64, ""causal"": true}}""#
            ),
        };
    }
    text
}

/// Instructions of a run, from callgrind's summary line `Collected : N`.
fn instructions(root: &Path, binary: &Path, args: &[&str]) -> anyhow::Result<f64> {
    let binary = binary.to_string_lossy();
    let mut all = vec!["--tool=callgrind", "--callgrind-out-file=/dev/null", &*binary];
    all.extend(args);
    let out = program(root, "valgrind", &all).output().context("cannot start valgrind")?;
    let text = String::from_utf8_lossy(&out.stderr);
    let count = text.lines().find_map(|l| l.split_once("Collected : ")).map(|(_, n)| n.trim());
    count.context("valgrind printed no instruction count")?.parse().context("valgrind printed no number")
}
