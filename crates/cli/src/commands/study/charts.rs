//! The study's plots.

use super::Study;
use preflop_core::cost::study::{Cell, GPUS, TODAY};
use preflop_plot::{Bars, PlotError};

/// The card that the others are compared with.
const BASE: &str = "titan-xp";
/// Today's card that the others are compared with.
const BASE_TODAY: &str = "a100-sxm-80gb";
/// The card whose utilisation is shown.
const SHOWN: &str = "v100-sxm2-16gb";

/// Name and SVG of every plot.
pub fn all(study: &Study) -> Result<Vec<(&'static str, String)>, PlotError> {
    let shown: Vec<&Cell> = study.then.iter().filter(|c| c.gpu == SHOWN).collect();
    let worth = |c: &Cell| c.million_samples_per_usd;
    let per_model = |values: fn(&Cell) -> Vec<f64>| {
        shown.iter().map(|c| (c.model.to_string(), values(c))).collect::<Vec<_>>()
    };
    let charts = [
        ("throughput", relative(study, &study.then, &GPUS, BASE, "Throughput", |c| Some(c.samples_per_s))),
        ("cost", relative(study, &study.then, &GPUS, BASE, "Samples per dollar of GPU and host", worth)),
        (
            "utilisation",
            Bars {
                title: format!("Busy share of the time on the {SHOWN}"),
                y_label: "%".into(),
                series: vec!["GPU".into(), "CPU".into(), "GPU arithmetic".into()],
                groups: per_model(|c| {
                    [c.gpu_utilisation, c.cpu_utilisation, c.arithmetic_efficiency]
                        .map(|x| 100.0 * x)
                        .to_vec()
                }),
                stacked: false,
            },
        ),
        (
            "bottlenecks",
            Bars {
                title: format!("GPU time by what binds the operators, {SHOWN}"),
                y_label: "% of GPU time".into(),
                series: ["arithmetic", "DRAM", "L2", "latency"].map(String::from).to_vec(),
                groups: per_model(|c| c.bound_shares.map(|x| 100.0 * x).to_vec()),
                stacked: true,
            },
        ),
        (
            "stalls",
            Bars {
                title: format!("Why warps stall, {SHOWN}"),
                y_label: "% of the stalls".into(),
                series: [
                    "execution dependency",
                    "memory dependency",
                    "synchronisation",
                    "pipe busy",
                    "fetch",
                    "other",
                ]
                .map(String::from)
                .to_vec(),
                groups: per_model(|c| c.stalls.values().map(|x| 100.0 * x).to_vec()),
                stacked: true,
            },
        ),
        (
            "vendors",
            relative(
                study,
                &study.then,
                &["gtx-1080-ti", "titan-xp", "p100-pcie", "vega-frontier"],
                "gtx-1080-ti",
                "NVIDIA against AMD: throughput",
                |c| Some(c.samples_per_s),
            ),
        ),
        (
            "throughput-today",
            relative(study, &study.today, &TODAY, BASE_TODAY, "Throughput today (amp)", |c| {
                Some(c.samples_per_s)
            }),
        ),
        (
            "cost-today",
            relative(study, &study.today, &TODAY, BASE_TODAY, "Samples per rented dollar today (amp)", worth),
        ),
    ];
    charts.into_iter().map(|(name, bars)| Ok((name, bars.draw()?.svg()))).collect()
}

/// A quantity on each GPU over that on the base; zero where there is none.
fn relative(
    study: &Study,
    cells: &[Cell],
    gpus: &[&str],
    base: &str,
    title: &str,
    value: impl Fn(&Cell) -> Option<f64>,
) -> Bars {
    let find =
        |model: &str, gpu: &str| cells.iter().find(|c| c.model == model && c.gpu == gpu).and_then(&value);
    let groups = study
        .workloads
        .iter()
        .map(|w| {
            let base = find(w.model, base).unwrap_or(1.0);
            (w.model.to_string(), gpus.iter().map(|g| find(w.model, g).map_or(0.0, |v| v / base)).collect())
        })
        .collect();
    Bars {
        title: format!("{title}, {base} = 1"),
        y_label: format!("over {base}"),
        series: gpus.iter().map(|g| (*g).to_string()).collect(),
        groups,
        stacked: false,
    }
}
