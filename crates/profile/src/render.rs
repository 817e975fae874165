//! Reports as text or Markdown.

use super::compare::Comparison;
use super::explain::{Explanation, Part, Untimed};
use super::stalls::Counted;
use preflop_units::format::{count, percent, three_digits as digits};
use preflop_units::text::{Align, Table, hanging, wrapped};

/// How a report is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// Lines and tables for a terminal of so many columns.
    Text {
        /// Columns of the terminal.
        width: usize,
    },
    /// Markdown.
    Markdown,
}

/// Rows shown at most in a table of operators.
const MOST_ROWS: usize = 15;
/// Longest name shown.
const LONGEST_NAME: usize = 48;

fn ms(x: f64) -> String {
    format!("{} ms", digits(x))
}

fn short(name: &str) -> String {
    if name.chars().count() <= LONGEST_NAME {
        return name.to_string();
    }
    let head: String = name.chars().take(LONGEST_NAME - 2).collect();
    format!("{head}..")
}

/// A report as it grows.
pub(crate) struct Page {
    style: Style,
    pub(crate) out: String,
}

impl Page {
    pub(crate) fn new(style: Style) -> Self {
        Self { style, out: String::new() }
    }

    /// A line. In Markdown no browser takes a name in it for HTML.
    fn line(&mut self, text: &str) {
        for c in text.chars() {
            match (self.style, c) {
                (Style::Markdown, '&') => self.out.push_str("&amp;"),
                (Style::Markdown, '<') => self.out.push_str("&lt;"),
                (Style::Markdown, '>') => self.out.push_str("&gt;"),
                (_, c) if c.is_control() && c != '\n' => self.out.push(' '),
                (_, c) => self.out.push(c),
            }
        }
        self.out.push('\n');
    }

    pub(crate) fn heading(&mut self, text: &str) {
        match self.style {
            Style::Text { .. } => self.line(&format!("\n{text}")),
            Style::Markdown => self.line(&format!("\n## {text}\n")),
        }
    }

    pub(crate) fn list(&mut self, text: &str) {
        match self.style {
            Style::Text { width } => self.line(&hanging("  ", text, width)),
            Style::Markdown => self.line(&format!("- {text}")),
        }
    }

    pub(crate) fn title(&mut self, text: &str) {
        match self.style {
            Style::Text { width } => self.line(&wrapped(text, width, "  ")),
            Style::Markdown => self.line(&format!("# {text}")),
        }
    }

    /// The first column stands left, the others right, each with the rank by which it is left out where there is no room.
    pub(crate) fn table(&mut self, header: &[(&str, u8)], rows: &[Vec<String>]) {
        let Style::Text { width } = self.style else {
            let titles: Vec<&str> = header.iter().map(|(title, _)| *title).collect();
            self.line(&format!("| {} |", titles.join(" | ")));
            self.line(&format!("|---|{}", "---:|".repeat(header.len().saturating_sub(1))));
            for row in rows {
                let cells: Vec<String> = row.iter().map(|c| c.replace('|', "\\|")).collect();
                self.line(&format!("| {} |", cells.join(" | ")));
            }
            return;
        };
        let align = |i: usize| if i == 0 { Align::Left } else { Align::Right };
        let columns: Vec<(&str, Align, u8)> =
            header.iter().enumerate().map(|(i, (title, rank))| (*title, align(i), *rank)).collect();
        let mut table = Table::new(&columns);
        for row in rows {
            table.row(row.iter().cloned());
        }
        for line in table.lines(width.saturating_sub(2), &|_, _, text| text.to_string()).0 {
            self.line(&format!("  {line}"));
        }
    }

    fn parts(&mut self, title: &str, parts: &[Part]) {
        if parts.is_empty() {
            return;
        }
        self.heading(title);
        let rows: Vec<Vec<String>> = parts
            .iter()
            .map(|p| vec![p.name.clone(), ms(p.time_ms), percent(p.share), count(p.launches)])
            .collect();
        self.table(&[("", 0), ("GPU time", 0), ("share", 0), ("launches", 1)], &rows);
    }

