//! Fits the time model from measurements and says how well it does on what it has not seen.
#![allow(clippy::print_stdout)]

mod attention;
mod chooser;
mod conv;
mod data;
mod gbdt;
mod gemm;
mod rnn;
mod samples;
mod score;
mod simplex;
mod stream;

use anyhow::Result;
use std::path::PathBuf;

fn loss(text: Option<&String>) -> gbdt::Loss {
    match text.map(String::as_str) {
        Some("r") => gbdt::Loss::Relative,
        Some("x") | None => gbdt::Loss::Squared,
        Some(q) => gbdt::Loss::Quantile(q.parse().unwrap_or(0.5)),
    }
}

fn settings(args: &[String]) -> gbdt::Settings {
    fn at<T: std::str::FromStr>(args: &[String], i: usize, default: T) -> T {
        args.get(i).and_then(|s| s.parse().ok()).unwrap_or(default)
    }
    gbdt::Settings {
        trees: at(args, 2, 300),
        depth: at(args, 3, 6),
        rate: at(args, 4, 0.07),
        loss: loss(args.get(5)),
        second: loss(args.get(9)),
        bags: at(args, 6, 1),
        min_leaf: at(args, 7, 5),
        feature_fraction: at(args, 8, 0.5),
        ..gbdt::Settings::default()
    }
}

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().collect();
    let shared = PathBuf::from(std::env::var("PREFLOP_SHARED").unwrap_or("../shared".into())).join("data");
    let gpus = data::gpus()?;
    let s = settings(&args);
    let mut measured = data::operators(&shared.join("h200/ops.csv.gz"), 0)?;
    if let Ok(extra) = data::operators(&PathBuf::from("data/measured/h200/ops_extra.csv.gz"), 0) {
        measured.extend(extra);
    }
    match args.get(1).map(String::as_str) {
        Some("gemm") => gemm::report(&measured, &gpus, &s),
        Some("attention") => {
            attention::report(&measured, &data::published_attention(&shared)?, &gpus, &s);
        }
        Some("rnn") => rnn::report(&measured, &data::published_rnn(&shared)?, &gpus, &s),
        Some("stream") => stream::report(&measured, &gpus, &s),
        Some("conv") => {
            let mut rows = conv::rows(&measured, 0);
            rows.extend(conv::rows(&data::operators(&shared.join("h200/conv.csv.gz"), 0)?, 1));
            if let Ok(extra) = data::operators(&PathBuf::from("data/measured/h200/conv_extra.csv.gz"), 0) {
                rows.extend(conv::rows(&extra, 2));
            }
            conv::report(&rows, &gpus, &s);
        }
        _ => println!("usage"),
    }
    Ok(())
}
