//! `preflop gpus`: the catalogue, one GPU in full, two side by side.

use crate::error::Partly;
use crate::grid::Grid;
use crate::input;
use crate::output::{self, Align, Output, three_digits};
use clap::{Args, Subcommand};
use preflop_api::catalogue::{Listed, Shown};
use preflop_calibrate::quantity;
use preflop_core::Gpu;
use preflop_core::gpu::{FIELDS, Vendor, catalog};
use serde::Serialize;
use std::io::Write;

/// List the GPUs, show one with all its sources, or compare two
#[derive(Debug, Args)]
#[command(after_help = "EXAMPLES
  preflop gpus
  preflop gpus show h200
  preflop gpus diff a100 h100
  preflop gpus fields")]
pub struct GpusArgs {
    #[command(subcommand)]
    command: Option<GpusCommand>,
}

#[derive(Debug, Subcommand)]
enum GpusCommand {
    /// List all GPUs (the default)
    List,
    /// Show every figure of a GPU with its source, and the defaults taken
    Show {
        /// GPU name or the path of a GPU file
        gpu: String,
    },
    /// List every figure that a GPU file may have, with its range and how many GPUs of the catalogue state it
    Fields,
    /// Show how arithmetic and bandwidth grew over the years: the best GPU of each, over the first
    History {
        /// Draw it: .svg or .png
        #[arg(long, value_name = "FILE")]
        plot: Option<String>,
    },
    /// Show in which figures two GPUs differ
    Diff {
        /// GPU name or the path of a GPU file
        a: String,
        /// The other one
        b: String,

        /// End with status 1 if a measured figure differs by more than so many per cent (launch costs that the host
        /// sets: 15)
        #[arg(long, value_name = "PERCENT")]
        within: Option<f64>,
    },
}

/// Lists, shows or compares.
pub fn run(args: GpusArgs, output: &Output) -> anyhow::Result<()> {
    match args.command {
        None | Some(GpusCommand::List) => list(output),
        Some(GpusCommand::Fields) => fields(output),
        Some(GpusCommand::History { plot }) => super::gpus_history::run(plot.as_deref(), output),
        Some(GpusCommand::Show { gpu }) => show(&input::gpu(&gpu)?, output),
        Some(GpusCommand::Diff { a, b, within }) => {
            let (left, right) = (input::gpu(&a)?, input::gpu(&b)?);
            // Two files of one GPU are told apart by what the user called them.
            let names = if left.name == right.name { [&a, &b] } else { [&left.name, &right.name] };
            diff(&left, &right, names, output)?;
            within.map_or(Ok(()), |percent| agree(&left, &right, percent))
        }
    }
}

/// A figure of GPU files.
#[derive(Serialize)]
struct FieldRow {
    section: &'static str,
    key: &'static str,
    min: f64,
    max: f64,
    /// GPUs of the catalogue whose files have it.
    stated_by: usize,
}

fn fields(output: &Output) -> anyhow::Result<()> {
    let gpus = catalog::all()?;
    let row = |field: &preflop_core::gpu::Field| {
        let name = if field.section.is_empty() {
            field.key.to_string()
        } else {
            format!("{}.{}", field.section, field.key)
        };
        let stated_by = gpus.iter().filter(|gpu| gpu.facts.iter().any(|fact| fact.key == name)).count();
        FieldRow { section: field.section, key: field.key, min: field.min, max: field.max, stated_by }
    };
    let rows: Vec<FieldRow> = FIELDS.iter().map(row).collect();
    if output.json {
        return output::print_json(&rows);
    }
    let mut grid = Grid::default();
    grid.add("section", Align::Keep, 0, rows.iter().map(|r| r.section.to_string()));
    grid.add("key", Align::Keep, 0, rows.iter().map(|r| r.key.to_string()));
    grid.add("least", Align::Right, 2, rows.iter().map(|r| exact(r.min)));
    grid.add("most", Align::Right, 2, rows.iter().map(|r| exact(r.max)));
    grid.add("stated by", Align::Right, 1, rows.iter().map(|r| r.stated_by.to_string()));
    let mut out = output::stdout();
    grid.write(&mut out, output)?;
    let note = format!(
        "stated by: of {} GPUs of the catalogue. The ending of a key is its unit. What a file leaves out gets a default, which `preflop gpus show` lists with its reason.",
        gpus.len()
    );
    writeln!(out, "\n{}", output.dim(&output::wrapped(&note, output.width, "")))?;
    Ok(out.flush()?)
}

