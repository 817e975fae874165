//! `preflop measure`: times operators on the GPU of this machine, through PyTorch.

use crate::destination;
use crate::error::{InputError, Partly};
use crate::input;
use crate::output::{self, Output};
use crate::rows::{RawRow, Rows};
use anyhow::Context as _;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use preflop_calibrate::watch::{self, WatchError};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// Time operators on the GPU of this machine through PyTorch, for `preflop fit`
///
/// Takes the same files as `preflop ops`, and a list of its own where none is given. Needs a Python with PyTorch.
/// Rows that cannot be timed, or do not repeat, are left out, and the exit status is then 1.
#[derive(Debug, Args)]
#[command(after_help = "EXAMPLES
  preflop measure -o measured.csv
  preflop measure ops.csv -o measured.csv --dry-run")]
pub struct MeasureArgs {
    /// Operator file, or `-` for standard input [default: a built-in list of 256 operators]
    file: Option<String>,

    /// CSV file to write
    #[arg(short, long, value_name = "FILE.csv")]
    output: PathBuf,

    /// Python that has PyTorch
    #[arg(long, value_name = "PROGRAM", default_value = if cfg!(windows) { "python" } else { "python3" })]
    python: String,

    /// Give up when one operator takes longer than so many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 120, value_parser = clap::value_parser!(u64).range(1..=3600))]
    timeout: u64,

    /// Run every operator once on the CPU instead of timing it: checks a list where there is no GPU
    #[arg(long)]
    dry_run: bool,
}

/// Operators of all families, formats and sizes.
const LIST: &[u8] = include_bytes!("../../data/measured/operators.csv");
/// A row whose replays spread by more says little.
const MAX_SPREAD: f64 = 0.15;
/// Rows are held until the end; more than a day's work is a mistake.
const MAX_ROWS: usize = 100_000;

/// A row of the list.
struct Task {
    line: u64,
    texts: [String; 4],
    result: Result<Timed, String>,
}

#[derive(Debug, Clone, Copy)]
struct Timed {
    gpu_us: f64,
    spread: f64,
    copies: u32,
}

#[derive(Serialize)]
struct Asked<'a> {
    i: usize,
    op: &'a str,
    phase: &'a str,
    dtype: &'a str,
    shape: &'a RawValue,
}

/// A line that Python prints.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Said {
    i: Option<usize>,
    gpu_us: f64,
    spread: f64,
    copies: u32,
    error: Option<String>,
    failed: Option<String>,
    device: Option<String>,
    torch: Option<String>,
    end: bool,
}

/// What Python said in all.
#[derive(Debug, Default)]
struct Heard {
    device: String,
    torch: String,
    failed: Option<String>,
    ended: bool,
    odd: Option<String>,
}

/// Reads the list, lets Python time it, writes what came back.
pub fn run(args: &MeasureArgs, output: &Output) -> anyhow::Result<()> {
    input::writable(&args.output)?;
    let mut tasks = read(args.file.as_deref())?;
    let mut heard = Heard::default();
    let ended = time(args, &mut tasks, &mut heard);
    let done = tasks.iter().filter(|t| t.result.is_ok()).count();
    if done == 0 {
        return Err(nothing(args, &tasks, &heard, ended));
    }
    write(args, &tasks, &heard)?;
    let failed = tasks.len() - done;
    let file = args.output.display().to_string();
    if output.json {
        let answer = serde_json::json!({
            "output": file, "device": heard.device, "torch": heard.torch, "measured": done, "failed": failed,
        });
        output::print_json(&answer)?;
    } else {
        use std::io::Write as _;
        let mut out = output::stdout();
        writeln!(
            out,
            "{file}: {done} of {} operators measured on {} with PyTorch {}",
            tasks.len(),
            heard.device,
            heard.torch
        )?;
        out.flush()?;
    }
    let first = tasks.iter().find_map(|t| Some(format!("line {}: {}", t.line, t.result.as_ref().err()?)));
    let Some(first) = first else { return Ok(()) };
    let message = format!("{failed} of {} rows could not be measured; the first is {first}", tasks.len());
    Err(Partly(message).into())
}

fn read(file: Option<&str>) -> anyhow::Result<Vec<Task>> {
    let mut rows = match file {
        Some(path) => Rows::open(path)?.0,
        None => Rows::of(LIST, "the built-in list")?,
    };
    let (mut tasks, mut row) = (Vec::new(), RawRow::default());
    while rows.read(&mut row)? {
        if tasks.len() == MAX_ROWS {
            return Err(InputError::new(format!("more than {MAX_ROWS} rows are too many to time")).into());
        }
        let call = row.call(rows.dialect());
        let texts = row.fields(rows.dialect()).map(|f| f.map(|t| t.to_string())).unwrap_or_default();
        let result = Err(call.err().unwrap_or_default());
        tasks.push(Task { line: row.line(), texts, result });
    }
    if tasks.is_empty() {
        return Err(InputError::new("the operator file has no rows").into());
    }
    Ok(tasks)
}

