//! `preflop transfer`: the recorded job on other GPUs.

use super::profile::{self, WindowArgs};
use crate::error::InputError;
use crate::input;
use crate::output::{self, Align, Output, three_digits};
use clap::{Args, ValueEnum};
use preflop_core::Gpu;
use preflop_core::gpu::catalog;
use preflop_core::time::TimeModel;
use preflop_core::transfer::{self, Method, Options, Transfer};
use std::io::Write as _;
use std::path::PathBuf;

/// Predict a recorded iteration on other GPUs
#[derive(Debug, Args)]
#[command(after_help = "EXAMPLES
  preflop transfer trace.json.gz --to h100,l4")]
pub struct TransferArgs {
    /// Recording: PyTorch profiler JSON, Nsight Systems SQLite or Nsight Compute CSV, plain, .gz or .zst
    profile: PathBuf,

    /// GPUs to predict, separated by commas; all of the catalogue by default
    #[arg(long, value_name = "GPU,..", value_delimiter = ',', default_value = "all")]
    to: Vec<String>,

    /// GPU of the recording, where it does not say
    #[arg(long, value_name = "GPU")]
    from: Option<String>,

    /// How times are carried over
    #[arg(long, value_enum, default_value = "mixed")]
    method: MethodArg,

    /// Factor on the host's time: 1 keeps it, 0.8 is a host a fifth faster; a profiler slows hosts by 1.2 to 1.5
    #[arg(long, value_name = "FACTOR", default_value = "1", value_parser = factor)]
    host: f64,

    /// List every operator with its time on each GPU
    #[arg(long)]
    operators: bool,

    #[command(flatten)]
    window: WindowArgs,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum MethodArg {
    /// Wave scaling of every kernel
    Wave,
    /// Ratio of predictions wherever shapes are known
    Ratio,
    /// Ratio where kernels change between GPUs, waves elsewhere
    Mixed,
}

fn factor(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(x) if (0.01..=100.0).contains(&x) => Ok(x),
        _ => Err("it must be a number from 0.01 to 100".to_string()),
    }
}

fn targets(names: &[String]) -> anyhow::Result<Vec<Gpu>> {
    let mut gpus: Vec<Gpu> = Vec::new();
    for name in names.iter().filter(|n| !n.is_empty()) {
        if name == "all" {
            gpus.extend(catalog::all()?);
        } else {
            gpus.push(input::gpu(name)?);
        }
    }
    if gpus.is_empty() {
        return Err(InputError::new("no GPU to predict").hint("`--to h100,a100` or `--to all`").into());
    }
    Ok(gpus)
}

/// Reads, transfers, prints.
pub fn run(args: &TransferArgs, output: &Output) -> anyhow::Result<()> {
    let gpus = targets(&args.to)?;
    let profile = profile::read(&args.profile)?;
    let analysis = profile::analyse(&profile, &args.window)?;
    let Some(origin) = profile::origin(&profile, Some(analysis.window.device), args.from.as_deref())? else {
        let message = format!("`{}` does not say which GPU it was recorded on", profile.source);
        return Err(InputError::new(message).hint("name it, such as `--from h100-sxm`").into());
    };
    let method = match args.method {
        MethodArg::Wave => Method::Wave,
        MethodArg::Ratio => Method::Ratio,
        MethodArg::Mixed => Method::Mixed,
    };
    let options = Options { method, host_factor: args.host, operators: args.operators };
    let result = transfer::transfer(&analysis, &TimeModel::embedded(), &origin, &gpus, &options);
    if output.json { output::print_json(&result) } else { print(&result, output) }
}

fn print(result: &Transfer, output: &Output) -> anyhow::Result<()> {
    let ms = |x: f64| format!("{} ms", three_digits(x));
    let mut out = output::stdout();
    writeln!(
        out,
        "{}: iteration {}, GPU busy {}, host {}, unattributed {} ({:.1} % of the kernel time)\n",
        output.bold(&result.origin),
        ms(result.measured_ms),
        ms(result.gpu_busy_ms),
        ms(result.host_ms),
        ms(result.unattributed_ms),
        100.0 * result.unattributed_share
    )?;
    let mut sorted: Vec<_> = result.targets.iter().collect();
    sorted.sort_by(|a, b| a.iteration_ms.total_cmp(&b.iteration_ms));
    let mut table = output.table(&[
        ("GPU", Align::Keep),
        ("iteration", Align::Right),
        ("90 % interval", Align::Right),
        ("GPU busy", Align::Right),
        ("speedup", Align::Right),
    ]);
    for t in &sorted {
        table.add_row(vec![
            t.gpu.clone(),
            ms(t.iteration_ms),
            format!("{} - {}", three_digits(t.low_ms), ms(t.high_ms)),
            ms(t.gpu_busy_ms),
            format!("{}x", three_digits(t.speedup)),
        ]);
    }
    output::write_table(&mut out, &table)?;
    for t in &sorted {
        if !t.operators.is_empty() {
            writeln!(out, "\n{}", output.bold(&t.gpu))?;
            let mut table = output.table(&[
                ("operator", Align::Left),
                ("by", Align::Keep),
                (result.origin.as_str(), Align::Right),
                (t.gpu.as_str(), Align::Right),
            ]);
            for o in &t.operators {
                let way = format!("{:?}", o.way).to_lowercase();
                table.add_row(vec![o.name.clone(), way, ms(o.origin_ms), ms(o.time_ms)]);
            }
            output::write_table(&mut out, &table)?;
        }
    }
    let mut notes: Vec<String> = Vec::new();
    for t in &sorted {
        notes.extend(t.notes.iter().map(|n| format!("{}: {n}", t.gpu)));
    }
    if sorted.len() <= 4 {
        for note in notes {
            writeln!(out, "{}", output.dim(&note))?;
        }
    }
    Ok(out.flush()?)
}
