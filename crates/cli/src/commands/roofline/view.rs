//! One view: some work on one machine, with its rows. A sweep or several GPUs give several views.

use super::job::{JobArgs, describe, formats};
use crate::report::mode_words;
use preflop_core::roofline::{By, Machine, Rows, Sources, entries_of_iteration};
use preflop_core::schedule::Schedule as _;
use preflop_core::time::TimeModel;
use preflop_core::units::Seconds;

/// Work on a machine.
pub struct View {
    /// What sets it apart from the other views; empty for a single one.
    pub label: String,
    /// The machine.
    pub machine: Machine,
    /// The rows.
    pub rows: Rows,
    /// What a user's clock shows.
    pub iteration: Option<Seconds>,
    /// Host time.
    pub host: Option<Seconds>,
    /// Where the work of a recording comes from.
    pub sources: Option<Sources>,
}

/// A swept parameter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sweep {
    /// batch or seq.
    pub key: &'static str,
    /// Its values.
    pub values: Vec<u64>,
}

/// Reads `batch=1,2,4`.
pub fn sweep(text: &str) -> Result<Sweep, String> {
    let (key, list) = text.split_once('=').ok_or("it must be KEY=LIST, such as batch=1,2,4")?;
    let key = match key {
        "batch" => "batch",
        "seq" => "seq",
        _ => return Err(format!("`{key}` cannot be swept; batch and seq can")),
    };
    let values: Vec<u64> = list
        .split(',')
        .map(|v| v.trim().parse().map_err(|_| format!("`{v}` is no whole number")))
        .collect::<Result<_, _>>()?;
    if values.is_empty() || values.len() > 64 || values.contains(&0) {
        return Err("it takes 1 to 64 values, none of them zero".to_string());
    }
    Ok(Sweep { key, values })
}

/// Title and views of a model.
pub fn collect(
    model: &str,
    args: &JobArgs,
    sweep: Option<&Sweep>,
    by: By,
) -> anyhow::Result<(String, Vec<View>)> {
    let gpus = args.gpus()?;
    let time_model = TimeModel::embedded();
    let points: Vec<(String, Option<u64>, Option<u64>)> = match sweep {
        None => vec![(String::new(), None, None)],
        Some(s) => s
            .values
            .iter()
            .map(|&v| {
                let label = format!("{} {v}", s.key);
                if s.key == "batch" { (label, Some(v), None) } else { (label, None, Some(v)) }
            })
            .collect(),
    };
    let mut title = String::new();
    let mut views = Vec::new();
    for (label, batch, seq) in points {
        let job = args.run.job(model, batch, seq)?;
        gpus.iter().try_for_each(|gpu| job.check_on(gpu))?;
        if title.is_empty() {
            title = describe(&job);
            if let Some(s) = sweep {
                title = format!(
                    "{} {} over {}, {}",
                    job.graph.name,
                    mode_words(args.run.mode.name()),
                    s.key,
                    formats(args.run.precision())
                );
            }
        }
        for gpu in &gpus {
            let prediction = time_model.predict_iteration(&job.iteration, gpu);
            let machine = Machine::of(gpu);
            let entries = entries_of_iteration(&job.iteration, &prediction, gpu);
            views.push(View {
                label: label.clone(),
                rows: Rows::new(&entries, by, &machine),
                machine,
                iteration: Some(prediction.time),
                host: Some(prediction.host),
                sources: None,
            });
        }
    }
    Ok((title, views))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sweeps_are_read() {
        assert_eq!(sweep("batch=1,2,4"), Ok(Sweep { key: "batch", values: vec![1, 2, 4] }));
        for bad in ["batch", "batch=", "batch=0", "batch=x", "lr=1"] {
            assert!(sweep(bad).is_err(), "{bad}");
        }
    }
}
