//! `preflop validate`: predictions against measurements, family by family.

use crate::destination;
use crate::error::InputError;
use crate::grid::Grid;
use crate::input;
use crate::output::{self, Align, Output};
use anyhow::Context as _;
use clap::Args;
use flate2::read::GzDecoder;
use preflop_core::gpu::{Gpu, catalog};
use preflop_core::model::{LowerOptions, Mode, Precision, lower, zoo};
use preflop_core::ops::row;
use preflop_core::schedule::Schedule as _;
use preflop_core::time::TimeModel;
use preflop_plot::parity;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

/// The project's own measurements, as they ship.
const OPERATORS: &[u8] = include_bytes!("../../data/measured/h200/ops.csv.gz");
const CONVOLUTIONS: &[u8] = include_bytes!("../../data/measured/h200/conv.csv.gz");
const ITERATIONS: &[u8] = include_bytes!("../../data/measured/h200/e2e.csv");
/// What cross-validation said when the model was fitted.
const CROSS_VALIDATION: &str = include_str!("../../data/fitted/report.json");

/// Score predictions against measurements: the bundled H200 rows, or a folder of your own
#[derive(Debug, Args)]
#[command(after_help = "EXAMPLES
  preflop validate
  preflop validate --data measured --plot parity.svg")]
pub struct ValidateArgs {
    /// Folder with measurements: `*.csv` or `*.csv.gz` with columns op, phase, dtype, shape, gpu_us (and gpu),
    /// or model, batch, seq, precision, mode, iter_ms
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// GPU of rows that have no `gpu` column
    #[arg(long, default_value = catalog::USUAL)]
    gpu: String,
    /// Score several GPUs: collectives, parallel iterations, FSDP, DDP and memory, on the files of `--data`
    #[arg(long)]
    parallel: bool,
    /// Write a parity plot (SVG or PNG)
    #[arg(long, value_name = "FILE")]
    plot: Option<String>,
}

/// One measurement with its prediction, in microseconds.
struct Pair {
    group: String,
    dtype: String,
    gpu: String,
    measured: f64,
    predicted: f64,
    covered: bool,
    roofline: f64,
}

/// Errors of one group.
#[derive(Debug, Serialize)]
struct Row {
    family: String,
    dtype: String,
    gpu: String,
    n: usize,
    mean_percent: f64,
    median_percent: f64,
    bias_percent: f64,
    coverage_percent: f64,
    roofline_mean_percent: f64,
}

/// One line of the cross-validation report.
#[derive(Debug, Serialize, Deserialize)]
struct CrossValidated {
    family: String,
    class: String,
    gpu: String,
    how: String,
    n: usize,
    mean_percent: f64,
    median_percent: f64,
    bias_percent: f64,
}

/// Everything `--json` prints.
#[derive(Serialize)]
struct Report {
    rows: Vec<Row>,
    skipped: usize,
    cross_validation: Vec<CrossValidated>,
}

struct Scorer<'a> {
    model: TimeModel,
    default_gpu: &'a str,
    gpus: BTreeMap<String, Gpu>,
    pairs: Vec<Pair>,
    skipped: usize,
}

/// Runs the command.
pub fn run(args: &ValidateArgs, output: &Output) -> anyhow::Result<()> {
    if args.parallel {
        return super::validate_parallel::run(args.data.as_deref(), output);
    }
    let mut scorer = Scorer::new(&args.gpu)?;
    match &args.data {
        None => scorer.bundled()?,
        Some(folder) => scorer.folder(folder)?,
    }
    if scorer.pairs.is_empty() {
        return Err(InputError::new("no row could be read")
            .hint("see `preflop validate --help` for the columns")
            .into());
    }
    if let Some(path) = &args.plot {
        let format = output::chart_format(path)?;
        let groups = points(&scorer.pairs);
        let bytes = parity("Predicted against measured time", &groups)?.render(format)?;
        destination::write_bytes(path, bytes)?;
    }
    let report = scorer.report()?;
    if output.json {
        return output::print_json(&report);
    }
    print_tables(&report.rows, report.skipped, &report.cross_validation, args.data.is_none(), output)
}

/// The scoreboard over the bundled measurements, as `--json` prints it.
pub fn scoreboard() -> anyhow::Result<String> {
    let model = TimeModel::embedded();
    let gpu = model.measured_gpu().map(|g| g.name.clone()).unwrap_or_default();
    let mut scorer = Scorer::new(&gpu)?;
    scorer.bundled()?;
    Ok(serde_json::to_string(&scorer.report()?)?)
}

impl<'a> Scorer<'a> {
    fn new(default_gpu: &'a str) -> anyhow::Result<Self> {
        let (model, gpus) = (TimeModel::embedded(), BTreeMap::new());
        let mut scorer = Self { model, default_gpu, gpus, pairs: Vec::new(), skipped: 0 };
        scorer.gpu(default_gpu)?;
        Ok(scorer)
    }

    fn bundled(&mut self) -> anyhow::Result<()> {
        self.read(GzDecoder::new(OPERATORS), "ops.csv.gz")?;
        self.read(GzDecoder::new(CONVOLUTIONS), "conv.csv.gz")?;
        self.read(ITERATIONS, "e2e.csv")
    }