fn vendor_name(vendor: Vendor) -> &'static str {
    match vendor {
        Vendor::Nvidia => "NVIDIA",
        Vendor::Amd => "AMD",
        Vendor::Other => "other",
    }
}

fn list(output: &Output) -> anyhow::Result<()> {
    let mut gpus = catalog::all()?;
    gpus.sort_by_key(|g| (g.vendor != Vendor::Nvidia, g.release_year, g.architecture, g.name.clone()));
    let listed: Vec<Listed> = gpus.iter().map(Listed::new).collect();
    if output.json {
        return output::print_json(&listed);
    }
    let mut columns = Grid::default();
    let of = |cell: &dyn Fn(&Gpu, &Listed) -> String| {
        gpus.iter().zip(&listed).map(|(gpu, l)| cell(gpu, l)).collect::<Vec<_>>()
    };
    let tera = |x: Option<f64>| x.map_or_else(|| "-".to_string(), |t| format!("{} T", three_digits(t)));
    columns.add("name", Align::Keep, 0, of(&|_, l| l.name.to_string()));
    let chip = |_: &Gpu, l: &Listed| format!("{} {}", vendor_name(l.vendor), l.architecture);
    columns.add("chip", Align::Keep, 2, of(&chip));
    columns.add(
        "year",
        Align::Right,
        3,
        of(&|_, l| l.release_year.map_or_else(String::new, |y| y.to_string())),
    );
    columns.add("SMs", Align::Right, 4, of(&|_, l| l.sm_count.to_string()));
    columns.add("memory", Align::Right, 0, of(&|gpu, _| output::memory(gpu.memory)));
    columns.add("DRAM", Align::Right, 1, of(&|_, l| format!("{} GB/s", l.dram_gbs.round())));
    columns.add("fp32", Align::Right, 1, of(&|_, l| tera(l.fp32_tflops)));
    columns.add("tensor", Align::Right, 0, of(&|_, l| tera(l.tensor_16bit_tflops)));
    columns.add("power", Align::Right, 4, of(&|_, l| format!("{} W", l.tdp_w.round())));
    let mut out = output::stdout();
    columns.write(&mut out, output)?;
    writeln!(out)?;
    for line in [
        "fp32: datasheet TFLOP/s of the plain pipe. tensor: dense 16-bit TFLOP/s of the tensor pipe.",
        "`preflop gpus show NAME` gives every figure with its source; `--gpu` takes a file of yours too.",
    ] {
        writeln!(out, "{}", output.dim(&output::wrapped(line, output.width, "")))?;
    }
    Ok(out.flush()?)
}

