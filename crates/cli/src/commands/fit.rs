//! `preflop fit`: a personal correction from measured operators.

use crate::destination;
use crate::error::InputError;
use crate::grid::Grid;
use crate::input;
use crate::output::{self, Align, Output};
use anyhow::Context as _;
use clap::Args;
use flate2::bufread::MultiGzDecoder;
use preflop_core::ops::row;
use preflop_core::time::correction::{self, Measured};
use preflop_core::time::{Correction, TimeModel};
use preflop_core::units::Seconds;
use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::path::PathBuf;

/// Turn measured operators into a correction for your GPU, and tell how much better it predicts
///
/// Takes what `preflop measure` writes: CSV with the columns op, phase, dtype, shape and gpu_us. The correction goes
/// into `--correction` of `predict`, `ops` and `compare`.
#[derive(Debug, Args)]
#[command(after_help = "EXAMPLES
  preflop fit measured.csv --gpu h200 -o my.correction.json")]
pub struct FitArgs {
    /// Measured operators (CSV, also gzipped)
    measured: String,

    /// The GPU they were measured on: a name (see `preflop gpus`) or the path of a GPU file
    #[arg(long, value_name = "GPU")]
    gpu: String,

    /// Correction file to write
    #[arg(short, long, value_name = "FILE.correction.json")]
    output: PathBuf,
}

/// Rows are held in memory; a correction gains nothing from more.
const MAX_ROWS: usize = 1_000_000;

/// Reads, fits, writes, tells.
pub fn run(args: &FitArgs, output: &Output) -> anyhow::Result<()> {
    input::writable(&args.output)?;
    let gpu = input::gpu(&args.gpu)?;
    let (rows, skipped) = read(&args.measured)?;
    let provenance = format!(
        "preflop {} fit on {}, {} measured operators",
        env!("CARGO_PKG_VERSION"),
        input::today(),
        rows.len()
    );
    let fitted = correction::fit(&rows, &TimeModel::embedded(), &gpu, &provenance)
        .map_err(|e| InputError::new(format!("{}: {e}", args.measured)))?;
    let mut text = serde_json::to_string_pretty(&fitted)?;
    text.push('\n');
    destination::write_bytes(&args.output, text)?;
    let file = args.output.display().to_string();
    // The first score is over all rows that the fit used.
    let used = fitted.held_out.first().map_or(0, |all| all.rows as usize);
    let absurd = rows.len().saturating_sub(used);
    if output.json {
        return output::print_json(&serde_json::json!({
            "output": file, "gpu": fitted.gpu, "rows": rows.len(), "skipped": skipped, "absurd": absurd,
            "held_out": fitted.held_out,
        }));
    }
    print(&fitted, &file, skipped, absurd, output)
}

fn print(
    fitted: &Correction,
    file: &str,
    skipped: usize,
    absurd: usize,
    output: &Output,
) -> anyhow::Result<()> {
    let mut out = output::stdout();
    let title = "error on rows that the fit did not see, mean / median of |predicted/measured - 1|";
    writeln!(out, "{}\n", output::wrapped(title, output.width, "  "))?;
    let mut table = Grid::new(&[
        ("family", Align::Keep, 0),
        ("rows", Align::Right, 1),
        ("before", Align::Right, 0),
        ("after", Align::Right, 0),
    ]);
    for h in &fitted.held_out {
        table.row([
            h.family.clone(),
            h.rows.to_string(),
            format!("{:.1} / {:.1} %", h.before_mean_pct, h.before_median_pct),
            format!("{:.1} / {:.1} %", h.after_mean_pct, h.after_median_pct),
        ]);
    }
    table.write(&mut out, output)?;
    writeln!(out)?;
    if skipped > 0 {
        writeln!(out, "{skipped} rows could not be read and were left out")?;
    }
    if absurd > 0 {
        writeln!(
            out,
            "{absurd} rows are so far from the others that they were measured wrongly; they were left out"
        )?;
    }
    writeln!(out, "wrote {file}; use it as `--gpu {} --correction {file}`", fitted.gpu)?;
    Ok(out.flush()?)
}

/// Measured calls of a file, and how many rows could not be read.
fn read(path: &str) -> anyhow::Result<(Vec<Measured>, usize)> {
    let mut file = BufReader::new(input::open(path)?);
    let packed = file.fill_buf().with_context(|| format!("cannot read `{path}`"))?.starts_with(&[0x1f, 0x8b]);
    let text: Box<dyn Read> = if packed { Box::new(MultiGzDecoder::new(file)) } else { Box::new(file) };
    let mut reader = csv::ReaderBuilder::new().flexible(true).from_reader(text);
    let header = reader.headers().map_err(|e| InputError::new(format!("{path}: {e}")))?.clone();
    let column = |name: &str| {
        header.iter().position(|h| h.trim() == name).ok_or_else(|| {
            InputError::new(format!("{path}: line 1: no column `{name}`"))
                .hint("measured operators have the columns op, phase, dtype, shape, gpu_us; `preflop measure` writes them")
        })
    };
    let columns = [column("op")?, column("phase")?, column("dtype")?, column("shape")?, column("gpu_us")?];
    let (mut rows, mut skipped) = (Vec::new(), 0);
    for record in reader.records() {
        let record = record.map_err(|e| InputError::new(format!("{path}: {e}")))?;
        if rows.len() == MAX_ROWS {
            return Err(InputError::new(format!("{path}: more than {MAX_ROWS} rows")).into());
        }
        let [op, phase, dtype, shape, us] = columns.map(|c| record.get(c).unwrap_or_default().trim());
        match (row::parse(op, phase, dtype, shape), us.parse::<f64>()) {
            (Ok(call), Ok(us)) if us > 0.0 && us.is_finite() => {
                rows.push(Measured { call, time: Seconds::from_us(us) });
            }
            _ => skipped += 1,
        }
    }
    Ok((rows, skipped))
}
