//! `preflop ops`: predicts every row of an operator file.

use super::ops_table;
use crate::error::{InputError, RowsFailed};
use crate::grid::Grid;
use crate::input;
use crate::output::{self, Align, Output};
use crate::rows::{Dialect, RawRow, Rows};
use crate::run_args::{self, StackChoice};
use crate::tables;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use preflop_core::time::{OpPrediction, Stack, TimeModel};
use preflop_core::{Gpu, OpCall};
use preflop_language::served::Constants;
use preflop_table::format::Format;
use rayon::prelude::*;
use std::io::{self, IsTerminal as _, Write};
use std::time::{Duration, Instant};

/// Predict every operator of a file
///
/// Reads CSV (also gzipped), JSON Lines, Parquet or Arrow with the columns op, phase, dtype and shape, and prints one JSON object
/// per row, in order. A row that cannot be predicted gives {"error": ..}, and the exit status is then 1. With `-o` or `--format` it
/// writes a table: the columns above with the answers beside them.
#[derive(Debug, Args)]
#[command(after_help = "EXAMPLES
  preflop ops ops.csv.gz --gpu h200 > times.jsonl
  preflop ops ops.jsonl --gpu a100 --human
  preflop ops attention.csv --gpu h200 --stack served")]
pub struct OpsArgs {
    /// Operator file, or `-` for standard input
    pub(super) file: String,

    /// GPU name (see `preflop gpus`) or the path of a GPU file
    #[arg(long, value_name = "GPU")]
    pub(super) gpu: String,

    /// Table to write: .parquet, .arrow, .csv or .jsonl [default: JSON Lines on standard output]
    #[arg(short, long, value_name = "FILE", conflicts_with = "human")]
    pub(super) output: Option<String>,

    /// How the table is written [default: by its ending]
    #[arg(long, value_name = "FORMAT", value_parser = tables::format, conflicts_with = "human")]
    pub(super) format: Option<Format>,

    /// Print a table instead of JSON Lines (up to 1000 rows)
    #[arg(long, conflicts_with = "json")]
    human: bool,

    /// Whose kernels: PyTorch's, or those of an inference server (attention and products)
    #[arg(long, value_name = "STACK", default_value = "pytorch", value_parser = run_args::stack(), conflicts_with_all = ["output", "format"])]
    stack: StackChoice,

    /// Your own correction for this GPU, from `preflop fit`
    #[arg(long, value_name = "FILE")]
    pub(super) correction: Option<String>,
}

/// Most rows of `--human`: a table must be laid out as a whole.
const MAX_TABLE_ROWS: u64 = 1000;

/// Reads, predicts, prints.
pub fn run(args: &OpsArgs, output: &Output) -> anyhow::Result<()> {
    if let Some(result) = ops_table::run(args) {
        return result;
    }
    let gpu = input::gpu(&args.gpu)?;
    let (mut rows, size) = Rows::open(&args.file)?;
    let mut model = input::time_model(args.correction.as_deref(), [&gpu])?;
    let mut served = None;
    if args.stack == StackChoice::Served {
        model = model.with_stack(Stack::SERVED);
        served = Some(Constants::embedded());
    }
    let model = Kernels { model, served };
    if args.human {
        table(&mut rows, &model, &gpu, output)
    } else {
        json_lines(&mut rows, &model, &gpu, size)
    }
}

/// Whose kernels run the operators.
struct Kernels {
    model: TimeModel,
    /// Of an inference server.
    served: Option<Constants>,
}

impl Kernels {
    fn predict_many(&self, calls: &[&OpCall], gpu: &Gpu) -> Vec<OpPrediction> {
        let mut predictions = self.model.predict_many(calls, gpu);
        if let Some(served) = &self.served {
            for (call, p) in calls.iter().zip(&mut predictions) {
                *p = served.serve(call, *p, gpu);
            }
        }
        predictions
    }

    fn predict(&self, call: &OpCall, gpu: &Gpu) -> OpPrediction {
        let p = self.model.predict(call, gpu);
        self.served.as_ref().map_or(p, |served| served.serve(call, p, gpu))
    }
}

/// Counts the rows, and keeps what the first failed one said.
#[derive(Default)]
pub(super) struct Tally {
    pub(super) total: u64,
    failed: u64,
    first: String,
}

impl Tally {
    pub(super) fn fail(&mut self, message: &str) {
        if self.failed == 0 {
            self.first = message.to_string();
        }
        self.failed += 1;
    }