    fn counters(&mut self, counters: &[Counted]) {
        if counters.is_empty() {
            return;
        }
        self.heading("Hardware counters");
        let optional = |x: Option<f64>| x.map_or("-".to_string(), digits);
        let rows: Vec<Vec<String>> = counters
            .iter()
            .take(MOST_ROWS)
            .map(|c| {
                let gflop = c.flops.total() / 1e9;
                vec![
                    short(&c.kernel),
                    optional(c.time_us),
                    digits(gflop),
                    optional(c.dram_bytes.map(|b| b / 1e6)),
                    optional(c.occupancy_percent),
                ]
            })
            .collect();
        self.table(&[("kernel", 0), ("time us", 0), ("GFLOP", 2), ("DRAM MB", 2), ("occupancy %", 1)], &rows);
        let stalled: Vec<Vec<String>> = counters
            .iter()
            .filter_map(|c| c.stalls.map(|s| (c, s)))
            .take(MOST_ROWS)
            .map(|(c, s)| {
                let mut row = vec![short(&c.kernel)];
                let classes = [
                    s.execution_dependency,
                    s.memory_dependency,
                    s.synchronisation,
                    s.pipe_busy,
                    s.instruction_fetch,
                    s.gmma,
                    s.other,
                ];
                row.extend(classes.map(percent));
                row
            })
            .collect();
        if !stalled.is_empty() {
            self.heading("Why warps stall");
            let header = [
                ("kernel", 0),
                ("execution", 1),
                ("memory", 0),
                ("sync", 2),
                ("pipe busy", 2),
                ("fetch", 3),
                ("gmma", 3),
                ("other", 4),
            ];
            self.table(&header, &stalled);
        }
    }
}

/// Writes an explanation.
pub fn explanation(e: &Explanation, style: Style) -> String {
    let mut page = Page::new(style);
    let place = e.gpu.as_deref().or(e.device.as_deref()).unwrap_or("an unknown GPU");
    let title = format!("{} ({}) on {place}", e.source, e.format.name());
    page.title(&title);
    page.heading("One iteration");
    page.list(&format!(
        "iteration {}, GPU busy {} in {} launches",
        ms(e.iteration_ms),
        ms(e.gpu_wall_ms),
        count(e.launching.launches)
    ));
    page.list(&format!(
        "GPU utilisation {}, CPU utilisation {}, host time without waits {}",
        percent(e.gpu_utilisation),
        percent(e.cpu_utilisation),
        ms(e.host_ms)
    ));
    if (e.gpu_busy_ms - e.gpu_wall_ms) > 0.01 * e.gpu_wall_ms {
        page.list(&format!("kernels overlap: their times add up to {}", ms(e.gpu_busy_ms)));
    }
    page.list(&format!(
        "launch calls take {} of host time, {} us each (median)",
        ms(e.launching.host_ms),
        digits(e.launching.median_call_us)
    ));
    if let Some(o) = &e.occupancy {
        page.list(&format!(
            "occupancy {} on average by time, {} at least (recomputed; {} kernels above 48 KiB of shared memory)",
            percent(o.mean),
            percent(o.lowest),
            o.large_shared_kernels
        ));
    }
    page.list(&format!(
        "unattributed: {} ({} of the kernel time): graph replay {}, launched before the window {}, outside operators {}",
        ms(e.unattributed.time_ms),
        percent(e.unattributed.kernel_share),
        ms(e.unattributed.graph_ms),
        ms(e.unattributed.orphan_ms),
        ms(e.unattributed.no_operator_ms)
    ));
    page.heading("Where the GPU idles");
    let share = |x: f64| percent(if e.iteration_ms > 0.0 { x / e.iteration_ms } else { 0.0 });
    let rows: Vec<Vec<String>> = [
        ("host-bound (next kernel not launched yet)", e.idle.host_bound_ms),
        ("launch gaps (launched, not started)", e.idle.launch_gaps_ms),
        ("waits of the host (sync)", e.idle.sync_ms),
        ("communication", e.idle.communication_ms),
    ]
    .iter()
    .map(|(name, x)| vec![(*name).to_string(), ms(*x), share(*x)])
    .collect();
    page.table(&[("", 0), ("time", 0), ("of the iteration", 1)], &rows);
    let t = &e.timeline;
    if t.communication_ms > 0.0 || t.memcpy_ms > 0.0 {
        page.list(&format!(
            "communication {} of which exposed {}; copies {} of which exposed {} (whole window)",
            ms(t.communication_ms),
            ms(t.exposed_communication_ms),
            ms(t.memcpy_ms),
            ms(t.exposed_memcpy_ms)
        ));
    }
    page.parts("By family", &e.families);
    page.parts("By number format", &e.dtypes);
    page.parts("By tensor-core use", &e.tensor_cores);
    page.parts("By pass", &e.phases);
    page.parts("By module class", &e.modules);
    page.heading("Operators");
    let optional = |x: Option<f64>, f: fn(f64) -> String| x.map_or("-".to_string(), f);
    let rows: Vec<Vec<String>> = e
        .operators
        .iter()
        .take(MOST_ROWS)
        .map(|o| {
            vec![
                short(&o.name),
                o.phase.unwrap_or("-").to_string(),
                count(o.count),
                ms(o.time_ms),
                percent(o.share),
                optional(o.tflops, digits),
                optional(o.gbs, digits),
                optional(o.roof_share, percent),
                o.bound.unwrap_or("-").to_string(),
            ]
        })
        .collect();
    page.table(
        &[
            ("operator", 0),
            ("pass", 3),
            ("calls", 4),
            ("GPU time", 0),
            ("share", 0),
            ("TFLOP/s", 5),
            ("GB/s", 5),
            ("of the roof", 2),
            ("roof", 2),
        ],
        &rows,
    );
    if e.operators.len() > MOST_ROWS {
        page.list(&format!("and {} more operators", e.operators.len() - MOST_ROWS));
    }
    page.counters(&e.counters);
    page.heading("What would help");
    if e.advice.is_empty() {
        page.list("nothing that saves 2 % or more is seen");
    }
    for advice in &e.advice {
        page.list(&format!("{} (about {}, {})", advice.text, ms(advice.saves_ms), percent(advice.share)));
    }
    for note in &e.notes {
        page.list(&format!("note: {note}"));
    }
    reading(&mut page, &e.reading);
    page.out
}

