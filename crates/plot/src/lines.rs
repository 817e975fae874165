//! Lines over one quantity.

use crate::{Chart, PlotError};
use kuva::plot::{LegendPosition, LinePlot};
use kuva::render::layout::{Layout, TickFormat};
use kuva::render::plots::Plot;
use kuva::render::render::{render_multiple, render_twin_y};

/// Colours that stay apart for colour-blind readers (Okabe and Ito 2008), and by lightness in print.
const COLORS: [&str; 6] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"];

/// One line.
#[derive(Debug, Clone)]
pub struct Line {
    /// For the legend.
    pub name: String,
    /// (x, y).
    pub points: Vec<(f64, f64)>,
    /// Against the second axis, dashed and in steps.
    pub second_axis: bool,
}

/// A chart of lines.
#[derive(Debug, Clone)]
pub struct LineChart {
    /// Above the chart.
    pub title: String,
    /// Below it.
    pub x_label: String,
    /// Left of it.
    pub y_label: String,
    /// Right of it, for lines of the second axis.
    pub second_label: String,
    /// The lines.
    pub lines: Vec<Line>,
}

fn plot(line: &Line, color: &str) -> Plot {
    let plot = LinePlot::new()
        .with_data(line.points.iter().copied())
        .with_color(color)
        .with_legend(line.name.as_str());
    Plot::Line(if line.second_axis { plot.with_step().with_dashed() } else { plot.with_stroke_width(2.0) })
}

impl LineChart {
    /// Draws it.
    pub fn draw(&self) -> Result<Chart, PlotError> {
        if self.lines.iter().all(|l| l.points.is_empty()) {
            return Err(PlotError::Empty);
        }
        let (mut first, mut second) = (Vec::new(), Vec::new());
        for (i, line) in self.lines.iter().enumerate() {
            let drawn = plot(line, if line.second_axis { "#666666" } else { COLORS[i % COLORS.len()] });
            if line.second_axis { second.push(drawn) } else { first.push(drawn) }
        }
        let dress = |layout: Layout| {
            layout
                .with_title(self.title.as_str())
                .with_x_label(self.x_label.as_str())
                .with_y_label(self.y_label.as_str())
                .with_x_tick_format(TickFormat::Integer)
                .with_y_axis_min(0.0)
                .with_legend_position(LegendPosition::OutsideRightTop)
                .with_width(760.0)
                .with_height(420.0)
        };
        let scene = if second.is_empty() {
            let layout = dress(Layout::auto_from_plots(&first));
            render_multiple(first, layout)
        } else {
            let layout = dress(Layout::auto_from_twin_y_plots(&first, &second))
                .with_y2_label(self.second_label.as_str())
                .with_y2_axis_min(0.0);
            render_twin_y(first, second, layout)
        };
        Ok(Chart { scene })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Format;

    fn chart(lines: Vec<Line>) -> LineChart {
        LineChart {
            title: "T".into(),
            x_label: "x".into(),
            y_label: "y".into(),
            second_label: "z".into(),
            lines,
        }
    }

    #[test]
    fn draws_both_formats() {
        let line = |name: &str, second_axis| Line {
            name: name.into(),
            points: vec![(1.0, 1.0), (2.0, 3.0), (3.0, 2.0)],
            second_axis,
        };
        for lines in [vec![line("alpha", false)], vec![line("alpha", false), line("width", true)]] {
            let drawn = chart(lines).draw().unwrap();
            assert!(drawn.svg().contains("alpha"));
            assert!(drawn.render(Format::Png).unwrap().starts_with(b"\x89PNG"));
        }
        assert_eq!(chart(vec![]).draw().unwrap_err(), PlotError::Empty);
    }
}