    pub(super) fn finish(self) -> anyhow::Result<()> {
        if self.failed == 0 {
            return Ok(());
        }
        Err(RowsFailed { failed: self.failed, total: self.total, first: self.first }.into())
    }
}

fn checked(call: &OpCall, p: OpPrediction) -> Result<OpPrediction, String> {
    let all = [p.time.0, p.low.0, p.high.0, p.flops.0, p.dram.0, p.l2.0, p.l1.0];
    if all.iter().any(|x| !x.is_finite()) {
        return Err(format!("op `{}`: its sizes are too large to predict", call.name()));
    }
    Ok(p)
}

/// Rows that are read before they are predicted, by all cores together.
const CHUNK: usize = 8192;
/// Rows that one core predicts together: enough that many ask the same trees.
const TOGETHER: usize = 1024;

/// A row and its answer; both keep their memory from chunk to chunk.
#[derive(Default)]
struct Slot {
    row: RawRow,
    answer: Vec<u8>,
    problem: Option<String>,
}

impl Slot {
    fn keep(&mut self, answer: Result<OpPrediction, String>) -> io::Result<()> {
        self.answer.clear();
        self.problem = None;
        match answer {
            Ok(p) => write_prediction(&mut self.answer, &p),
            Err(problem) => {
                let message = format!("line {}: {problem}", self.row.line());
                serde_json::to_writer(&mut self.answer, &serde_json::json!({ "error": message }))?;
                self.answer.push(b'\n');
                self.problem = Some(message);
                Ok(())
            }
        }
    }
}

/// Answers rows that are predicted together.
fn answer(slots: &mut [Slot], dialect: Dialect, model: &Kernels, gpu: &Gpu) -> io::Result<()> {
    let calls: Vec<Result<OpCall, String>> = slots.iter().map(|slot| slot.row.call(dialect)).collect();
    let good: Vec<&OpCall> = calls.iter().filter_map(|call| call.as_ref().ok()).collect();
    let mut predictions = model.predict_many(&good, gpu).into_iter();
    for (slot, call) in slots.iter_mut().zip(&calls) {
        let answer = match call {
            Ok(call) => match predictions.next() {
                Some(p) => checked(call, p),
                None => Err("no prediction".to_string()),
            },
            Err(problem) => Err(problem.clone()),
        };
        slot.keep(answer)?;
    }
    Ok(())
}

/// Reads up to a chunk of rows; how many, and whether there are more.
fn fill(rows: &mut Rows, slots: &mut [Slot]) -> (usize, anyhow::Result<bool>) {
    for (filled, slot) in slots.iter_mut().enumerate() {
        match rows.read(&mut slot.row) {
            Ok(true) => {}
            end => return (filled, end),
        }
    }
    (slots.len(), Ok(true))
}

fn json_lines(rows: &mut Rows, model: &Kernels, gpu: &Gpu, size: Option<u64>) -> anyhow::Result<()> {
    let dialect = rows.dialect();
    let mut out = output::stdout();
    let mut progress = Progress::new(size);
    let mut tally = Tally::default();
    let slots = || {
        let mut slots: Vec<Slot> = Vec::new();
        slots.resize_with(CHUNK, Slot::default);
        slots
    };
    let (mut now, mut next) = (slots(), slots());
    let (mut filled, mut more) = fill(rows, &mut now);
    while filled > 0 {
        // The next rows are read while these are predicted.
        let mut predicted = Ok(());
        let mut read = (0, Ok(false));
        rayon::in_place_scope(|scope| {
            let (slots, predicted) = (&mut now[..filled], &mut predicted);
            scope.spawn(move |_| {
                *predicted =
                    slots.par_chunks_mut(TOGETHER).try_for_each(|slots| answer(slots, dialect, model, gpu));
            });
            if matches!(more, Ok(true)) {
                read = fill(rows, &mut next);
            }
        });
        predicted?;
        for slot in &now[..filled] {
            out.write_all(&slot.answer)?;
            tally.total += 1;
            if let Some(problem) = &slot.problem {
                tally.fail(problem);
            }
        }
        progress.update(rows.consumed());
        if matches!(more, Ok(true)) {
            (filled, more) = read;
            std::mem::swap(&mut now, &mut next);
        } else {
            filled = 0;
        }
    }
    out.flush()?;
    progress.clear();
    // What was read before the file broke off has been answered.
    more?;
    tally.finish()
}

