//! From views to chart files.

use super::page;
use super::view::View;
use crate::destination;
use crate::error::InputError;
use crate::output;
use preflop_core::ops::Family;
use preflop_core::roofline::{Level, Machine, Pipe, Resource, Row, Work};
use preflop_plot::{
    Chart, LaunchBox, Mark, NamedRate, PlaneChart, RatePoint, RateSeries, RooflineChart, Rug, Series,
};

/// What the user asked for.
pub struct Wanted<'a> {
    /// plane, roofline or hierarchical.
    pub kind: &'a str,
    /// Level of the time plane.
    pub level: Level,
    /// Roof of the time plane.
    pub roof: Option<&'a str>,
    /// Draw one call of each row instead of all its calls.
    pub per_call: bool,
    /// Colour by view instead of by family.
    pub by_view: bool,
    /// The views are values of a swept parameter.
    pub swept: bool,
}

/// Rows that no page or chart shows one by one.
const MAX_MARKS: usize = 1000;

/// Draws into a file.
pub fn write(path: &str, title: &str, views: &[View], wanted: &Wanted) -> anyhow::Result<()> {
    let Some(first) = views.first() else { return Err(InputError::new("there is nothing to draw").into()) };
    // A roof that the machine lacks is refused, whichever chart is drawn.
    pipe(first, wanted.roof)?;
    let bytes = if path.to_ascii_lowercase().ends_with(".html") {
        page::roofline(title, views, wanted.per_call, (wanted.kind, wanted.level), MAX_MARKS)?.into_bytes()
    } else {
        let format = output::chart_format(path).map_err(|_| {
            InputError::new(format!("cannot tell the format of `{path}`")).hint("name it .svg, .png or .html")
        })?;
        let chart = match wanted.kind {
            "plane" => plane(title, first, views, wanted)?,
            kind => classic(title, first, views, wanted, kind == "hierarchical")?,
        };
        chart.render(format)?
    };
    destination::write_bytes(path, bytes)
}

/// The pipe that the user named, or the one with most FLOPs.
fn pipe(view: &View, name: Option<&str>) -> anyhow::Result<Pipe> {
    let roofs = &view.machine.roofs;
    if let Some(name) = name {
        let found = roofs.iter().find(|r| r.pipe.name() == name);
        return found.map(|r| r.pipe).ok_or_else(|| {
            let names: Vec<String> = roofs.iter().map(|r| r.pipe.name()).collect();
            InputError::new(format!("{} has no roof `{name}`", view.machine.name))
                .hint(format!("it has {}", names.join(", ")))
                .into()
        });
    }
    let most = view.rows.summary.work.flops.iter().max_by(|a, b| a.1.0.total_cmp(&b.1.0)).map(|f| f.0);
    most.or_else(|| roofs.first().map(|r| r.pipe))
        .ok_or_else(|| InputError::new(format!("{} has no roof", view.machine.name)).into())
}

/// One call, or everything.
fn unit_work(row: &Row, per_call: bool) -> Work {
    if per_call && row.count > 0.0 { row.work.times(1.0 / row.count) } else { row.work.clone() }
}

/// 2 to 9 pixels: the area follows the share of time.
fn radius(share: f64) -> f64 {
    (2.2 + 14.0 * share.clamp(0.0, 1.0).sqrt()).min(9.0)
}

/// Work of one colour with its rows.
struct Group<'a> {
    name: String,
    style: usize,
    rows: Vec<(&'a str, &'a Row)>,
    joined: bool,
}

/// By family, by GPU, or (in a sweep) one trajectory per row name and GPU.
fn groups<'a>(views: &'a [View], wanted: &Wanted) -> Vec<Group<'a>> {
    let mut groups: Vec<Group<'a>> = Vec::new();
    let gpus: Vec<&str> = views.iter().map(|v| v.machine.name.as_str()).collect();
    let several_gpus = gpus.iter().any(|g| *g != gpus[0]);
    for view in views {
        for row in view.rows.rows.iter().take(MAX_MARKS) {
            let name = if wanted.swept {
                if several_gpus { format!("{} {}", view.machine.name, row.name) } else { row.name.clone() }
            } else if wanted.by_view && several_gpus {
                view.machine.name.clone()
            } else if wanted.by_view {
                view.label.clone()
            } else {
                row.family.clone()
            };
            if let Some(group) = groups.iter_mut().find(|g| g.name == name) {
                group.rows.push((&view.label, row));
            } else {
                let family = Family::ALL.iter().position(|f| f.name() == name);
                let style = family.filter(|_| !wanted.by_view).unwrap_or(groups.len());
                groups.push(Group { name, style, rows: vec![(&view.label, row)], joined: wanted.swept });
            }
        }
    }
    groups
}