fn reading(page: &mut Page, reading: &super::Reading) {
    if reading.unreadable > 0 {
        page.list(&format!(
            "note: {} of {} records could not be read; the first: {}",
            reading.unreadable,
            reading.events,
            reading.first_unreadable.as_deref().unwrap_or("-")
        ));
    }
    if reading.mended > 0 {
        page.list(&format!("note: {} records with invalid UTF-8 or NaN were mended", reading.mended));
    }
    if !reading.dropped_fields.is_empty() {
        page.list(&format!("note: not kept: {}", reading.dropped_fields.join(", ")));
    }
}

/// Writes what a recording without GPU times says.
pub fn untimed(u: &Untimed, style: Style) -> String {
    let mut page = Page::new(style);
    let title = format!("{} ({}): no GPU times", u.source, u.format.name());
    page.title(&title);
    if !u.operators.is_empty() {
        page.heading("Operators");
        let rows: Vec<Vec<String>> = u
            .operators
            .iter()
            .take(MOST_ROWS)
            .map(|o| vec![short(&o.name), o.count.to_string(), digits(o.flops / 1e9), digits(o.bytes / 1e6)])
            .collect();
        page.table(&[("operator", 0), ("calls", 1), ("GFLOP", 0), ("MB", 0)], &rows);
    }
    page.counters(&u.counters);
    reading(&mut page, &u.reading);
    page.out
}

/// Writes a comparison.
pub fn comparison(c: &Comparison, style: Style) -> String {
    let mut page = Page::new(style);
    let title = format!("{} -> {}", c.before, c.after);
    page.title(&title);
    let row = |name: &str, a: f64, b: f64| {
        let ratio = if a > 0.0 { format!("{}x", digits(b / a)) } else { "-".to_string() };
        let sign = if b >= a { "+" } else { "-" };
        vec![short(name), ms(a), ms(b), format!("{sign}{}", ms((b - a).abs())), ratio]
    };
    page.heading("One iteration");
    let rows = [
        row("iteration", c.before_iteration_ms, c.after_iteration_ms),
        row("GPU busy", c.before_gpu_busy_ms, c.after_gpu_busy_ms),
        row("host", c.before_host_ms, c.after_host_ms),
    ];
    page.table(&[("", 0), ("before", 1), ("after", 1), ("change", 0), ("ratio", 0)], &rows);
    page.heading("By operator, the largest change first");
    let rows: Vec<Vec<String>> =
        c.operators.iter().take(2 * MOST_ROWS).map(|o| row(&o.name, o.before_ms, o.after_ms)).collect();
    page.table(&[("operator", 0), ("before", 1), ("after", 1), ("change", 0), ("ratio", 0)], &rows);
    page.out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_styles_hold_the_same_cells() {
        let rows = [vec!["a|b".to_string(), "1".to_string()]];
        let mut text = Page::new(Style::Text { width: 80 });
        text.table(&[("name", 0), ("n", 0)], &rows);
        assert_eq!(text.out, "  name  n\n  a|b   1\n");
        let mut page = Page::new(Style::Markdown);
        page.line("k<<img src=x onerror=alert(1)>>\u{1b}[2J");
        assert_eq!(page.out, "k&lt;&lt;img src=x onerror=alert(1)&gt;&gt; [2J\n");
        let mut markdown = Page::new(Style::Markdown);
        markdown.table(&[("name", 0), ("n", 0)], &rows);
        assert_eq!(markdown.out, "| name | n |\n|---|---:|\n| a\\|b | 1 |\n");
    }
}
