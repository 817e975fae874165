//! Distributions side by side: boxes with all their values.

use crate::{Chart, PlotError};
use kuva::plot::{BoxPlot, LinePlot};
use kuva::render::layout::Layout;
use kuva::render::plots::Plot;
use kuva::render::render::render_multiple;

/// Colours in turn (Okabe and Ito 2008).
const COLORS: [&str; 6] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"];

/// Boxes of named groups of ratios, with a line where both are equal.
pub fn distribution(title: &str, y_label: &str, groups: &[(String, Vec<f64>)]) -> Result<Chart, PlotError> {
    let groups: Vec<_> = groups.iter().filter(|(_, values)| !values.is_empty()).collect();
    let most = groups.iter().flat_map(|(_, v)| v).copied().fold(1.0, f64::max);
    if groups.is_empty() || !most.is_finite() {
        return Err(PlotError::Empty);
    }
    let mut boxes = BoxPlot::new()
        .with_group_colors((0..groups.len()).map(|i| COLORS[i % COLORS.len()]))
        .with_width(0.6)
        .with_strip(0.18)
        .with_overlay_color("#222222")
        .with_overlay_size(2.0);
    for (name, values) in &groups {
        boxes = boxes.with_group(name.as_str(), values.iter().copied());
    }
    let equal = LinePlot::new()
        .with_data(vec![(0.5, 1.0), (groups.len() as f64 + 0.5, 1.0)])
        .with_color("#666666")
        .with_stroke_width(1.0);
    let plots = vec![Plot::Line(equal), Plot::Box(boxes)];
    let names: Vec<String> = groups.iter().map(|(name, _)| name.clone()).collect();
    let layout = Layout::auto_from_plots(&plots)
        .with_title(title)
        .with_y_label(y_label)
        .with_x_categories(names)
        .with_y_axis_min(0.0)
        .with_y_axis_max(most * 1.05)
        .with_width(760.0)
        .with_height(430.0);
    Ok(Chart { scene: render_multiple(plots, layout) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_boxes_and_refuses_nothing() {
        let groups = [("first".to_string(), vec![0.9, 1.0, 1.2]), ("second".to_string(), vec![0.5, 2.0])];
        let svg = distribution("T", "ratio", &groups).unwrap().svg();
        assert!(svg.contains("first") && svg.contains("second"));
        assert_eq!(distribution("T", "y", &[]).unwrap_err(), PlotError::Empty);
        assert_eq!(distribution("T", "y", &[("none".into(), vec![])]).unwrap_err(), PlotError::Empty);
    }
}