/// Fills in the results. Rows that never got an answer keep an error.
fn time(args: &MeasureArgs, tasks: &mut [Task], heard: &mut Heard) -> Result<(), WatchError> {
    let mut asked = Vec::new();
    let mut count = 0;
    for (i, task) in
        tasks.iter_mut().enumerate().filter(|(_, t)| t.result.as_ref().is_err_and(String::is_empty))
    {
        let [op, phase, dtype, shape] = &task.texts;
        let Ok(shape) = serde_json::from_str::<&RawValue>(shape) else { continue };
        if serde_json::to_writer(&mut asked, &Asked { i, op, phase, dtype, shape }).is_ok() {
            asked.push(b'\n');
            count += 1;
        }
        task.result = Err("not reached".to_string());
    }
    let mut command = Command::new(&args.python);
    command.args(["-c", preflop_calibrate::MEASURE_SCRIPT]);
    if args.dry_run {
        command.arg("cpu");
    }
    let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} {eta}");
    let bar = ProgressBar::new(count).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    let watched = watch::run(&mut command, asked, Duration::from_secs(args.timeout), |text| {
        let Ok(said) = serde_json::from_str::<Said>(text) else {
            heard.odd = Some(text.chars().take(200).collect());
            return;
        };
        if let Some(task) = said.i.and_then(|i| tasks.get_mut(i)) {
            task.result = judge(&said);
            bar.inc(1);
        }
        if let (Some(device), Some(torch)) = (said.device, said.torch) {
            (heard.device, heard.torch) = (device, torch);
        }
        heard.failed = said.failed.or(heard.failed.take());
        heard.ended |= said.end;
    });
    bar.finish_and_clear();
    if let Err(error) = &watched {
        for task in tasks.iter_mut().filter(|t| t.result.as_ref().is_err_and(|e| e == "not reached")).take(1)
        {
            task.result = Err(format!("Python stopped here: {error}"));
        }
    }
    watched
}

/// Does a timing count?
fn judge(said: &Said) -> Result<Timed, String> {
    if let Some(error) = &said.error {
        return Err(error.clone());
    }
    if !said.gpu_us.is_finite() || said.gpu_us <= 0.0 || !said.spread.is_finite() {
        return Err("no usable time".to_string());
    }
    if said.spread > MAX_SPREAD {
        return Err(format!(
            "replays spread by {:.0} %, more than {:.0} %",
            100.0 * said.spread,
            100.0 * MAX_SPREAD
        ));
    }
    Ok(Timed { gpu_us: said.gpu_us, spread: said.spread, copies: said.copies })
}

/// Why not one operator could be timed.
fn nothing(
    args: &MeasureArgs,
    tasks: &[Task],
    heard: &Heard,
    ended: Result<(), WatchError>,
) -> anyhow::Error {
    let hint = "`--python PROGRAM` names one that has PyTorch";
    if let Some(why) = &heard.failed {
        return InputError::new(format!("`{}` cannot measure: {why}", args.python)).hint(hint).into();
    }
    if let Err(error @ WatchError::Start { .. }) = &ended {
        return InputError::new(error.to_string()).hint(hint).into();
    }
    let first = tasks.iter().find_map(|t| Some(format!("line {}: {}", t.line, t.result.as_ref().err()?)));
    let why = match ended {
        Err(error) => format!("`{}`: {error}", args.python),
        Ok(()) if !heard.ended => heard.odd.clone().unwrap_or_else(|| "Python said nothing".to_string()),
        Ok(()) => first.unwrap_or_default(),
    };
    InputError::new(format!("no operator could be measured: {why}")).into()
}

fn write(args: &MeasureArgs, tasks: &[Task], heard: &Heard) -> anyhow::Result<()> {
    let path = args.output.display().to_string();
    destination::write(&args.output, |out| {
        let mut out = csv::Writer::from_writer(out);
        out.write_record(["op", "phase", "dtype", "shape", "gpu_us", "spread", "copies", "device", "torch"])?;
        for task in tasks {
            let Ok(t) = task.result.as_ref() else { continue };
            let [op, phase, dtype, shape] = &task.texts;
            let (us, spread) = (format!("{:.3}", t.gpu_us), format!("{:.4}", t.spread));
            let copies = t.copies.to_string();
            out.write_record([op, phase, dtype, shape, &us, &spread, &copies, &heard.device, &heard.torch])?;
        }
        out.flush().with_context(|| format!("cannot write `{path}`"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_of_the_built_in_list_can_be_read() {
        let tasks = read(None).unwrap();
        assert_eq!(tasks.len(), 256);
        for task in tasks {
            assert_eq!(task.result.err().as_deref(), Some(""), "line {}", task.line);
        }
    }

    #[test]
    fn noisy_and_impossible_times_do_not_count() {
        let said = |text: &str| judge(&serde_json::from_str(text).unwrap());
        assert_eq!(said(r#"{"i":0,"gpu_us":3.5,"spread":0.01,"copies":8}"#).unwrap().gpu_us, 3.5);
        assert!(said(r#"{"i":0,"gpu_us":3.5,"spread":0.4}"#).unwrap_err().contains("40 %"));
        assert!(said(r#"{"i":0,"gpu_us":0}"#).is_err());
        assert_eq!(said(r#"{"i":0,"error":"out of memory"}"#).unwrap_err(), "out of memory");
    }
}