fn show(gpu: &Gpu, output: &Output) -> anyhow::Result<()> {
    let listed = Listed::new(gpu);
    if output.json {
        return output::print_json(&Shown::new(gpu));
    }
    let mut out = output::stdout();
    writeln!(out, "{} ({})", output.bold(&gpu.title), gpu.name)?;
    let parts = [
        vendor_name(gpu.vendor),
        gpu.architecture.name(),
        &gpu.chip,
        &gpu.compute_capability,
        &gpu.form,
        &gpu.dram_kind,
        &gpu.host_interface,
    ];
    let parts: Vec<&str> = parts.into_iter().filter(|p| !p.is_empty()).collect();
    writeln!(out, "{}", output::wrapped(&parts.join(", "), output.width, ""))?;
    if !listed.aliases.is_empty() {
        let names = format!("also called {}", listed.aliases.join(", "));
        writeln!(out, "{}", output::wrapped(&names, output.width, ""))?;
    }
    writeln!(out)?;

    write_facts(&mut out, gpu, output)?;
    writeln!(out)?;
    if gpu.assumptions.is_empty() {
        writeln!(out, "No defaults were needed.")?;
        return Ok(out.flush()?);
    }
    writeln!(out, "{}", output.bold("Not in the file, so taken as"))?;
    let mut table = Grid::new(&[
        ("figure", Align::Keep, 0),
        ("value", Align::Right, 0),
        ("unit", Align::Keep, 3),
        ("why", Align::Left, 0),
    ]);
    for a in &gpu.assumptions {
        table.row([a.key.clone(), three_digits(a.value), unit(&a.key).to_string(), a.why.clone()]);
    }
    table.write(&mut out, output)?;
    Ok(out.flush()?)
}

/// Every figure of the file. Sources are long and few, so the table has a number and the text stands below it;
/// notes stand beside the figures where there is room, else below too. The keys name the units, so that column goes
/// first.
fn write_facts(out: &mut impl Write, gpu: &Gpu, output: &Output) -> std::io::Result<()> {
    let beside = output.width >= 110;
    let mut sources: Vec<&str> = Vec::new();
    let mut notes = Vec::new();
    let mut header = vec![
        ("figure", Align::Keep, 0),
        ("value", Align::Right, 0),
        ("unit", Align::Keep, 1),
        ("source", Align::Right, 0),
    ];
    if beside {
        header.push(("note", Align::Left, 0));
    }
    let mut table = Grid::new(&header);
    for fact in &gpu.facts {
        let place = sources.iter().position(|s| *s == fact.source).unwrap_or_else(|| {
            sources.push(&fact.source);
            sources.len() - 1
        });
        let unit = unit(&fact.key).to_string();
        let mut row = vec![fact.key.clone(), exact(fact.value), unit, format!("[{}]", place + 1)];
        match &fact.note {
            Some(note) if beside => row.push(note.clone()),
            Some(note) => notes.push(format!("{}: {note}", fact.key)),
            None => {}
        }
        table.row(row);
    }
    table.write(out, output)?;
    writeln!(out)?;
    for (i, source) in sources.iter().enumerate() {
        writeln!(out, "{}", output::wrapped(&format!("[{}] {source}", i + 1), output.width, "    "))?;
    }
    if !notes.is_empty() {
        writeln!(out, "\n{}", output.bold("Notes"))?;
    }
    for note in notes {
        writeln!(out, "{}", output::wrapped(&note, output.width, "    "))?;
    }
    Ok(())
}

/// A figure as the file has it: sources are quoted, not rounded.
fn exact(x: f64) -> String {
    format!("{x}")
}

/// The unit that the ending of a key names.
pub fn unit(key: &str) -> &'static str {
    const ENDINGS: [(&str, &str); 15] = [
        ("_bytes_per_clk_per_sm", "B/clock/SM"),
        ("_gbs_per_sm", "GB/s/SM"),
        ("lanes_per_sm", "lanes/SM"),
        ("_tflops", "TFLOP/s"),
        ("_cycles", "cycles"),
        ("_tops", "TOP/s"),
        ("_gbs", "GB/s"),
        ("link.gbs", "GB/s"),
        ("_mhz", "MHz"),
        ("_kib", "KiB"),
        ("_mib", "MiB"),
        ("_gib", "GiB"),
        ("_bits", "bit"),
        ("_us", "us"),
        ("_w", "W"),
    ];
    ENDINGS.iter().find(|(ending, _)| key.ends_with(ending)).map_or("", |(_, unit)| unit)
}

#[derive(Serialize)]
struct Difference {
    key: String,
    a: Option<f64>,
    b: Option<f64>,
    a_assumed: bool,
    b_assumed: bool,
}

