//! Predicted against measured: one dot a row, on the diagonal when they agree.

use crate::{Chart, PlotError};
use kuva::plot::{LegendPosition, LinePlot, ScatterPlot};
use kuva::render::layout::Layout;
use kuva::render::plots::Plot;
use kuva::render::render::render_multiple;

/// Colours in turn (Okabe and Ito 2008).
const COLORS: [&str; 10] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#4d4d4d", "#a6761d", "#5e4fa2",
    "#000000",
];
/// Most dots of one group: more would only hide each other and swell the file.
const MOST_DOTS: usize = 1500;

/// A log-log chart of groups of (measured, predicted) microseconds, with the diagonal and a factor of 1.5 about it.
pub fn parity(title: &str, groups: &[(String, Vec<(f64, f64)>)]) -> Result<Chart, PlotError> {
    let all = || groups.iter().flat_map(|(_, points)| points.iter().flat_map(|(a, b)| [*a, *b]));
    let low = all().fold(f64::INFINITY, f64::min);
    let high = all().fold(0.0, f64::max);
    if !(low > 0.0 && low <= high && high.is_finite()) {
        return Err(PlotError::Empty);
    }
    let (low, high) = (low * 0.7, high * 1.4);
    let line = |factor: f64, color: &str, width: f64| {
        Plot::Line(
            LinePlot::new()
                .with_data(vec![(low, low * factor), (high, high * factor)])
                .with_color(color)
                .with_stroke_width(width),
        )
    };
    let mut plots =
        vec![line(1.5, "#bbbbbb", 0.8), line(1.0 / 1.5, "#bbbbbb", 0.8), line(1.0, "#666666", 1.2)];
    for (i, (name, points)) in groups.iter().enumerate() {
        let step = points.len().div_ceil(MOST_DOTS).max(1);
        let picked: Vec<(f64, f64)> = points.iter().copied().step_by(step).collect();
        let dots = ScatterPlot::new().with_data(picked).with_color(COLORS[i % COLORS.len()]).with_size(1.8);
        plots.push(Plot::Scatter(dots.with_legend(name.as_str())));
    }
    let layout = Layout::auto_from_plots(&plots)
        .with_title(title)
        .with_x_label("measured (us)")
        .with_y_label("predicted (us)")
        .with_log_scale()
        .with_x_axis_min(low)
        .with_x_axis_max(high)
        .with_y_axis_min(low)
        .with_y_axis_max(high)
        .with_legend_position(LegendPosition::OutsideRightTop)
        .with_width(820.0)
        .with_height(640.0);
    Ok(Chart { scene: render_multiple(plots, layout) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_groups_and_refuses_nothing() {
        let groups = [("gemm".to_string(), vec![(1.0, 1.1), (100.0, 90.0)])];
        assert!(parity("t", &groups).unwrap().svg().contains("gemm"));
        assert_eq!(parity("t", &[]).unwrap_err(), PlotError::Empty);
    }
}