    fn report(&self) -> anyhow::Result<Report> {
        let cross_validation =
            serde_json::from_str(CROSS_VALIDATION).context("the bundled cross-validation report")?;
        Ok(Report { rows: scores(&self.pairs), skipped: self.skipped, cross_validation })
    }

    fn gpu(&mut self, name: &str) -> anyhow::Result<()> {
        if !self.gpus.contains_key(name) {
            self.gpus.insert(name.to_string(), input::gpu(name)?);
        }
        Ok(())
    }

    fn folder(&mut self, folder: &Path) -> anyhow::Result<()> {
        let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
            .with_context(|| format!("cannot read the folder `{}`", folder.display()))?
            .filter_map(|entry| entry.ok().map(|e| e.path()))
            .collect();
        files.sort();
        for path in files {
            let name = path.to_string_lossy().to_string();
            let lower = name.to_ascii_lowercase();
            let gz = lower.strip_suffix(".gz");
            if Path::new(gz.unwrap_or(&lower)).extension().is_none_or(|e| e != "csv") {
                continue;
            }
            if gz.is_none() {
                self.read(input::open(&name)?, &name)?;
            } else {
                self.read(GzDecoder::new(input::open(&name)?), &name)?;
            }
        }
        Ok(())
    }

    /// Reads a file of operators or of iterations, whichever its columns say; other files are passed over.
    fn read(&mut self, reader: impl Read, name: &str) -> anyhow::Result<()> {
        let mut reader = csv::Reader::from_reader(reader);
        let headers = reader.headers().with_context(|| format!("{name}: no header"))?.clone();
        let at = |column: &str| headers.iter().position(|h| h == column);
        if let (Some(op), Some(phase), Some(dtype), Some(shape), Some(us)) =
            (at("op"), at("phase"), at("dtype"), at("shape"), at("gpu_us"))
        {
            let gpu = at("gpu");
            for record in reader.records() {
                let r = record.with_context(|| format!("{name}: not CSV"))?;
                let on = gpu.map_or(self.default_gpu, |i| &r[i]).to_string();
                self.gpu(&on)?;
                match (row::parse(&r[op], &r[phase], &r[dtype], &r[shape]), r[us].parse::<f64>()) {
                    (Ok(call), Ok(us)) if us > 0.0 && us.is_finite() => self.operator(&call, &on, us),
                    _ => self.skipped += 1,
                }
            }
        } else if let (Some(model), Some(batch), Some(precision), Some(mode), Some(ms)) =
            (at("model"), at("batch"), at("precision"), at("mode"), at("iter_ms"))
        {
            let (seq, busy) = (at("seq"), at("gpu_busy_ms"));
            for record in reader.records() {
                let r = record.with_context(|| format!("{name}: not CSV"))?;
                let busy = busy.and_then(|i| r[i].parse::<f64>().ok());
                let seq = seq.and_then(|i| r[i].parse::<u64>().ok()).filter(|s| *s > 0);
                let done = self.iteration(&r[model], &r[batch], seq, &r[precision], &r[mode], &r[ms], busy);
                if done.is_none() {
                    self.skipped += 1;
                }
            }
        }
        Ok(())
    }

    fn operator(&mut self, call: &preflop_core::OpCall, gpu_name: &str, us: f64) {
        let Some(gpu) = self.gpus.get(gpu_name) else { return };
        let p = self.model.predict(call, gpu);
        let roofline = (call.flops() / gpu.peak(call.dtype)).max(call.traffic().total() / gpu.dram);
        self.pairs.push(Pair {
            group: call.family().name().to_string(),
            dtype: call.dtype.name().to_string(),
            gpu: gpu_name.to_string(),
            measured: us,
            predicted: p.time.us(),
            covered: p.low.us() <= us && us <= p.high.us(),
            roofline: roofline.us(),
        });
    }

    #[allow(clippy::too_many_arguments)]
    fn iteration(
        &mut self,
        model: &str,
        batch: &str,
        seq: Option<u64>,
        precision: &str,
        mode: &str,
        ms: &str,
        busy_ms: Option<f64>,
    ) -> Option<()> {
        let gpu = self.gpus.get(self.default_gpu)?;
        let precision = Precision::ALL.into_iter().find(|p| p.name() == precision)?;
        let mode = if mode == "train" { Mode::Train } else { Mode::Infer };
        let graph = zoo::build(zoo::as_measured(model), Some(batch.parse().ok()?), seq).ok()?;
        let iteration =
            lower(&graph, &LowerOptions { mode, precision, optimizer: Some(graph.optimizer.as_measured()) })
                .ok()?;
        let p = self.model.predict_iteration(&iteration, gpu);
        let roofline: f64 = iteration
            .steps
            .iter()
            .map(|s| {
                let bound =
                    (s.call.flops() / gpu.peak(s.call.dtype)).max(s.call.traffic().total() / gpu.dram);
                bound.us() * f64::from(s.count)
            })
            .sum();
        let measured = ms.parse::<f64>().ok()? * 1e3;
        let mut push = |group: &str, measured: f64, predicted: f64, covered: bool| {
            self.pairs.push(Pair {
                group: group.to_string(),
                dtype: precision.name().to_string(),
                gpu: self.default_gpu.to_string(),
                measured,
                predicted,
                covered,
                roofline,
            });
        };
        push("iteration", measured, p.time.us(), p.low.us() <= measured && measured <= p.high.us());
        if let Some(busy) = busy_ms {
            let (low, high) = (p.gpu_busy_low.us(), p.gpu_busy_high.us());
            push("gpu_busy", busy * 1e3, p.gpu_busy.us(), low <= busy * 1e3 && busy * 1e3 <= high);
        }
        Some(())
    }
}

