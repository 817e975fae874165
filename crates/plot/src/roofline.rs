//! What the Roofline charts share: series, colours and markers, ticks with SI prefixes.

use kuva::plot::scatter::MarkerShape;
use kuva::render::layout::TickFormat;
use preflop_units::format::short_si;
use std::sync::Arc;

/// Colours that stay apart for colour-blind readers (Okabe and Ito 2008, with a grey), each with a marker, so
/// that colour never carries meaning alone.
const STYLES: [(&str, MarkerShape); 9] = [
    ("#0072b2", MarkerShape::Circle),
    ("#d55e00", MarkerShape::Square),
    ("#009e73", MarkerShape::Triangle),
    ("#cc79a7", MarkerShape::Diamond),
    ("#e69f00", MarkerShape::TriangleDown),
    ("#56b4e9", MarkerShape::Pentagon),
    ("#7a7a00", MarkerShape::Star),
    ("#332288", MarkerShape::Hexagon),
    ("#777777", MarkerShape::Square),
];

/// Lines that are there to read against.
pub(crate) const GUIDE: &str = "#c4c4c4";
/// Text of such lines.
pub(crate) const GUIDE_TEXT: &str = "#6b6b6b";
/// Points above a roof.
pub(crate) const FLAG: &str = "#c40000";

pub(crate) fn style(index: usize) -> (&'static str, MarkerShape) {
    STYLES[index % STYLES.len()]
}

/// One piece of work.
#[derive(Debug, Clone, PartialEq)]
pub struct Mark {
    /// Bytes at the level of the chart.
    pub bytes: f64,
    /// FLOPs.
    pub flops: f64,
    /// Time in seconds.
    pub time: f64,
    /// Radius of the marker in pixels.
    pub radius: f64,
    /// Does it lie above a roof?
    pub flagged: bool,
    /// Beside the marker: the value of a swept parameter.
    pub label: Option<String>,
}

/// Work that is drawn alike.
#[derive(Debug, Clone)]
pub struct Series {
    /// For the legend.
    pub name: String,
    /// Colour and marker: equal numbers look alike.
    pub style: usize,
    /// The work.
    pub marks: Vec<Mark>,
    /// Join the marks in their order: a swept parameter.
    pub joined: bool,
}

pub(crate) fn si_ticks(unit: &'static str) -> TickFormat {
    TickFormat::Custom(Arc::new(move |x| short_si(x, unit)))
}

/// Smallest and largest of the positive numbers.
pub(crate) fn extent(values: impl IntoIterator<Item = f64>) -> Option<(f64, f64)> {
    values.into_iter().filter(|v| *v > 0.0 && v.is_finite()).fold(None, |range, v| match range {
        None => Some((v, v)),
        Some((low, high)) => Some((low.min(v), high.max(v))),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extents_leave_out_what_has_no_logarithm() {
        assert_eq!(extent([0.0, 3.0, f64::INFINITY, 1.0]), Some((1.0, 3.0)));
        assert_eq!(extent([0.0]), None);
    }
}
