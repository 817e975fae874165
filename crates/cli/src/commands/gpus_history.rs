//! `preflop gpus history`: how arithmetic grew against bandwidth (DeLTA's introduction).

use crate::destination;
use crate::grid::Grid;
use crate::output::{self, Align, Output, three_digits};
use preflop_core::Dtype;
use preflop_core::gpu::{Vendor, catalog};
use preflop_plot::{Line, LineChart};
use serde::Serialize;
use std::io::Write as _;

/// The best figures of all GPUs up to a year.
#[derive(Debug, Serialize)]
#[allow(clippy::struct_field_names)]
struct Year {
    #[serde(rename = "year")]
    ends: u32,
    /// GPUs that came in this year.
    gpus: Vec<String>,
    fp32_tflops: f64,
    /// On matrix units in 16 bits, where there are some.
    tensor_16bit_tflops: Option<f64>,
    dram_gbs: f64,
    /// Over the first year.
    fp32_growth: f64,
    /// The fastest arithmetic of any format over the first year's.
    arithmetic_growth: f64,
    dram_growth: f64,
}

/// Lists and draws NVIDIA's GPUs of the catalogue by year: the works behind this project speak of those.
pub fn run(plot: Option<&str>, output: &Output) -> anyhow::Result<()> {
    let mut gpus: Vec<_> = catalog::all()?
        .into_iter()
        .filter(|g| g.vendor == Vendor::Nvidia)
        .filter_map(|g| Some((g.release_year?, g)))
        .collect();
    gpus.sort_by(|a, b| (a.0, &a.1.name).cmp(&(b.0, &b.1.name)));
    let mut years: Vec<Year> = Vec::new();
    let (mut fp32, mut tensor, mut dram) = (0.0_f64, None::<f64>, 0.0_f64);
    for (year, gpu) in gpus {
        fp32 = fp32.max(gpu.plain_peak(Dtype::Fp32).tflops());
        dram = dram.max(gpu.dram.gbs());
        for dtype in [Dtype::Fp16, Dtype::Bf16] {
            if let Some(rate) = gpu.tensor.get(dtype) {
                tensor = Some(tensor.unwrap_or(0.0).max(rate.tflops()));
            }
        }
        if years.last().is_none_or(|y| y.ends != year) {
            let zero = Year {
                ends: year,
                gpus: Vec::new(),
                fp32_tflops: 0.0,
                tensor_16bit_tflops: None,
                dram_gbs: 0.0,
                fp32_growth: 1.0,
                arithmetic_growth: 1.0,
                dram_growth: 1.0,
            };
            years.push(zero);
        }
        if let Some(last) = years.last_mut() {
            last.gpus.push(gpu.name);
            (last.fp32_tflops, last.tensor_16bit_tflops, last.dram_gbs) = (fp32, tensor, dram);
        }
    }
    let first = years.first().map_or((1.0, 1.0), |y| (y.fp32_tflops, y.dram_gbs));
    for y in &mut years {
        y.fp32_growth = y.fp32_tflops / first.0;
        y.arithmetic_growth = y.tensor_16bit_tflops.unwrap_or(0.0).max(y.fp32_tflops) / first.0;
        y.dram_growth = y.dram_gbs / first.1;
    }
    if let Some(path) = plot {
        let bytes = chart(&years).draw()?.render(preflop_plot::Format::of_path(path)?)?;
        destination::write_bytes(path, bytes)?;
    }
    if output.json { output::print_json(&years) } else { print(&years, output) }
}

fn chart(years: &[Year]) -> LineChart {
    let line = |name: &str, get: fn(&Year) -> f64| Line {
        name: name.to_string(),
        points: years.iter().map(|y| (f64::from(y.ends), get(y))).collect(),
        second_axis: false,
    };
    LineChart {
        title: "Arithmetic against bandwidth".to_string(),
        x_label: "year".to_string(),
        y_label: "best GPU so far, first year = 1".to_string(),
        second_label: String::new(),
        lines: vec![
            line("16-bit matrix or fp32", |y| y.arithmetic_growth),
            line("fp32", |y| y.fp32_growth),
            line("DRAM bandwidth", |y| y.dram_growth),
        ],
    }
}

fn print(years: &[Year], output: &Output) -> anyhow::Result<()> {
    let mut out = output::stdout();
    let mut table = Grid::new(&[
        ("year", Align::Keep, 0),
        ("fp32 TFLOP/s", Align::Right, 3),
        ("16-bit matrix", Align::Right, 4),
        ("GB/s", Align::Right, 3),
        ("fp32", Align::Right, 2),
        ("arithmetic", Align::Right, 0),
        ("bandwidth", Align::Right, 0),
        ("new", Align::Left, 1),
    ]);
    for y in years {
        table.row(vec![
            y.ends.to_string(),
            three_digits(y.fp32_tflops),
            y.tensor_16bit_tflops.map_or_else(|| "-".to_string(), three_digits),
            three_digits(y.dram_gbs),
            format!("{}x", three_digits(y.fp32_growth)),
            format!("{}x", three_digits(y.arithmetic_growth)),
            format!("{}x", three_digits(y.dram_growth)),
            y.gpus.join(", "),
        ]);
    }
    table.write(&mut out, output)?;
    let note = "The best of all GPUs of the catalogue up to that year; growth is over the first row.";
    writeln!(out, "{}", output.dim(&output::wrapped(note, output.width, "")))?;
    Ok(out.flush()?)
}
