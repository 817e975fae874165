//! The page with the timeline of one iteration: ranks as rows, compute, links and waiting as bars. No script, no outside.

use preflop_cluster::iteration::Breakdown;
use preflop_cluster::timeline::{self, Bar};
use std::fmt::Write as _;

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// The page as text.
pub fn page(title: &str, bars: &[Bar], breakdown: &Breakdown) -> String {
    let total = breakdown.total().max(1e-12);
    let mut rows = String::new();
    for (name, time) in breakdown.parts() {
        if time / total < 0.001 {
            continue;
        }
        let share = 100.0 * time / total;
        let _ = write!(
            rows,
            "<tr><th>{}</th><td>{:.2} ms</td><td>{share:.1} %</td><td><div style=\"width:{share:.2}%\"></div></td></tr>",
            name.replace('_', " "),
            time * 1e3
        );
    }
    format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
         <title>{title}</title><style>:root{{color-scheme:light dark}}body{{font:15px sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem}}\
         th{{text-align:left;font-weight:normal}}td{{padding:0 .6rem;text-align:right}}td:last-child{{width:50%}}\
         td div{{background:#0072b2;height:.8rem}}table{{width:100%}}</style>\
         <h1>{title}</h1><p>One iteration: {:.2} ms. Rows are pipeline stages; waiting is what no bar covers.</p>{}<h2>Where the time goes</h2><table>{rows}</table></html>",
        total * 1e3,
        timeline::svg(bars, 1100.0),
        title = escaped(title),
    )
}
