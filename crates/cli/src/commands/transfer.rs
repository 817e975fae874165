//! `preflop transfer`: the recorded job on other GPUs.

use super::profile::{self, WindowArgs};
use crate::error::InputError;
use crate::grid::Grid;
use crate::input;
use crate::output::{self, Align, Output, three_digits};
use clap::{Args, ValueEnum};
use preflop_core::Gpu;
use preflop_core::gpu::catalog;
use preflop_core::model::Precision;
use preflop_core::profile::{Analysis, Profile};
use preflop_core::time::TimeModel;
use preflop_core::transfer::change::{self, Change};
use preflop_core::transfer::{self, Host, Method, Options, Transfer};
use preflop_core::units::Seconds;
use serde::Serialize;
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
    #[arg(
        long,
        visible_alias = "gpu",
        alias = "gpus",
        value_name = "GPU,..",
        value_delimiter = ',',
        default_value = "all"
    )]
    to: Vec<String>,

    /// GPU of the recording, where it does not say
    #[arg(long, value_name = "GPU")]
    from: Option<String>,

    /// How times are carried over; `ratio` has the smallest error on published rows (docs/papers.md)
    #[arg(long, value_enum, default_value = "ratio")]
    method: MethodArg,

    /// Factor on the recorded host time: 1 keeps it, 0.8 is a host a fifth faster. Without it the profiler's own share is
    /// taken out: 0.75 of PyTorch profiler traces, 1 of the others
    #[arg(long, value_name = "FACTOR", value_parser = factor)]
    host: Option<f64>,

    /// Another host, which takes so many milliseconds for an iteration
    #[arg(long, value_name = "MS", conflicts_with = "host", value_parser = milliseconds)]
    host_ms: Option<f64>,

    /// Samples of an iteration there, instead of the recorded ones
    #[arg(long, value_name = "N", value_parser = input::batch)]
    batch: Option<u64>,

    /// Samples of the recorded iteration, where its shapes do not tell
    #[arg(long, value_name = "N", value_parser = input::batch, requires = "batch")]
    recorded_batch: Option<u64>,

    /// Number format there, instead of the recorded one: fp32, tf32, amp, bf16, fp16 or fp8
    #[arg(long, value_name = "FORMAT", value_parser = crate::run_args::precision())]
    precision: Option<Precision>,

    /// Tensors lie channels-last there, so that nothing converts between layouts
    #[arg(long)]
    channels_last: bool,

    /// A recording of the same job on another GPU: says how well this one carries over to it
    #[arg(long, value_name = "OTHER")]
    check: Option<PathBuf>,

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

fn milliseconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(x) if x > 0.0 && x < 1e9 => Ok(x),
        _ => Err("it must be a time in milliseconds above 0".to_string()),
    }
}

impl TransferArgs {
    /// Samples there over samples here, if another batch is asked for.
    fn batch_factor(&self, analysis: &Analysis) -> anyhow::Result<Option<f64>> {
        let Some(batch) = self.batch else { return Ok(None) };
        let Some(recorded) = self.recorded_batch.or_else(|| change::recorded_batch(analysis)) else {
            let message = "the recording does not tell how many samples an iteration has";
            return Err(InputError::new(message).hint("say it: `--recorded-batch 64`").into());
        };
        Ok(Some(batch as f64 / recorded as f64))
    }
}

/// What `--json` prints.
#[derive(Serialize)]
struct Answer<'a> {
    #[serde(flatten)]
    transfer: &'a Transfer,
    #[serde(skip_serializing_if = "Option::is_none")]
    check: Option<Check>,
}

/// The same job recorded on another GPU.
struct Other {
    gpu: Gpu,
    measured_ms: f64,
    gpu_busy_ms: f64,
}

impl Other {
    fn new(recording: &Profile, args: &TransferArgs) -> anyhow::Result<Self> {
        let analysis = profile::analyse(recording, &args.window)?;
        let Some(gpu) = profile::origin(recording, Some(analysis.window.device), None)? else {
            let message = format!("`{}` does not say which GPU it was recorded on", recording.source);
            return Err(InputError::new(message)
                .hint("`--check` needs a recording that names its GPU")
                .into());
        };
        // Both recordings carry the profiler's host time, so it stays in both.
        let (measured_ms, gpu_busy_ms) = (analysis.measured().ms(), analysis.gpu_busy().ms());
        Ok(Self { gpu, measured_ms, gpu_busy_ms })
    }

    fn against(self, result: &Transfer) -> Check {
        let target = result.targets.first();
        let of = |get: fn(&transfer::Target) -> f64| target.map_or(f64::NAN, get);
        let (iteration, low, high) = (of(|t| t.iteration_ms), of(|t| t.low_ms), of(|t| t.high_ms));
        Check {
            gpu: self.gpu.name,
            measured_ms: self.measured_ms,
            iteration_ms: iteration,
            error: iteration / self.measured_ms - 1.0,
            in_interval: low <= self.measured_ms && self.measured_ms <= high,
            measured_gpu_busy_ms: self.gpu_busy_ms,
            gpu_busy_error: of(|t| t.gpu_busy_ms) / self.gpu_busy_ms - 1.0,
        }
    }
}

/// How well a job was carried over.
#[derive(Serialize)]
struct Check {
    gpu: String,
    measured_ms: f64,
    iteration_ms: f64,
    error: f64,
    in_interval: bool,
    measured_gpu_busy_ms: f64,
    gpu_busy_error: f64,
}