fn flagged(row: &Row) -> bool {
    !row.bounds.passed(row.work.time).is_empty()
}

fn subtitle(views: &[View], wanted: &Wanted) -> String {
    let what = match (wanted.by_view, wanted.per_call) {
        (true, _) => "",
        (false, true) => "; one call of each operator, area by share of time",
        (false, false) => "; all calls, area by share of time",
    };
    let mut titles: Vec<&str> = views.iter().map(|v| v.machine.title.as_str()).collect();
    titles.dedup();
    titles.truncate(if wanted.swept { 1 } else { 3 });
    let axes =
        if titles.len() > 1 && wanted.kind == "plane" { " (times on the first one's axes)" } else { "" };
    let rows: usize = views.iter().map(|v| v.rows.rows.len()).max().unwrap_or(0);
    let cut =
        if rows > MAX_MARKS { format!("; the {MAX_MARKS} longest of {rows} rows") } else { String::new() };
    format!("{}{axes}{what}{cut}", titles.join(", "))
}

fn plane(title: &str, first: &View, views: &[View], wanted: &Wanted) -> anyhow::Result<Chart> {
    let pipe = pipe(first, wanted.roof)?;
    let machine = &first.machine;
    let bandwidth = machine.bandwidth(wanted.level).ok_or_else(|| {
        InputError::new(format!("the {} bandwidth of {} is not known", wanted.level.name(), machine.name))
    })?;
    let mark = |label: &str, row: &Row| {
        let work = unit_work(row, wanted.per_call);
        Some(Mark {
            bytes: work.bytes(wanted.level)?.0,
            flops: work.total_flops().0,
            time: work.time.0,
            radius: if wanted.by_view { 4.0 } else { radius(row.share) },
            flagged: flagged(row),
            label: wanted.swept.then(|| label.rsplit(' ').next().unwrap_or(label).to_string()),
        })
    };
    let series = groups(views, wanted)
        .into_iter()
        .map(|g| Series {
            marks: g.rows.iter().filter_map(|(label, r)| mark(label, r)).filter(|m| m.flops > 0.0).collect(),
            name: g.name,
            style: g.style,
            joined: g.joined,
        })
        .collect();
    let zero = first.rows.summary.zero_flop;
    let rug = (!wanted.by_view && zero.rows > 0).then(|| Rug {
        times: first
            .rows
            .rows
            .iter()
            .filter(|r| r.is_zero_flop())
            .take(400)
            .map(|r| unit_work(r, wanted.per_call).time.0)
            .collect(),
        label: format!("no FLOPs: {:.0} % of time", 100.0 * zero.time_share),
    });
    let chart = PlaneChart {
        title: title.to_string(),
        subtitle: subtitle(views, wanted),
        peak: machine.peak(pipe).0,
        bandwidth: bandwidth.0,
        roof: pipe.name(),
        level: wanted.level.name().to_string(),
        series,
        boxes: boxes(machine, views, wanted),
        rug,
    };
    Ok(chart.draw()?)
}

/// Boxes for one launch where one call of each row is drawn, else for the fewest and the most launches of a row.
fn boxes(machine: &Machine, views: &[View], wanted: &Wanted) -> Vec<LaunchBox> {
    let counts: Vec<f64> = if wanted.per_call {
        vec![1.0]
    } else {
        let all = views.iter().flat_map(|v| &v.rows.rows).map(|r| r.work.launches).filter(|n| *n > 0.0);
        let (low, high) = all.fold((f64::INFINITY, 0.0_f64), |(l, h), n| (l.min(n), h.max(n)));
        if high <= 0.0 {
            vec![]
        } else if (high / low) > 2.0 {
            vec![low, high]
        } else {
            vec![high]
        }
    };
    let (device, host) = (machine.device_overhead, machine.host_overhead);
    let mut boxes = Vec::new();
    for n in counts {
        let what = if n <= 1.0 { "1 launch".to_string() } else { format!("{n:.0} launches") };
        if device == host {
            boxes.push(LaunchBox { label: what, time: device.0 * n });
        } else {
            boxes.push(LaunchBox { label: format!("{what}, device"), time: device.0 * n });
            boxes.push(LaunchBox { label: format!("{what}, host"), time: host.0 * n });
        }
    }
    boxes
}

