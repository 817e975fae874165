//! The report as Markdown.

use super::{GpuSummary, Part, Report, ms, three};
use std::fmt::Write as _;

/// Layers listed; the page has all.
const LAYERS: usize = 40;

/// The text. Names are kept apart from the markup: a bar or a line break cannot end a cell.
pub fn markdown(report: &Report) -> String {
    let mut out = String::new();
    // Writing into a string does not fail.
    let _ = write(&mut out, report);
    out
}

fn write(out: &mut String, r: &Report) -> std::fmt::Result {
    writeln!(out, "# {}\n", cell(&r.headline))?;
    gpus(out, &r.gpus)?;
    to_fit(out, r)?;
    writeln!(out, "\n## What binds\n")?;
    for line in &r.binds {
        writeln!(out, "- {}", cell(line))?;
    }
    writeln!(out, "\n## What would help\n")?;
    if r.helps.is_empty() {
        writeln!(out, "Nothing that was tried.")?;
    } else {
        writeln!(out, "| change | iteration | samples/s | why |\n|---|---:|---:|---|")?;
        for h in &r.helps {
            writeln!(
                out,
                "| {} | {} | {}x | {} |",
                cell(&h.change),
                ms(h.iteration_ms),
                three(h.speedup),
                cell(&h.note)
            )?;
        }
    }
    for (title, parts) in [("phase", &r.phases), ("family", &r.families), ("module", &r.modules)] {
        writeln!(out, "\n## Time by {title}\n")?;
        table_of_parts(out, title, parts)?;
    }
    layers(out, r)?;
    writeln!(out, "\n## Operators without a model\n")?;
    if r.unmodelled.is_empty() {
        writeln!(out, "None: every operator of this model has one.")?;
    }
    for u in &r.unmodelled {
        writeln!(
            out,
            "- {}: {} calls, {:.1} % of the time, by its bytes alone",
            cell(&u.name),
            u.calls,
            100.0 * u.share
        )?;
    }
    writeln!(out, "\n## Assumptions and accuracy\n")?;
    for line in r.assumptions.iter().chain(&r.accuracy) {
        writeln!(out, "- {}", cell(line))?;
    }
    if !r.family_errors.is_empty() {
        writeln!(
            out,
            "\n| family | share of time | mean error | median | held-out rows | this GPU held out |"
        )?;
        writeln!(out, "|---|---:|---:|---:|---:|---:|")?;
    }
    for f in &r.family_errors {
        let unseen = f.unseen_mean_percent.map_or_else(|| "-".to_string(), |e| format!("{e:.1} %"));
        writeln!(
            out,
            "| {} | {:.0} % | {:.1} % | {:.1} % | {} | {unseen} |",
            f.family,
            100.0 * f.share,
            f.mean_percent,
            f.median_percent,
            f.rows
        )?;
    }
    // A fence in a file's name cannot end ours.
    let command = r.command.replace("```", "~~~").replace(char::is_control, " ");
    writeln!(out, "\n## Reproduce\n\n```sh\n{command}\n```\n\npreflop {}", r.version)
}

/// What would make it fit, where it does not.
fn to_fit(out: &mut String, r: &Report) -> std::fmt::Result {
    let short = r.gpus.first().is_some_and(|g| g.fits == Some(false));
    if !short {
        return Ok(());
    }
    writeln!(out, "\n## What would make it fit\n")?;
    if r.to_fit.is_empty() {
        return writeln!(out, "Nothing that was tried.");
    }
    writeln!(out, "| change | options | memory | time of a sample |\n|---|---|---:|---:|")?;
    for c in &r.to_fit {
        let still = if c.fits { "" } else { " (still does not fit)" };
        writeln!(
            out,
            "| {} | `{}` | {} GiB{still} | {}x |",
            cell(&c.change),
            cell(&c.options.join(" ")),
            three(c.memory_mib / 1024.0),
            three(c.time_ratio)
        )?;
    }
    Ok(())
}

fn gpus(out: &mut String, gpus: &[GpuSummary]) -> std::fmt::Result {
    writeln!(
        out,
        "| GPU | iteration | 90 % interval | samples/s | memory | GPU busy | host | binds | $ per million samples |"
    )?;
    writeln!(out, "|---|---:|---:|---:|---:|---:|---:|---|---:|")?;
    for g in gpus {
        let dash = || "-".to_string();
        let fits = if g.fits == Some(false) { " (does not fit)" } else { "" };
        let memory = g.memory_mib.map_or_else(dash, |m| format!("{} GiB{fits}", three(m / 1024.0)));
        let cost = match (g.usd_per_million_samples, g.usd_per_hour, g.price_date) {
            (Some(usd), Some(hour), Some(date)) => format!("{} ({}/h, {date})", three(usd), three(hour)),
            (None, Some(hour), Some(date)) => format!("{}/h, {date}", three(hour)),
            _ => "no price known".to_string(),
        };
        writeln!(
            out,
            "| {} | {} | {} to {} | {} | {memory} | {} | {} | {} | {cost} |",
            cell(&g.title),
            ms(g.iteration_ms),
            ms(g.low_ms),
            ms(g.high_ms),
            g.samples_per_s.map_or_else(dash, three),
            ms(g.gpu_wall_ms),
            ms(g.host_ms),
            g.bound,
        )?;
    }
    Ok(())
}

fn table_of_parts(out: &mut String, title: &str, parts: &[Part]) -> std::fmt::Result {
    writeln!(out, "| {title} | time | share | largest bound | slowdown |\n|---|---:|---:|---|---:|")?;
    for p in parts {
        let slowdown = p.slowdown.map_or_else(|| "-".to_string(), |s| format!("{}x", three(s)));
        writeln!(
            out,
            "| {} | {} | {:.1} % | {} | {slowdown} |",
            cell(&p.name),
            ms(p.time_ms),
            100.0 * p.share,
            p.class
        )?;
    }
    Ok(())
}

fn layers(out: &mut String, r: &Report) -> std::fmt::Result {
    writeln!(out, "\n## {}\n", if r.rows_by == "layer" { "Layers" } else { "Operators" })?;
    writeln!(
        out,
        "| layer | time | share | t_F | t_B | t_0 | slowdown | binds |\n|---|---:|---:|---:|---:|---:|---:|---|"
    )?;
    let us = |x: f64| ms(x / 1000.0);
    for row in r.layers.iter().take(LAYERS) {
        writeln!(
            out,
            "| {} | {} | {:.1} % | {} | {} | {} | {} | {} |",
            cell(&row.name),
            us(row.time_us),
            100.0 * row.share,
            us(row.compute_bound_us),
            row.dram_bound_us.map_or_else(|| "-".to_string(), us),
            us(row.launch_bound_us),
            row.slowdown.map_or_else(|| "-".to_string(), |s| format!("{}x", three(s))),
            row.binding
        )?;
    }
    if r.layers.len() > LAYERS {
        let rest: f64 = r.layers[LAYERS..].iter().map(|l| l.share).sum();
        writeln!(out, "\n{} more layers with {:.1} % of the time.", r.layers.len() - LAYERS, 100.0 * rest)?;
    }
    Ok(())
}

/// Text of a file within the markup: it cannot end a cell or a line, and no browser takes it for HTML.
fn cell(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '|' => out.push_str("\\|"),
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_stay_cells() {
        assert_eq!(cell("a|b\nc"), "a\\|b c");
        assert_eq!(cell("<img src=x>\u{1b}[2J"), "&lt;img src=x&gt; [2J");
    }
}