/// One line, written by hand: this is the inner loop of files with millions of rows.
pub(super) fn write_prediction(out: &mut impl Write, p: &OpPrediction) -> io::Result<()> {
    out.write_all(b"{\"time_us\":")?;
    microseconds(out, p.time.us())?;
    out.write_all(b",\"low_us\":")?;
    microseconds(out, p.low.us())?;
    out.write_all(b",\"high_us\":")?;
    microseconds(out, p.high.us())?;
    out.write_all(b",\"bound\":\"")?;
    out.write_all(p.bound.name().as_bytes())?;
    for (key, value) in [
        (&b"\",\"flops\":"[..], p.flops.0),
        (b",\"dram_bytes\":", p.dram.0),
        (b",\"l2_bytes\":", p.l2.0),
        (b",\"l1_bytes\":", p.l1.0),
    ] {
        out.write_all(key)?;
        whole(out, value)?;
    }
    out.write_all(b"}\n")
}

/// Microseconds to a tenth of a nanosecond, far below what any clock shows.
fn microseconds(out: &mut impl Write, us: f64) -> io::Result<()> {
    serde_json::to_writer(out, &((us * 1e4).round() / 1e4)).map_err(io::Error::from)
}

/// Counts are whole; those beyond 2^53 are written as floats.
fn whole(out: &mut impl Write, x: f64) -> io::Result<()> {
    if x.abs() < 9e15 {
        return out.write_all(itoa::Buffer::new().format(x.round() as i64).as_bytes());
    }
    serde_json::to_writer(out, &x).map_err(io::Error::from)
}

fn table(rows: &mut Rows, model: &Kernels, gpu: &Gpu, output: &Output) -> anyhow::Result<()> {
    let mut table = Grid::new(&[
        ("line", Align::Right, 0),
        ("op", Align::Keep, 0),
        ("pass", Align::Keep, 0),
        ("dtype", Align::Keep, 1),
        ("time", Align::Right, 0),
        ("90 % interval", Align::Right, 2),
        ("bound", Align::Keep, 1),
        ("work", Align::Right, 3),
        ("DRAM", Align::Right, 3),
    ]);
    let mut tally = Tally::default();
    let mut problems = Vec::new();
    let mut row = RawRow::default();
    while rows.read(&mut row)? {
        tally.total += 1;
        if tally.total > MAX_TABLE_ROWS {
            let message = format!("more than {MAX_TABLE_ROWS} rows are too many for a table");
            return Err(InputError::new(message).hint("leave out `--human`").into());
        }
        let call = row.call(rows.dialect());
        match call.and_then(|call| Ok((checked(&call, model.predict(&call, gpu))?, call))) {
            Ok((p, call)) => {
                table.row([
                    row.line().to_string(),
                    call.name().to_string(),
                    call.pass.name().to_string(),
                    call.dtype.to_string(),
                    output::time(p.time),
                    format!("{} - {}", output::time(p.low), output::time(p.high)),
                    p.bound.name().to_string(),
                    output::flops(p.flops),
                    output::traffic(p.dram),
                ]);
            }
            Err(problem) => {
                let message = format!("line {}: {problem}", row.line());
                tally.fail(&message);
                problems.push(message);
            }
        }
    }
    let mut out = output::stdout();
    table.write(&mut out, output)?;
    for problem in problems {
        writeln!(out, "not predicted: {problem}")?;
    }
    out.flush()?;
    tally.finish()
}

/// A bar on stderr once the work has lasted a second, where it does not run into the answers.
struct Progress {
    start: Instant,
    size: Option<u64>,
    bar: Option<ProgressBar>,
}

impl Progress {
    fn new(size: Option<u64>) -> Self {
        Self { start: Instant::now(), size: size.filter(|_| !io::stdout().is_terminal()), bar: None }
    }

    fn update(&mut self, consumed: u64) {
        let Some(size) = self.size else { return };
        if self.bar.is_none() && self.start.elapsed() > Duration::from_secs(1) {
            let style = ProgressStyle::with_template("{wide_bar} {percent} % {eta}");
            self.bar = Some(
                ProgressBar::new(size).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar())),
            );
        }
        if let Some(bar) = &self.bar {
            bar.set_position(consumed);
        }
    }

    fn clear(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }
}
