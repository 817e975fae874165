//! Bars in groups, side by side or stacked.

use crate::{Chart, PlotError};
use kuva::plot::{BarPlot, LegendPosition};
use kuva::render::layout::Layout;
use kuva::render::plots::Plot;
use kuva::render::render::render_multiple;

/// Colours that stay apart for colour-blind readers (Okabe and Ito 2008; the last three by lightness).
const COLORS: [&str; 9] =
    ["#0072b2", "#56b4e9", "#009e73", "#e69f00", "#cc79a7", "#d55e00", "#444444", "#999999", "#f0e442"];

/// Groups of bars.
#[derive(Debug, Clone, PartialEq)]
pub struct Bars {
    /// Above the chart.
    pub title: String,
    /// Left of it.
    pub y_label: String,
    /// Names of the bars of a group, for the legend.
    pub series: Vec<String>,
    /// Name and values of each group; as many values as series.
    pub groups: Vec<(String, Vec<f64>)>,
    /// On top of each other?
    pub stacked: bool,
}

/// Room for a legend: pixels a character, and the colour mark with its margins.
const LEGEND_CHARACTER: f64 = 9.0;
const LEGEND_MARK: f64 = 48.0;
/// Pixels of a character of a group's name.
const NAME_CHARACTER: f64 = 8.5;

impl Bars {
    /// Draws it.
    pub fn draw(&self) -> Result<Chart, PlotError> {
        if self.groups.is_empty() || self.series.is_empty() {
            return Err(PlotError::Empty);
        }
        let mut plot = BarPlot::new();
        for (name, values) in &self.groups {
            let bars = values.iter().enumerate().map(|(i, v)| (*v, COLORS[i % COLORS.len()]));
            plot = plot.with_group(name.as_str(), bars);
        }
        plot = plot.with_legend(self.series.iter().map(String::as_str).collect());
        if self.stacked {
            plot = plot.with_stacked();
        }
        let plots = vec![Plot::Bar(plot)];
        let bars = if self.stacked { self.groups.len() } else { self.groups.len() * self.series.len() };
        let longest = self.series.iter().map(|s| s.chars().count()).max().unwrap_or(0) as f64;
        // Names of groups stand side by side.
        let names = self.groups.iter().map(|(n, _)| n.chars().count()).max().unwrap_or(0) * self.groups.len();
        let width = (260.0 + 16.0 * bars as f64)
            .max(200.0 + longest * LEGEND_CHARACTER + NAME_CHARACTER * names as f64)
            .clamp(760.0, 1080.0);
        let layout = Layout::auto_from_plots(&plots)
            .with_title(self.title.as_str())
            .with_y_label(self.y_label.as_str())
            .with_y_axis_min(0.0)
            .with_legend_position(LegendPosition::OutsideRightTop)
            .with_legend_width(longest * LEGEND_CHARACTER + LEGEND_MARK)
            .with_width(width)
            .with_height(430.0);
        // Many names need slanting.
        let layout = if self.groups.len() > 9 { layout.with_x_tick_rotate(-30.0) } else { layout };
        Ok(Chart { scene: render_multiple(plots, layout) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_groups_and_stacks() {
        let mut bars = Bars {
            title: "t".into(),
            y_label: "y".into(),
            series: vec!["one".into(), "two".into()],
            groups: vec![("first".into(), vec![1.0, 2.0]), ("second".into(), vec![2.0, 1.0])],
            stacked: false,
        };
        for stacked in [false, true] {
            bars.stacked = stacked;
            let svg = bars.draw().unwrap().svg();
            assert!(svg.contains("first") && svg.contains("two"));
        }
        bars.groups.clear();
        assert_eq!(bars.draw().unwrap_err(), PlotError::Empty);
    }
}
