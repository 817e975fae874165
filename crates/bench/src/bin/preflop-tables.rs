//! How fast tables are, beside the library: the same operators through `predict_many` alone, through a table on one thread, and through a table on
//! two, by turns in one run. Prints rows a second by the clock and by processor time, which other work on the machine does not change.
#![allow(clippy::print_stdout)]

use arrow_array::{ArrayRef, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema};
use preflop_core::OpCall;
use preflop_core::gpu::catalog;
use preflop_core::ops::row;
use preflop_core::time::TimeModel;
use preflop_table::{Built, Engine, Keep, Question};
use std::error::Error;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

const ROWS: usize = 1 << 16;
const ROUNDS: usize = 7;
/// Calls that the library predicts together, as a table does.
const TOGETHER: usize = 1024;

/// Rows of many shapes, so that no cache flatters the figure.
fn rows() -> Vec<[String; 4]> {
    (0..ROWS)
        .map(|i| {
            let (a, b, c) = (1 + i % 4099, 1 + (i * 7) % 2053, 8 + (i * 13) % 1021);
            let dtype = ["fp32", "tf32", "bf16", "fp16"][i % 4];
            let (op, phase, dtype, shape) = match i % 5 {
                0 => ("mm", "fwd", dtype, format!(r#"{{"m": {a}, "n": {b}, "k": {c}, "layout": "tn"}}"#)),
                1 => (
                    "conv2d",
                    "dgrad",
                    dtype,
                    format!(r#"{{"b": 16, "ci": {c}, "hw": 28, "co": {b}, "k": 3, "stride": 1, "pad": 1, "groups": 1}}"#),
                ),
                2 => ("softmax", "bwd", dtype, format!(r#"{{"rows": {a}, "cols": {b}}}"#)),
                3 => ("elementwise", "fwd", dtype, format!(r#"{{"n": {a}}}"#)),
                _ => ("sdpa", "fwd", "bf16", format!(r#"{{"b": 4, "h": 8, "kv": 8, "s": {c}, "d": 64, "causal": true}}"#)),
            };
            [op.to_string(), phase.to_string(), dtype.to_string(), shape]
        })
        .collect()
}

/// Processor seconds of this process: fields 14 and 15 of /proc/self/stat, in hundredths.
fn processor_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    let ticks: f64 = after.split(' ').skip(11).take(2).filter_map(|t| t.parse::<f64>().ok()).sum();
    ticks / 100.0
}

/// Rows a second of one run, by the clock and by processor time.
fn rates(work: impl FnOnce() -> Result<(), Box<dyn Error>>) -> Result<[f64; 2], Box<dyn Error>> {
    let (clock, processor) = (Instant::now(), processor_seconds());
    work()?;
    let took = [clock.elapsed().as_secs_f64(), (processor_seconds() - processor).max(0.01)];
    Ok(took.map(|t| ROWS as f64 / t))
}

fn median(rounds: &[[f64; 2]], which: usize) -> f64 {
    let mut values: Vec<f64> = rounds.iter().map(|r| r[which]).collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() -> Result<(), Box<dyn Error>> {
    let gpu = catalog::find(catalog::USUAL)?;
    let rows = rows();
    let calls: Vec<OpCall> = rows
        .iter()
        .map(|[op, phase, dtype, shape]| row::parse(op, phase, dtype, shape))
        .collect::<Result<_, _>>()?;
    let references: Vec<&OpCall> = calls.iter().collect();
    let column =
        |i: usize| -> ArrayRef { Arc::new(StringArray::from_iter_values(rows.iter().map(|r| &r[i]))) };
    let fields: Vec<Field> = ["op", "phase", "dtype", "shape"]
        .iter()
        .map(|name| Field::new(*name, DataType::Utf8, false))
        .collect();
    let table = RecordBatch::try_new(Arc::new(Schema::new(fields)), (0..4).map(column).collect())?;
    let engine = Engine::new(TimeModel::embedded(), Box::new(Built))?;
    let model = TimeModel::embedded();
    let question = Question { fixed: vec![("gpu".into(), catalog::USUAL.into())], keep: Keep::All };
    let pools: Vec<rayon::ThreadPool> = [1, 2]
        .iter()
        .map(|count| rayon::ThreadPoolBuilder::new().num_threads(*count).build())
        .collect::<Result<_, _>>()?;
    let library = || {
        for some in references.chunks(TOGETHER) {
            black_box(model.predict_many(black_box(some), &gpu));
        }
        Ok(())
    };
    // For `python/bench/tables.py`, which measures the rest of the way.
    if std::env::args().nth(1).as_deref() == Some("library") {
        let once = (0..3).map(|_| rates(library)).collect::<Result<Vec<_>, _>>()?;
        println!("{:.0}", median(&once, 1));
        return Ok(());
    }
    let mut found: [Vec<[f64; 2]>; 3] = Default::default();
    for _ in 0..ROUNDS {
        // By turns, so that what else the machine does strikes all alike.
        found[0].push(rates(library)?);
        for (pool, found) in pools.iter().zip(&mut found[1..]) {
            found.push(rates(|| {
                black_box(pool.install(|| engine.predict(&table, &question))?);
                Ok(())
            })?);
        }
    }
    let [library, one, two] = &found;
    println!("                         rows/s by the clock   rows a processor second");
    for (name, rounds) in
        [("library, one core  ", library), ("table, one thread  ", one), ("table, two threads ", two)]
    {
        println!("{name}     {:18.0}  {:24.0}", median(rounds, 0), median(rounds, 1));
    }
    println!(
        "table over library, per core     {:8.2}   wanted: at least 0.80",
        median(one, 1) / median(library, 1)
    );
    println!(
        "two threads over one, clock      {:8.2}   wanted: 2 on two idle cores",
        median(two, 0) / median(one, 0)
    );
    println!("work of two threads over one     {:8.2}   wanted: 1", median(one, 1) / median(two, 1));
    Ok(())
}
