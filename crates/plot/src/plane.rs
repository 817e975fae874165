//! Named points in a plane of two costs, with the front of those that nothing beats.

use crate::labels::{self, Dot};
use crate::roofline::extent;
use crate::{Chart, PlotError};
use kuva::plot::{LegendPosition, LinePlot, ScatterPlot};
use kuva::render::annotations::TextAnnotation;
use kuva::render::layout::{Layout, TickFormat};
use kuva::render::plots::Plot;
use kuva::render::render::render_multiple;
use std::sync::Arc;

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

/// The plot area and its margins, in pixels.
const AREA: (f64, f64) = (760.0, 470.0);
const LEFT: f64 = 70.0;
const RIGHT: f64 = 110.0;
const TOP: f64 = 50.0;
const BOTTOM: f64 = 60.0;

/// A logarithmic axis of a length in pixels.
#[derive(Debug, Clone, Copy)]
struct Axis {
    low: f64,
    high: f64,
    pixels: f64,
}

impl Axis {
    /// Around the values, with room for names at both ends. Whole decades, since the renderer rounds outwards.
    fn around(values: impl Iterator<Item = f64>, pixels: f64) -> Option<Self> {
        let (low, high) = extent(values)?;
        let (low, high) = ((low / 1.15).log10().floor(), (high * 1.15).log10().ceil());
        Some(Self { low: 10f64.powf(low), high: 10f64.powf(high), pixels })
    }

    fn pixel(&self, value: f64) -> f64 {
        (value / self.low).log10() / (self.high / self.low).log10() * self.pixels
    }

    fn value(&self, pixel: f64) -> f64 {
        self.low * (self.high / self.low).powf(pixel / self.pixels)
    }
}

/// `0.05`, `0.2`, `10`: as people write them.
fn plain(x: f64) -> String {
    let decimals = (-x.abs().log10().floor()).clamp(0.0, 12.0);
    format!("{x:.*}", decimals as usize)
}

impl Plane {
    /// Draws it.
    pub fn draw(&self) -> Result<Chart, PlotError> {
        let x = Axis::around(self.points.iter().map(|p| p.x), AREA.0).ok_or(PlotError::Empty)?;
        let y = Axis::around(self.points.iter().map(|p| p.y), AREA.1).ok_or(PlotError::Empty)?;
        let mut plots = Vec::new();
        let mut named: Vec<(&PlanePoint, f64)> = Vec::new();
        for (on_front, color, size, legend) in
            [(true, "#d55e00", 5.0, "front"), (false, "#8c8c8c", 3.5, "beaten")]
        {
            let mut some: Vec<&PlanePoint> = self.points.iter().filter(|p| p.on_front == on_front).collect();
            if some.is_empty() {
                continue;
            }
            some.sort_by(|a, b| a.x.total_cmp(&b.x));
            named.extend(some.iter().map(|p| (*p, size)));
            let data: Vec<(f64, f64)> = some.iter().map(|p| (p.x, p.y)).collect();
            if on_front {
                let line = LinePlot::new().with_data(data.clone()).with_color(color).with_stroke_width(1.2);
                plots.push(Plot::Line(line));
            }
            let dots =
                ScatterPlot::new().with_data(data).with_color(color).with_size(size).with_legend(legend);
            plots.push(Plot::Scatter(dots));
        }
        let dots: Vec<Dot> = named
            .iter()
            .map(|(p, radius)| Dot {
                x: x.pixel(p.x),
                y: AREA.1 - y.pixel(p.y),
                radius: *radius,
                name: &p.name,
            })
            .collect();
        let path: Vec<(f64, f64)> =
            dots.iter().zip(&named).filter(|(_, (p, _))| p.on_front).map(|(d, _)| (d.x, d.y)).collect();
        let mut notes = Vec::new();
        for (place, dot) in labels::place(&dots, &path, AREA).iter().zip(&dots) {
            let at = |px: f64, py: f64| (x.value(px), y.value(AREA.1 - py));
            if place.leads {
                let ends = [at(dot.x, dot.y), at(place.x, place.y)];
                plots.insert(
                    0,
                    Plot::Line(LinePlot::new().with_data(ends).with_color("#bbbbbb").with_stroke_width(0.7)),
                );
            }
            // The renderer puts the foot of the letters 6 pixels above the place; the middle is wanted there.
            let (text_x, text_y) = at(place.x, place.y + 6.0 + 0.35 * f64::from(labels::FONT));
            notes.push(
                TextAnnotation::new(dot.name, text_x, text_y)
                    .with_color("#222222")
                    .with_font_size(labels::FONT),
            );
        }
        let mut layout = Layout::auto_from_plots(&plots)
            .with_log_scale()
            .with_x_axis_min(x.low)
            .with_x_axis_max(x.high)
            .with_y_axis_min(y.low)
            .with_y_axis_max(y.high)
            .with_tick_format(TickFormat::Custom(Arc::new(plain)))
            .with_title(self.title.as_str())
            .with_x_label(self.x_label.as_str())
            .with_y_label(self.y_label.as_str())
            .with_legend_position(LegendPosition::OutsideRightTop)
            .with_force_margins(LEFT, RIGHT)
            .with_force_margins_y(TOP, BOTTOM)
            .with_width(LEFT + AREA.0 + RIGHT)
            .with_height(TOP + AREA.1 + BOTTOM);
        for note in notes {
            layout = layout.with_annotation(note);
        }
        Ok(Chart { scene: render_multiple(plots, layout) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_plain_numbers() {
        assert_eq!([0.05, 0.1, 1.0, 20.0].map(plain), ["0.05", "0.1", "1", "20"]);
    }

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
