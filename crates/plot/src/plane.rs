//! Named points in a plane of two costs, with the front of those that nothing beats.

use crate::{Chart, PlotError};
use kuva::plot::{LegendPosition, LinePlot, ScatterPlot};
use kuva::render::layout::Layout;
use kuva::render::plots::Plot;
use kuva::render::render::render_multiple;

/// One choice.
#[derive(Debug, Clone, PartialEq)]
pub struct PlanePoint {
    /// Beside the dot.
    pub name: String,
    /// Lower is better, above zero.
    pub x: f64,
    /// Lower is better, above zero.
    pub y: f64,
    /// Is nothing better in both?
    pub on_front: bool,
}

/// All choices; both axes logarithmic.
#[derive(Debug, Clone, PartialEq)]
pub struct Plane {
    /// Above the chart.
    pub title: String,
    /// Below it.
    pub x_label: String,
    /// Left of it.
    pub y_label: String,
    /// The dots.
    pub points: Vec<PlanePoint>,
}

impl Plane {
    /// Draws it.
    pub fn draw(&self) -> Result<Chart, PlotError> {
        if self.points.is_empty() {
            return Err(PlotError::Empty);
        }
        let mut plots = Vec::new();
        for (on_front, color, size, legend) in
            [(false, "#8c8c8c", 3.5, "beaten"), (true, "#d55e00", 5.0, "front")]
        {
            let mut some: Vec<&PlanePoint> = self.points.iter().filter(|p| p.on_front == on_front).collect();
            if some.is_empty() {
                continue;
            }
            some.sort_by(|a, b| a.x.total_cmp(&b.x));
            let data: Vec<(f64, f64)> = some.iter().map(|p| (p.x, p.y)).collect();
            if on_front {
                let line = LinePlot::new().with_data(data.clone()).with_color(color).with_stroke_width(1.2);
                plots.push(Plot::Line(line));
            }
            let dots = ScatterPlot::new()
                .with_data(data)
                .with_color(color)
                .with_size(size)
                .with_labels(some.iter().map(|p| p.name.as_str()))
                .with_repel_labels()
                .with_legend(legend);
            plots.push(Plot::Scatter(dots));
        }
        let layout = Layout::auto_from_plots(&plots)
            .with_log_scale()
            .with_title(self.title.as_str())
            .with_x_label(self.x_label.as_str())
            .with_y_label(self.y_label.as_str())
            .with_legend_position(LegendPosition::OutsideRightTop)
            .with_width(920.0)
            .with_height(560.0);
        Ok(Chart { scene: render_multiple(plots, layout) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stand_beside_the_dots() {
        let point = |name: &str, x, on_front| PlanePoint { name: name.into(), x, y: 1.0 / x, on_front };
        let mut plane = Plane {
            title: "choice".into(),
            x_label: "hours".into(),
            y_label: "usd".into(),
            points: vec![point("alpha", 1.0, true), point("beta", 20.0, true), point("gamma", 30.0, false)],
        };
        let svg = plane.draw().unwrap().svg();
        assert!(svg.contains("alpha") && svg.contains("gamma") && svg.contains("hours"));
        plane.points.clear();
        assert_eq!(plane.draw().unwrap_err(), PlotError::Empty);
    }
}
