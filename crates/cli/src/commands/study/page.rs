//! The study as one page that needs nothing else.

use super::Study;
use crate::output::three_digits;
use preflop_core::cost::study::{Cell, GPUS, TODAY};
use preflop_core::dtype::Dtype;
use preflop_core::gpu::catalog;
use std::fmt::Write as _;

const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;max-width:1100px;margin:2rem auto;padding:0 1rem;color:#222}\
 table{border-collapse:collapse;font-size:.85rem;display:block;overflow-x:auto}td,th{padding:.2rem .7rem;border-bottom:1px solid #ddd;text-align:right}\
 td:first-child,th:first-child,.words td,.words th{text-align:left;vertical-align:top}figure{margin:1.5rem 0;overflow-x:auto}figure svg{max-width:100%;height:auto}\
 .no{color:#a00;font-weight:bold}";

/// What each plot shows.
const CAPTIONS: [(&str, &str, &str); 8] = [
    (
        "throughput",
        "Throughput",
        "Training in fp32. Convolution networks follow the power of the GPU; recurrent ones do not.",
    ),
    (
        "cost",
        "Cost",
        "Samples per dollar, with GPU and host bought and written off over three years at half use.",
    ),
    (
        "utilisation",
        "Utilisation of GPU and CPU",
        "GPU: share of the time with a kernel running. CPU: share of the time that the launching core works; an environment's own simulation is not in it. GPU arithmetic: useful FLOP/s over the datasheet's.",
    ),
    (
        "bottlenecks",
        "Sources of inefficiency",
        "Where profilers count stalls, this counts the GPU's time by the resource that binds each operator: a busy pipe is arithmetic, memory dependency is DRAM or L2, execution dependency and synchronisation are latency.",
    ),
    (
        "stalls",
        "Stalls",
        "The poster's classes, estimated: operators that arithmetic or memory binds bring the stalls that hardware counters showed for such kernels on an H200; short kernels were not counted and are 'other'.",
    ),
    (
        "vendors",
        "NVIDIA against AMD",
        "The same operators on the same host. AMD's libraries were not measured for this project: those bars rest on datasheet rates.",
    ),
    ("throughput-today", "Throughput today", "Training with bf16 autocast."),
    (
        "cost-today",
        "Cost today",
        "Samples per dollar of on-demand rent, the median of the clouds. No bar: no price known.",
    ),
];

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// The page.
pub fn html(study: &Study, charts: &[(&'static str, String)]) -> anyhow::Result<String> {
    let mut out = String::new();
    write!(
        out,
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
         <title>Five applications on seven GPUs</title><style>{STYLE}</style></head><body>\n\
         <h1>Five applications on seven GPUs</h1>\n\
         <p>Can a more expensive GPU always speed up training? A poster \
         measured it; Preflop predicts it here, with one host for all GPUs, and asks the same of today's.</p>\n"
    )?;
    out.push_str(
        "<h2>Findings</h2>\n<table class=\"words\"><tr><th>The poster says</th><th>Predicted</th><th>Figures</th></tr>\n",
    );
    for f in &study.findings {
        let verdict = if f.holds { "holds" } else { "<span class=\"no\">does not hold</span>" };
        writeln!(
            out,
            "<tr><td>{}</td><td>{verdict}</td><td>{}</td></tr>",
            escaped(f.statement),
            escaped(&f.figures)
        )?;
    }
    out.push_str("</table>\n<h2>Models</h2>\n<table class=\"words\"><tr><th>Model</th><th>Application</th><th>Data</th><th>Batch</th></tr>\n");
    for w in &study.workloads {
        writeln!(
            out,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            w.model, w.application, w.dataset, w.batch
        )?;
    }
    out.push_str("</table>\n<h2>Hardware</h2>\n");
    hardware(&mut out)?;
    for (name, title, caption) in CAPTIONS {
        let Some((_, svg)) = charts.iter().find(|(n, _)| *n == name) else { continue };
        writeln!(out, "<h2>{title}</h2>\n<p>{caption}</p>\n<figure>{svg}</figure>")?;
    }
    out.push_str("<h2>All figures: then</h2>\n");
    figures(&mut out, &study.then)?;
    out.push_str("<h2>All figures: today</h2>\n");
    figures(&mut out, &study.today)?;
    out.push_str("</body></html>\n");
    Ok(out)
}

fn hardware(out: &mut String) -> anyhow::Result<()> {
    out.push_str(
        "<table><tr><th>GPU</th><th>fp32 TFLOP/s</th><th>memory GiB</th><th>GB/s</th><th>TDP W</th></tr>\n",
    );
    for name in GPUS.iter().chain(&TODAY) {
        let gpu = catalog::find(name)?;
        writeln!(
            out,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            escaped(&gpu.title),
            three_digits(gpu.plain_peak(Dtype::Fp32).tflops()),
            three_digits(gpu.memory.mib() / 1024.0),
            three_digits(gpu.dram.gbs()),
            three_digits(gpu.tdp_w)
        )?;
    }
    out.push_str("</table>\n");
    Ok(())
}

fn figures(out: &mut String, cells: &[Cell]) -> anyhow::Result<()> {
    out.push_str(
        "<table><tr><th>Model</th><th>GPU</th><th>samples/s</th><th>iteration ms</th><th>memory MiB</th><th>fits</th>\
         <th>GPU %</th><th>CPU %</th><th>bound</th><th>usd/h</th><th>priced</th><th>M samples/usd</th></tr>\n",
    );
    let or_dash = |x: Option<f64>| x.map_or_else(|| "-".to_string(), three_digits);
    for c in cells {
        writeln!(
            out,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{:.0}</td><td>{}</td><td>{:.0}</td><td>{:.0}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            c.model,
            c.gpu,
            three_digits(c.samples_per_s),
            three_digits(c.iteration_ms),
            c.memory_mib,
            if c.fits { "yes" } else { "no" },
            100.0 * c.gpu_utilisation,
            100.0 * c.cpu_utilisation,
            c.bound.name(),
            or_dash(c.usd_per_hour),
            c.price_date.map_or_else(|| "-".to_string(), |d| d.to_string()),
            or_dash(c.million_samples_per_usd)
        )?;
    }
    out.push_str("</table>\n");
    Ok(())
}
