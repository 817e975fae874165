//! Fits the time model from measurements, says how well it does on what it has not seen, and writes
//! `data/fitted`.
//!
//! `preflop-fit` fits everything from the sets that `data/measured/*/manifest.toml` describe, and nothing else; `preflop-fit
//! again` does so and compares with what ships. `preflop-fit FAMILY ..` only cross-validates the families whose names begin
//! so; `preflop-fit merge FAMILY ..` fits these anew and puts them into what ships. `PREFLOP_SHARED` names the folder with the sets of others (default `../shared`). `preflop-fit manifests [write]`
//! compares files and manifests. `preflop-fit e2e` scores whole iterations,
//! `preflop-fit published` the published measurements on other GPUs, `preflop-fit networks` published image networks there, `preflop-fit unseen
//! [LINE ..]` both and more with each GPU left out, `preflop-fit
//! operators [write]` fits and judges the operators of the table, and
//! `preflop-fit laws [COUNT]` counts answers that break what physics asks. `preflop-fit served [write]` fits the kernels of an inference server, and
//! `preflop-fit llm` scores prefill and decode steps; `preflop-fit intervals [write]` fits and judges intervals of the GPU's time of whole iterations;
//! `preflop-fit missed [ROWS]` judges kinds of operators that were missed by much, on networks and shapes that no fit sees.
#![allow(clippy::print_stdout)]

mod attention;
mod boards;
mod choices;
mod chooser;
mod conv;
mod data;
mod deepbench;
mod e2e;
mod gbdt;
mod gemm;
mod growth;
mod intervals;
mod laws;
mod llm;
mod merge;
mod missed;
mod networks;
mod neusight;
mod operators;
mod plain_conv;
mod published;
mod rnn;
mod rows;
mod samples;
mod score;
mod served;
mod sets;
mod simplex;
mod stream;
mod table;
mod throughput;
mod unseen;
mod whole;
mod write;

use anyhow::{Result, bail};
use sets::Sets;
use std::path::{Path, PathBuf};
use std::time::Instant;
use whole::Fit;

/// What ships.
const FITTED: &str = "data/fitted";

fn main() -> Result<()> {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let shared = PathBuf::from(std::env::var("PREFLOP_SHARED").unwrap_or("../shared".into())).join("data");
    let mut sets = Sets::read(shared)?;
    let more = wanted.len() > 1;
    match wanted.first().map(String::as_str) {
        Some("manifests") => {
            let write = wanted.get(1).is_some_and(|w| w == "write");
            sets.check(write)?.iter().for_each(|line| println!("{line}"));
            Ok(())
        }
        Some("operators") => operators::report(&sets, wanted.get(1).is_some_and(|w| w == "write")),
        Some("unseen") => table::report(&sets, &wanted[1..]),
        Some("served") => {
            let write = wanted.get(1).is_some_and(|w| w == "write");
            served::run(&sets, write.then_some(Path::new("data/fitted")))
        }
        Some("intervals") => {
            let write = wanted.get(1).is_some_and(|w| w == "write");
            intervals::run(&sets, write.then_some(Path::new(FITTED)))
        }
        Some("llm") => llm::report(&sets),
        Some("missed") => missed::report(&sets, wanted.get(1).and_then(|n| n.parse().ok()).unwrap_or(0)),
        Some("networks") => networks::report(&sets),
        Some("published") => published::report(&sets),
        Some("e2e") => {
            let model = preflop_core::time::TimeModel::embedded();
            for file in ["e2e.csv", "e2e_extra.csv"] {
                println!("{file}");
                let runs = e2e::runs(&sets, file)?;
                e2e::report(&runs, &model, &sets.gpus[sets.own_gpu()?], more);
                println!("  host {:?}", e2e::host(&[&runs]));
            }
            Ok(())
        }
        Some("merge") => {
            let fit = Fit::merged(&sets, &wanted[1..], Path::new(FITTED))?;
            fit.print();
            fit.files()?.write(Path::new(FITTED))
        }
        Some("laws") => {
            let ours = data::operators(&sets, "ops")?;
            let asked = wanted.get(1).and_then(|n| n.parse().ok()).unwrap_or(100_000);
            laws::report(&laws::calls(&ours), asked, wanted.len() > 2)
        }
        None | Some("again") => {
            let start = Instant::now();
            let fit = Fit::new(&sets, &[])?;
            fit.print();
            let files = fit.files()?;
            println!("fitted in {:.0} s", start.elapsed().as_secs_f64());
            if wanted.is_empty() {
                return files.write(Path::new(FITTED));
            }
            let differ = files.differences(Path::new(FITTED));
            if differ.is_empty() {
                println!("equal to `{FITTED}`, byte by byte");
                return Ok(());
            }
            bail!("other than in `{FITTED}`: {}", differ.join(", "))
        }
        Some(_) => {
            Fit::new(&sets, &wanted)?.print();
            Ok(())
        }
    }
}
