//! One HTML file that works offline: the chart code, and the data as JSON.

use super::view::View;
use preflop_core::roofline::{Level, MachineData};
use serde::Serialize;

/// The chart code, built from web/ by `npm run build`.
const SCRIPT: &str = include_str!("../../../assets/charts.js");
/// Its look.
const STYLE: &str = include_str!("../../../assets/charts.css");

/// Opens the page with the chart and the level that were asked for, by the page's own switches.
const OPEN: &str = "const wanted = JSON.parse(document.getElementById('data').textContent);\
     for (const [id, value] of [['kind', wanted.chart], ['level', wanted.level]]) {\
     const control = document.getElementById(id);\
     if (control && control.value !== value) { control.value = value; control.dispatchEvent(new Event('change')); } }";

pub use preflop_api::PageView;

/// What a page opens with where nothing else is asked: the classic Roofline at DRAM.
pub const CLASSIC: (&str, Level) = ("roofline", Level::Dram);

#[derive(Serialize)]
struct Data<'a, R> {
    title: &'a str,
    /// Draw one call of each row instead of all its calls.
    per_call: bool,
    /// The chart that the page opens with, and its memory level.
    chart: &'a str,
    level: Level,
    views: &'a [PageView],
    #[serde(skip_serializing_if = "Option::is_none")]
    report: Option<&'a R>,
}

/// A page of charts.
pub fn roofline(
    title: &str,
    views: &[View],
    per_call: bool,
    (chart, level): (&str, Level),
    most: usize,
) -> anyhow::Result<String> {
    let view =
        |v: &View| PageView::new(&v.label, MachineData::from(&v.machine), &v.rows, v.sources.as_ref(), most);
    let views: Vec<PageView> = views.iter().map(view).collect();
    page::<()>(title, &views, per_call, (chart, level), None, "This page draws its charts with JavaScript.")
}

/// A page from its parts. `plain` is for readers without JavaScript.
pub fn page<R: Serialize>(
    title: &str,
    views: &[PageView],
    per_call: bool,
    (chart, level): (&str, Level),
    report: Option<&R>,
    plain: &str,
) -> anyhow::Result<String> {
    let data = serde_json::to_string(&Data { title, per_call, chart, level, views, report })?;
    // Inside a script element only `</` and `<!--` could end or change the meaning of the text.
    let data = data.replace('<', "\\u003c");
    let (title, plain) = (escaped(title), escaped(plain));
    Ok(format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"generator\" content=\"preflop {}\">\n<title>{title}</title>\n\
         <link rel=\"icon\" href=\"data:,\">\n<style>{STYLE}</style>\n</head>\n<body>\n\
         <div id=\"app\"></div>\n<noscript><pre>{plain}</pre></noscript>\n\
         <script id=\"data\" type=\"application/json\">{data}</script>\n<script>{SCRIPT}</script>\n<script>{OPEN}</script>\n</body>\n</html>\n",
        env!("CARGO_PKG_VERSION")
    ))
}

/// Text inside a document or an attribute.
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_break_out_of_the_page() {
        let page = page::<()>("</title><script>x", &[], true, CLASSIC, None, "<b>").unwrap();
        assert!(page.contains("&lt;/title&gt;&lt;script&gt;x"));
        assert!(!page.contains("</title><script>x"));
        // The data hold no raw `<`.
        let data = page.split("application/json\">").nth(1).unwrap().split("</script>").next().unwrap();
        assert!(!data.contains('<') && data.contains("\\u003c/title>"));
    }

    #[test]
    fn the_page_asks_the_network_for_nothing() {
        let page = page::<()>("t", &[], true, CLASSIC, None, "").unwrap();
        for link in ["src=\"http", "href=\"http", "@import", "url(http"] {
            assert!(!page.contains(link), "{link}");
        }
    }
}
