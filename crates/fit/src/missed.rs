//! Kinds of operators that were missed by much, judged on networks and shapes that no fit sees: `preflop-fit missed`.
//!
//! `missed_held.csv.gz` has every third network and every third drawn shape (`tools/measure/missed.py`), in all formats, passes and layouts.
//! `gaps_held.csv.gz` has a quarter of the shapes of `tools/measure/gaps.py`. Rows of operators that the program does not model are counted beside the others. `preflop-fit missed ROWS` prints so many of the worst rows of each line.

use crate::sets::Sets;
use anyhow::{Context as _, Result};
use preflop_core::ops::{Op, OpCall, row};
use preflop_core::time::TimeModel;
use std::collections::BTreeMap;

/// A row: what it is counted under, its call, whose layer it is, and the measured time.
struct Row {
    family: String,
    phase: String,
    call: Option<OpCall>,
    what: String,
    us: f64,
}

/// What rows count under that name no family.
const GAPS: &str = "gaps";

fn rows(sets: &Sets) -> Result<Vec<Row>> {
    let mut out = Vec::new();
    for file in ["missed_held.csv.gz", "gaps_held.csv.gz"] {
        let mut reader = csv::Reader::from_reader(sets.open(&sets.own(file)?)?);
        let headers = reader.headers()?.clone();
        let find = |name: &str| headers.iter().position(|h| h == name);
        let at = |name: &str| find(name).with_context(|| format!("no column {name} in {file}"));
        let [op, phase, dtype, shape, us] =
            [at("op")?, at("phase")?, at("dtype")?, at("shape")?, at("gpu_us")?];
        let (family, net) = (find("family"), find("net"));
        for record in reader.records() {
            let r = record?;
            let call = row::parse(&r[op], &r[phase], &r[dtype], &r[shape]).ok();
            let net = net.map_or("", |i| &r[i]);
            out.push(Row {
                family: family.map_or(GAPS, |i| &r[i]).to_string(),
                phase: format!("{} {}", &r[op], &r[phase]),
                call: call.filter(|c| !matches!(c.op, Op::Unmodelled { .. })),
                what: format!("{net} {} {} {} {}", &r[op], &r[phase], &r[dtype], &r[shape]),
                us: r[us].parse()?,
            });
        }
    }
    Ok(out)
}

/// A row judged: ln(predicted/measured), and whether the interval holds what was measured.
struct Judged<'a> {
    log: f64,
    inside: bool,
    row: &'a Row,
}

fn line(what: &str, all: usize, judged: &[&Judged]) {
    let count = judged.len();
    let mut logs: Vec<f64> = judged.iter().map(|j| j.log).collect();
    logs.sort_by(f64::total_cmp);
    let mut sizes: Vec<f64> = logs.iter().map(|l| l.abs()).collect();
    sizes.sort_by(f64::total_cmp);
    let middle = |sorted: &[f64]| sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN);
    let share = |n: usize| 100.0 * n as f64 / count.max(1) as f64;
    let inside = share(judged.iter().filter(|j| j.inside).count());
    let gross = share(judged.iter().filter(|j| j.log.abs() > std::f64::consts::LN_2).count());
    println!(
        "| {what} | {all} | {} | {:.3} | {:.3} | {:+.3} | {gross:.0} % | {inside:.0} % |",
        all - count,
        sizes.iter().sum::<f64>() / count.max(1) as f64,
        middle(&sizes),
        middle(&logs),
    );
}

/// Prints errors by family, operator and phase, and the worst rows of each.
pub fn report(sets: &Sets, worst: usize) -> Result<()> {
    let (rows, model) = (rows(sets)?, TimeModel::embedded());
    let gpu = &sets.gpus[sets.own_gpu()?];
    let judge = |row: &Row| {
        let p = model.predict(row.call.as_ref()?, gpu);
        let inside = (p.low.us()..=p.high.us()).contains(&row.us);
        Some((p.time.us() / row.us, inside))
    };
    let mut groups: BTreeMap<[&str; 2], Vec<&Row>> = BTreeMap::new();
    let mut judged: Vec<Judged> = Vec::new();
    for row in &rows {
        for phase in ["", &row.phase] {
            groups.entry([&row.family, phase]).or_default().push(row);
        }
        judged.extend(judge(row).map(|(ratio, inside)| Judged { log: ratio.ln(), inside, row }));
    }
    println!(
        "| held back | rows | not modelled | mean abs. log error | median | bias | over 2 times | in the interval |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    for ([family, phase], members) in &groups {
        let own = |j: &&Judged| j.row.family == *family && (phase.is_empty() || j.row.phase == *phase);
        let mut own: Vec<&Judged> = judged.iter().filter(own).collect();
        let what = if phase.is_empty() { format!("**{family}**") } else { (*phase).to_string() };
        line(&what, members.len(), &own);
        own.sort_by(|a, b| b.log.abs().total_cmp(&a.log.abs()));
        for j in own.iter().take(if phase.is_empty() { 0 } else { worst }) {
            println!("    {:.2} of {:.1} us: {}", j.log.exp(), j.row.us, j.row.what);
        }
    }
    line("**all**", rows.len(), &judged.iter().collect::<Vec<_>>());
    Ok(())
}