/// Scores by family and number format, and over all formats, on each GPU.
fn scores(pairs: &[Pair]) -> Vec<Row> {
    let mut groups: BTreeMap<(&str, &str, &str), Vec<&Pair>> = BTreeMap::new();
    for p in pairs {
        groups.entry((&p.gpu, &p.group, &p.dtype)).or_default().push(p);
        groups.entry((&p.gpu, &p.group, "all")).or_default().push(p);
        if !matches!(p.group.as_str(), "iteration" | "gpu_busy") {
            groups.entry((&p.gpu, "operators", "all")).or_default().push(p);
        }
    }
    groups
        .into_iter()
        .map(|((gpu, family, dtype), members)| {
            let n = members.len();
            let signed: Vec<f64> = members.iter().map(|p| 100.0 * (p.predicted / p.measured - 1.0)).collect();
            let median = |mut v: Vec<f64>| {
                v.sort_by(f64::total_cmp);
                v[v.len() / 2]
            };
            Row {
                family: family.to_string(),
                dtype: dtype.to_string(),
                gpu: gpu.to_string(),
                n,
                mean_percent: signed.iter().map(|e| e.abs()).sum::<f64>() / n as f64,
                median_percent: median(signed.iter().map(|e| e.abs()).collect()),
                bias_percent: median(signed),
                coverage_percent: 100.0 * members.iter().filter(|p| p.covered).count() as f64 / n as f64,
                roofline_mean_percent: members
                    .iter()
                    .map(|p| 100.0 * (p.roofline / p.measured - 1.0).abs())
                    .sum::<f64>()
                    / n as f64,
            }
        })
        .collect()
}

fn points(pairs: &[Pair]) -> Vec<(String, Vec<(f64, f64)>)> {
    let mut groups: BTreeMap<&str, Vec<(f64, f64)>> = BTreeMap::new();
    for p in pairs {
        groups.entry(&p.group).or_default().push((p.measured, p.predicted));
    }
    groups.into_iter().map(|(k, v)| (k.to_string(), v)).collect()
}

fn print_tables(
    rows: &[Row],
    skipped: usize,
    cross_validation: &[CrossValidated],
    bundled: bool,
    output: &Output,
) -> anyhow::Result<()> {
    let mut out = output::stdout();
    writeln!(out, "{}", output.bold("Predicted against measured (errors in %)"))?;
    let mut table = Grid::new(&[
        ("family", Align::Keep, 0),
        ("dtype", Align::Keep, 0),
        ("GPU", Align::Keep, 2),
        ("n", Align::Right, 1),
        ("mean", Align::Right, 0),
        ("median", Align::Right, 0),
        ("bias", Align::Right, 2),
        ("in interval", Align::Right, 1),
        ("roofline", Align::Right, 2),
    ]);
    for r in rows {
        table.row([
            r.family.clone(),
            r.dtype.clone(),
            r.gpu.clone(),
            r.n.to_string(),
            format!("{:.1}", r.mean_percent),
            format!("{:.1}", r.median_percent),
            format!("{:+.1}", r.bias_percent),
            format!("{:.0} %", r.coverage_percent),
            format!("{:.0}", r.roofline_mean_percent),
        ]);
    }
    table.write(&mut out, output)?;
    if skipped > 0 {
        writeln!(out, "{skipped} rows skipped: unknown operator, model or format")?;
    }
    if bundled {
        let text =
            "These rows were in the fit. What it does on rows and GPUs it has not seen, by cross-validation:";
        writeln!(out, "\n{}", output::wrapped(text, output.width, ""))?;
        let mut table = Grid::new(&[
            ("fit", Align::Keep, 0),
            ("GPU", Align::Keep, 2),
            ("how", Align::Left, 1),
            ("n", Align::Right, 1),
            ("mean", Align::Right, 0),
            ("median", Align::Right, 0),
            ("bias", Align::Right, 2),
        ]);
        for r in cross_validation.iter().filter(|r| r.class == "all") {
            table.row([
                r.family.clone(),
                r.gpu.clone(),
                r.how.clone(),
                r.n.to_string(),
                format!("{:.1}", r.mean_percent),
                format!("{:.1}", r.median_percent),
                format!("{:+.1}", r.bias_percent),
            ]);
        }
        table.write(&mut out, output)?;
    }
    out.flush().context("writing the output")
}