/// Value of a figure, and whether it is a default.
fn figure(gpu: &Gpu, key: &str) -> (Option<f64>, bool) {
    if let Some(fact) = gpu.facts.iter().find(|f| f.key == key) {
        return (Some(fact.value), false);
    }
    (gpu.assumptions.iter().find(|a| a.key == key).map(|a| a.value), true)
}

/// Do the figures that both measured agree?
fn agree(a: &Gpu, b: &Gpu, percent: f64) -> anyhow::Result<()> {
    let mut apart: Vec<String> = Vec::new();
    for fact in a.facts.iter().filter(|f| f.key.starts_with("measured.")) {
        let Some(other) = b.facts.iter().find(|f| f.key == fact.key) else { continue };
        let difference = 100.0 * (other.value / fact.value - 1.0);
        // What the host's processor sets differs more from run to run than anything of the GPU.
        let host = fact.key.strip_prefix("measured.").and_then(quantity::find).is_some_and(|q| q.host);
        let limit = if host { percent.max(100.0 * quantity::HOST_AGREEMENT) } else { percent };
        if difference.abs() > limit {
            apart.push(format!("{} by {difference:+.1} % (limit {limit} %)", fact.key));
        }
    }
    if apart.is_empty() {
        return Ok(());
    }
    Err(Partly(format!("too far apart: {}", apart.join(", "))).into())
}

fn diff(a: &Gpu, b: &Gpu, names: [&String; 2], output: &Output) -> anyhow::Result<()> {
    let mut differences = Vec::new();
    for field in FIELDS {
        let key = if field.section.is_empty() {
            field.key.to_string()
        } else {
            format!("{}.{}", field.section, field.key)
        };
        let ((left, a_assumed), (right, b_assumed)) = (figure(a, &key), figure(b, &key));
        if left != right {
            differences.push(Difference { key, a: left, b: right, a_assumed, b_assumed });
        }
    }
    if output.json {
        let answer = serde_json::json!({ "a": names[0], "b": names[1], "differences": differences });
        return output::print_json(&answer);
    }
    let mut table = Grid::new(&[
        ("figure", Align::Keep, 0),
        (names[0], Align::Right, 0),
        (names[1], Align::Right, 0),
        ("unit", Align::Keep, 3),
        ("ratio", Align::Right, 1),
    ]);
    let mut assumed = false;
    for d in &differences {
        let mut cell = |value: Option<f64>, is_assumed: bool| match value {
            None => "-".to_string(),
            Some(v) if is_assumed => {
                assumed = true;
                format!("{}*", three_digits(v))
            }
            Some(v) => exact(v),
        };
        let (left, right) = (cell(d.a, d.a_assumed), cell(d.b, d.b_assumed));
        let ratio = match (d.a, d.b) {
            (Some(x), Some(y)) if x > 0.0 && d.key != "release_year" => format!("{} x", three_digits(y / x)),
            _ => String::new(),
        };
        table.row([d.key.clone(), left, right, unit(&d.key).to_string(), ratio]);
    }
    let mut out = output::stdout();
    if differences.is_empty() {
        writeln!(out, "{} and {} have the same figures.", names[0], names[1])?;
        return Ok(out.flush()?);
    }
    table.write(&mut out, output)?;
    if assumed {
        writeln!(out, "\n{}", output.dim("* not in the file: a default"))?;
    }
    Ok(out.flush()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_with_a_dimension_has_a_unit() {
        for field in FIELDS {
            let plain = matches!(
                field.key,
                "release_year"
                    | "sm_count"
                    | "num_sm"
                    | "registers_per_sm"
                    | "threads_per_sm"
                    | "blocks_per_sm"
                    | "warp_size"
            );
            let key = format!("{}.{}", field.section, field.key);
            assert_eq!(unit(&key).is_empty(), plain, "{key}");
        }
    }
}