impl Check {
    fn print(&self, output: &Output) -> anyhow::Result<()> {
        let mut out = output::stdout();
        writeln!(
            out,
            "\nrecorded on {}: {} ms, predicted {} ms: {:+.1} %, {} its 90 % interval; GPU busy {:+.1} %",
            output.bold(&self.gpu),
            three_digits(self.measured_ms),
            three_digits(self.iteration_ms),
            100.0 * self.error,
            if self.in_interval { "in" } else { "outside" },
            100.0 * self.gpu_busy_error
        )?;
        Ok(out.flush()?)
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
    // Of the whole catalogue, those that have the recording's formats are answered; one that is named must have them.
    let all = args.to.iter().any(|name| name == "all");
    let mut able = Vec::with_capacity(gpus.len());
    for gpu in gpus {
        match transfer::lacks(&analysis, &gpu) {
            Some(lacks) if !all => return Err(InputError::new(lacks).into()),
            Some(_) => {}
            None => able.push(gpu),
        }
    }
    let gpus = able;
    let method = match args.method {
        MethodArg::Wave => Method::Wave,
        MethodArg::Ratio => Method::Ratio,
        MethodArg::Mixed => Method::Mixed,
    };
    let host = match (args.host, args.host_ms) {
        (Some(factor), _) => Host::Factor(factor),
        (None, Some(ms)) => Host::Time(Seconds(ms / 1e3)),
        // Two recordings of one job both hold the profiler's time.
        (None, None) if args.check.is_some() => Host::Factor(1.0),
        (None, None) => Host::Unprofiled,
    };
    let change = Change {
        batch: args.batch_factor(&analysis)?,
        precision: args.precision,
        channels_last: args.channels_last,
    };
    let options = Options { method, host, change, operators: args.operators };
    let model = TimeModel::embedded();
    let mut gpus = gpus;
    let other = args.check.as_deref().map(profile::read).transpose()?;
    let other = other.as_ref().map(|p| Other::new(p, args)).transpose()?;
    if let Some(other) = &other {
        gpus = vec![other.gpu.clone()];
    }
    let result = transfer::transfer(&analysis, &model, &origin, &gpus, &options);
    let check = other.map(|o| o.against(&result));
    if output.json {
        return output::print_json(&Answer { transfer: &result, check });
    }
    print(&result, output)?;
    check.map_or(Ok(()), |check| check.print(output))
}

fn print(result: &Transfer, output: &Output) -> anyhow::Result<()> {
    let ms = |x: f64| format!("{} ms", three_digits(x));
    let mut out = output::stdout();
    let title = format!(
        "{}: iteration {}, GPU busy {}, host {}, unattributed {} ({} of the kernel time)",
        output.bold(&result.origin),
        ms(result.measured_ms),
        ms(result.gpu_busy_ms),
        ms(result.host_ms),
        ms(result.unattributed_ms),
        output::percent(result.unattributed_share)
    );
    writeln!(out, "{}\n", output::wrapped(&title, output.width, "  "))?;
    let mut sorted: Vec<_> = result.targets.iter().collect();
    sorted.sort_by(|a, b| a.iteration_ms.total_cmp(&b.iteration_ms));
    let mut grid = Grid::default();
    grid.add("GPU", Align::Keep, 0, sorted.iter().map(|t| t.gpu.clone()));
    grid.add("iteration", Align::Right, 0, sorted.iter().map(|t| ms(t.iteration_ms)));
    let interval = sorted.iter().map(|t| format!("{} - {}", three_digits(t.low_ms), ms(t.high_ms)));
    grid.add("90 % interval", Align::Right, 1, interval);
    grid.add("GPU busy", Align::Right, 3, sorted.iter().map(|t| ms(t.gpu_busy_ms)));
    grid.add("bound", Align::Keep, 2, sorted.iter().map(|t| t.bound.name().to_string()));
    let speedup = sorted.iter().map(|t| format!("{}x", three_digits(t.speedup)));
    grid.add("speedup", Align::Right, 0, speedup);
    grid.write(&mut out, output)?;
    for t in &sorted {
        if !t.operators.is_empty() {
            writeln!(out, "\n{}", output.bold(&t.gpu))?;
            let mut table = Grid::new(&[
                ("operator", Align::Left, 0),
                ("by", Align::Keep, 1),
                (result.origin.as_str(), Align::Right, 0),
                (t.gpu.as_str(), Align::Right, 0),
            ]);
            for o in &t.operators {
                let way = format!("{:?}", o.way).to_lowercase();
                table.row(vec![o.name.clone(), way, ms(o.origin_ms), ms(o.time_ms)]);
            }
            table.write(&mut out, output)?;
        }
    }
    for note in &result.notes {
        writeln!(out, "{}", output.dim(&output::wrapped(note, output.width, "")))?;
    }
    let mut notes: Vec<String> = Vec::new();
    for t in &sorted {
        notes.extend(t.notes.iter().map(|n| format!("{}: {n}", t.gpu)));
    }
    if sorted.len() <= 4 {
        for note in notes {
            writeln!(out, "{}", output.dim(&output::wrapped(&note, output.width, "")))?;
        }
    }
    Ok(out.flush()?)
}
