//! Tables of the V100 study (arXiv 2009.04598), as they come out of its notebooks or derived from them.

use super::view::View;
use crate::error::InputError;
use crate::input;
use preflop_core::roofline::{By, Entry, Group, Rows, StudyKernel, StudyRow, conclusions, study_machine};
use preflop_core::units::{Flops, Seconds};
use std::collections::HashMap;

/// A table is a few hundred rows.
const MAX_TABLE: u64 = 4 << 20;

/// Title and one view per framework, precision and pass. With the study's own reading all FLOPs are held against the
/// tensor-core roof; otherwise each against that of its pipe.
pub fn read(study: &[String], own_reading: bool) -> anyhow::Result<(String, Vec<View>)> {
    let [kind, path] = study else {
        return Err(InputError::new("--study takes a kind and a file").into());
    };
    let (prefix, title) = match kind.as_str() {
        "conv2d" => ("conv2d", "conv2d of ResNet-50 on a V100"),
        "lstm" => ("rnn1d", "LSTM on a V100"),
        other => {
            return Err(InputError::new(format!("unknown study `{other}`"))
                .hint("there are conv2d and lstm")
                .into());
        }
    };
    let bytes = input::read_limited(path, MAX_TABLE, "table of the study")?;
    let mut reader = csv::Reader::from_reader(bytes.as_slice());
    let mut groups: Vec<(String, Vec<Entry>)> = Vec::new();
    for (i, row) in reader.deserialize::<HashMap<String, String>>().enumerate() {
        let line = i + 2;
        let row = row.map_err(|e| InputError::new(format!("{path}:{line}: {e}")))?;
        if row.get("set").is_some_and(|set| !set.starts_with(prefix)) {
            continue;
        }
        let (label, entry) = entry(&row, own_reading).map_err(|what| {
            InputError::new(format!("{path}:{line}: {what}"))
                .hint("a table of the study has FLOPs, DRAM AI, CUDA Time and Invocations, or gflops, mb, t_us and invocations")
        })?;
        match groups.iter_mut().find(|g| g.0 == label) {
            Some(group) => group.1.push(entry),
            None => groups.push((label, vec![entry])),
        }
    }
    if groups.is_empty() {
        return Err(InputError::new(format!("{path}: no row of the study `{kind}`")).into());
    }
    let machine = study_machine();
    let views = groups
        .into_iter()
        .map(|(label, entries)| View {
            label,
            rows: Rows::new(&entries, By::Call, &machine),
            machine: machine.clone(),
            iteration: None,
            host: None,
            sources: None,
        })
        .collect();
    Ok((title.to_string(), views))
}

/// What the tables say, as sentences.
pub fn sentences(views: &[View]) -> Vec<String> {
    let groups: Vec<Group> = views
        .iter()
        .map(|v| {
            let (runner, setting) = v.label.split_once(' ').unwrap_or(("", &v.label));
            Group { runner, setting, rows: &v.rows }
        })
        .collect();
    conclusions(&groups)
}

type Cells = HashMap<String, String>;

fn text<'a>(row: &'a Cells, keys: &[&str]) -> Option<&'a str> {
    keys.iter().find_map(|key| row.get(*key)).map(String::as_str)
}

fn number(row: &Cells, key: &str) -> Result<Option<f64>, String> {
    let Some(cell) = row.get(key) else { return Ok(None) };
    match cell.parse::<f64>() {
        Ok(x) if x.is_finite() && x >= 0.0 => Ok(Some(x)),
        _ => Err(format!("`{key}` is `{cell}`, not a number from 0")),
    }
}

fn needed(row: &Cells, raw: &str, raw_unit: f64, derived: &str, unit: f64) -> Result<f64, String> {
    if let Some(x) = number(row, raw)? {
        return Ok(x * raw_unit);
    }
    number(row, derived)?
        .map(|x| x * unit)
        .ok_or_else(|| format!("there is no column `{raw}` or `{derived}`"))
}

fn entry(row: &Cells, own_reading: bool) -> Result<(String, Entry), String> {
    let study = StudyRow {
        flops: Flops(needed(row, "FLOPs", 1.0, "gflops", 1e9)?),
        dram_intensity: needed(row, "DRAM AI", 1.0, "dram_ai", 1.0)?,
        time: Seconds(needed(row, "CUDA Time", 1.0, "t_us", 1e-6)?),
        launches: needed(row, "Invocations", 1.0, "invocations", 1.0)?,
    };
    let optional = |keys: &[&str]| -> Result<Option<f64>, String> {
        keys.iter().find(|key| row.contains_key(**key)).map_or(Ok(None), |key| number(row, key))
    };
    let tensor = if let Some(flops) = optional(&["TC FLOPs"])? {
        flops
    } else {
        // A table that does not tell pipes: half precision is taken to use the tensor cores.
        let half = text(row, &["Precision", "precision"]) != Some("FP32");
        study.flops.0 * optional(&["tc_frac"])?.unwrap_or(if half { 1.0 } else { 0.0 }).min(1.0)
    };
    let half = optional(&["FP16 FLOPs"])?.unwrap_or(0.0);
    let kernel = StudyKernel {
        row: study,
        pipes: [Flops((study.flops.0 - tensor - half).max(0.0)), Flops(half), Flops(tensor)],
        inner_intensity: [optional(&["L2 AI(full)", "L2 AI"])?, optional(&["L1 AI(full)", "L1 AI"])?],
    };
    let work = if own_reading { study.work() } else { kernel.work() };
    let get = |keys: &[&str]| text(row, keys).unwrap_or("").to_string();
    let precision = get(&["Precision", "precision"]);
    let pass = get(&["Pass", "pass"]);
    let framework = match row.get("set") {
        Some(set) => set.split('-').nth(1).unwrap_or(set).to_uppercase(),
        None => get(&["Framework"]),
    };
    let kernel = get(&["Kernel Shape", "Cell", "kernel_or_cell"]);
    let size = get(&["Stride Size", "Hidden Size", "stride_or_hidden"]);
    let batch = get(&["Batch Size", "batch"]);
    let steps = get(&["Time Steps", "timesteps"]);
    let features = get(&["Features", "features"]);
    let layer = if steps.is_empty() {
        format!("{kernel} stride {size} batch {batch}")
    } else {
        format!("{kernel} {batch}x{steps}x{features} hidden {size}")
    };
    let entry = Entry {
        identity: format!("{framework} {precision} {pass} {layer}"),
        layer,
        op: format!("{framework} {pass}"),
        family: framework.clone(),
        phase: pass.clone(),
        dtype: precision.clone(),
        count: 1.0,
        work,
    };
    Ok((format!("{framework} {precision} {pass}"), entry))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cells(pairs: &[(&str, &str)]) -> Cells {
        pairs.iter().map(|(k, v)| ((*k).to_string(), (*v).to_string())).collect()
    }

    #[test]
    fn both_forms_of_a_row_mean_the_same() {
        let raw = cells(&[("FLOPs", "2e9"), ("DRAM AI", "20"), ("CUDA Time", "0.001"), ("Invocations", "3")]);
        let derived = cells(&[("gflops", "2"), ("dram_ai", "20"), ("t_us", "1000"), ("invocations", "3")]);
        assert_eq!(entry(&raw, true).unwrap().1.work, entry(&derived, true).unwrap().1.work);
        assert!(entry(&cells(&[("FLOPs", "x")]), true).unwrap_err().contains("`FLOPs`"));
        assert!(entry(&cells(&[]), true).unwrap_err().contains("no column"));
    }
}