fn classic(
    title: &str,
    first: &View,
    views: &[View],
    wanted: &Wanted,
    hierarchical: bool,
) -> anyhow::Result<Chart> {
    let levels: Vec<Level> = if hierarchical { Level::ALL.to_vec() } else { vec![wanted.level] };
    let levels: Vec<Level> = levels.into_iter().filter(|l| first.machine.bandwidth(*l).is_some()).collect();
    let point = |(_, row): &(&str, &Row)| RatePoint {
        intensity: levels.iter().map(|l| row.work.intensity(*l).filter(|x| *x > 0.0)).collect(),
        rate: if row.work.time.0 > 0.0 { row.work.total_flops().0 / row.work.time.0 } else { 0.0 },
        radius: if wanted.by_view { 4.0 } else { radius(row.share) },
        flagged: row.bounds.passed(row.work.time).iter().any(|r| {
            hierarchical || *r == Resource::Compute || r.name() == wanted.level.name().to_lowercase()
        }),
    };
    let series = groups(views, wanted)
        .into_iter()
        .map(|g| RateSeries {
            points: g.rows.iter().map(point).filter(|p| p.rate > 0.0).collect(),
            name: g.name,
            style: g.style,
            joined: g.joined,
        })
        .collect();
    let mut machines: Vec<&Machine> = Vec::new();
    for view in views {
        if !machines.iter().any(|m| m.name == view.machine.name) {
            machines.push(&view.machine);
        }
    }
    let several = machines.len() > 1;
    let prefixed =
        |m: &Machine, name: &str| if several { format!("{} {name}", m.name) } else { name.to_string() };
    let mut roofs: Vec<NamedRate> = machines.iter().flat_map(|m| roofs_of(m, views, &prefixed)).collect();
    roofs.sort_by(|a, b| b.rate.total_cmp(&a.rate));
    let slope =
        |m: &Machine, l: Level| Some(NamedRate { name: prefixed(m, l.name()), rate: m.bandwidth(l)?.0 });
    let chart = RooflineChart {
        title: title.to_string(),
        subtitle: subtitle(views, &Wanted { per_call: false, ..*wanted }),
        roofs,
        levels: levels.iter().filter_map(|l| slope(&first.machine, *l)).collect(),
        more_levels: machines[1..].iter().filter_map(|m| slope(m, Level::Dram)).collect(),
        series,
    };
    Ok(chart.draw()?)
}

/// The roofs of one machine for the formats in use, equal ones under one name; all where no work has FLOPs.
fn roofs_of(
    machine: &Machine,
    views: &[View],
    prefixed: &impl Fn(&Machine, &str) -> String,
) -> Vec<NamedRate> {
    let used = |pipe: Pipe| {
        let mine = views.iter().filter(|v| v.machine.name == machine.name);
        mine.flat_map(|v| &v.rows.summary.work.flops).any(|f| f.0 == pipe)
    };
    let used_only = machine.roofs.iter().any(|r| used(r.pipe));
    // Highest first, so that equal rates are neighbours: rate, tensor formats, plain formats.
    let mut roofs: Vec<(f64, [Vec<&str>; 2])> = Vec::new();
    for roof in machine.roofs.iter().filter(|r| !used_only || used(r.pipe)) {
        let name = roof.pipe.dtype.name();
        let plain = usize::from(!roof.pipe.tensor);
        if let Some(same) = roofs.last_mut().filter(|r| r.0 <= roof.rate.0 * SAME_ROOF) {
            same.1[plain].push(name);
        } else {
            let mut names = [Vec::new(), Vec::new()];
            names[plain].push(name);
            roofs.push((roof.rate.0, names));
        }
    }
    roofs
        .into_iter()
        .map(|(rate, [tensor, plain])| {
            let mut names = Vec::new();
            if !plain.is_empty() {
                names.push(plain.join("/"));
            }
            if !tensor.is_empty() {
                names.push(format!("{} tensor", tensor.join("/")));
            }
            NamedRate { name: prefixed(machine, &names.join(", ")), rate }
        })
        .collect()
}

/// Roofs this close are one line.
const SAME_ROOF: f64 = 1.02;
