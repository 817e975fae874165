//! The classic Roofline (rate over intensity) and its hierarchical form: one point per memory level, on one height.

use crate::roofline::{FLAG, GUIDE_TEXT, extent, si_ticks, style};
use crate::{Chart, PlotError};
use kuva::plot::scatter::MarkerShape;
use kuva::plot::{LegendEntry, LegendPosition, LegendShape, LinePlot, ScatterPlot};
use kuva::render::color::Color;
use kuva::render::layout::{Layout, TickFormat};
use kuva::render::plots::Plot;
use kuva::render::render::{Primitive, TextAnchor, render_multiple};
use preflop_units::format::short_si;
use std::sync::Arc;

/// One piece of work.
#[derive(Debug, Clone, PartialEq)]
pub struct RatePoint {
    /// FLOP per byte, one for each of the chart's levels; `None` where not known.
    pub intensity: Vec<Option<f64>>,
    /// FLOP per second.
    pub rate: f64,
    /// Radius of the marker in pixels.
    pub radius: f64,
    /// Does it lie above a roof?
    pub flagged: bool,
}

/// Work that is drawn alike.
#[derive(Debug, Clone)]
pub struct RateSeries {
    /// For the legend.
    pub name: String,
    /// Colour: equal numbers look alike.
    pub style: usize,
    /// The work.
    pub points: Vec<RatePoint>,
    /// Join the points in their order.
    pub joined: bool,
}

/// A named rate.
#[derive(Debug, Clone, PartialEq)]
pub struct NamedRate {
    /// What it is.
    pub name: String,
    /// FLOP/s or B/s.
    pub rate: f64,
}

/// Rate over intensity, under roofs.
#[derive(Debug, Clone)]
pub struct RooflineChart {
    /// Above the chart.
    pub title: String,
    /// Below the title.
    pub subtitle: String,
    /// Horizontal roofs, highest first.
    pub roofs: Vec<NamedRate>,
    /// Slanted roofs, one per level of the points.
    pub levels: Vec<NamedRate>,
    /// Further slanted roofs, of other machines.
    pub more_levels: Vec<NamedRate>,
    /// The work.
    pub series: Vec<RateSeries>,
}

const WIDTH: f64 = 600.0;
const HEIGHT: f64 = 460.0;
const LEFT: f64 = 124.0;
const TOP: f64 = 76.0;
const BOTTOM: f64 = 54.0;
/// Room for the names of the roofs.
const NAMES: f64 = 200.0;
/// Room for the legend.
const LEGEND: f64 = 265.0;
/// Rates so far below the lowest roof are left outside and counted.
const REACH: f64 = 1e5;
/// Markers and dashes by level, outermost first.
const LEVEL_MARKERS: [MarkerShape; 3] = [MarkerShape::Circle, MarkerShape::Square, MarkerShape::Triangle];
const DASHES: [&str; 3] = ["8 4", "2 3", "8 4 2 4"];
/// Two labels on neighbouring roofs need this factor between them.
const LABEL_GAP: f64 = 1.5;

impl RooflineChart {
    fn points(&self) -> impl Iterator<Item = &RatePoint> {
        self.series.iter().flat_map(|s| &s.points).filter(|p| p.rate > 0.0)
    }

    /// Draws it.
    pub fn draw(&self) -> Result<Chart, PlotError> {
        let top = self.roofs.iter().map(|r| r.rate).fold(0.0, f64::max);
        if top <= 0.0 || self.levels.is_empty() {
            return Err(PlotError::Empty);
        }
        let ridges = self.levels.iter().map(|l| top / l.rate);
        let intensities = self.points().flat_map(|p| p.intensity.iter().flatten().copied());
        let (x0, x1) = extent(intensities.chain(ridges)).ok_or(PlotError::Empty)?;
        let (x0, x1) = decades(x0 / 1.5, x1 * 3.0);
        let slowest = self.levels.iter().map(|l| l.rate).fold(f64::INFINITY, f64::min);
        let lowest_roof = self.roofs.iter().map(|r| r.rate).fold(f64::INFINITY, f64::min);
        let rates = self.points().map(|p| p.rate.max(lowest_roof / REACH)).chain([
            top,
            lowest_roof,
            slowest * x0 * 10.0,
        ]);
        let (y0, y1) = extent(rates).ok_or(PlotError::Empty)?;
        let (y0, y1) = decades(y0 / 1.5, y1 * 1.5);
        let mut plots = Vec::new();
        let names = self.draw_roofs((x0, x1), y0, top, &mut plots);
        self.draw_work(y0, &mut plots);
        let layout = Layout::auto_from_plots(&plots)
            .with_title(self.title.as_str())
            .with_subtitle(self.subtitle.as_str())
            .with_log_scale()
            .with_x_axis_min(x0)
            .with_x_axis_max(x1)
            .with_y_axis_min(y0)
            .with_y_axis_max(y1)
            .with_x_label("arithmetic intensity (FLOP/B)")
            .with_y_label("rate")
            .with_x_tick_format(TickFormat::Custom(Arc::new(|x| format!("{}", (x * 1e6).round() / 1e6))))
            .with_y_tick_format(si_ticks("FLOP/s"))
            .with_legend_entries(self.legend(y0))
            .with_legend_position(LegendPosition::OutsideRightTop)
            .with_legend_at(LEFT + WIDTH + NAMES, TOP)
            .with_force_margins(LEFT, NAMES + LEGEND)
            .with_force_margins_y(TOP, BOTTOM)
            .with_width(LEFT + WIDTH + NAMES + LEGEND)
            .with_height(TOP + HEIGHT + BOTTOM);
        let mut scene = render_multiple(plots, layout);
        for (name, rate) in names {
            // Right of the frame, the middle of the letters on the line.
            let height = HEIGHT * (1.0 - (rate / y0).log10() / (y1 / y0).log10());
            scene.add(Primitive::Text {
                x: LEFT + WIDTH + 6.0,
                y: TOP + height + 4.0,
                content: name,
                size: 11,
                anchor: TextAnchor::Start,
                rotate: None,
                bold: false,
                color: Some(Color::from(GUIDE_TEXT)),
            });
        }
        Ok(Chart { scene })
    }

    /// Draws the roofs; names and rates of those that have room for a name.
    fn draw_roofs(&self, x: (f64, f64), y0: f64, top: f64, plots: &mut Vec<Plot>) -> Vec<(String, f64)> {
        let mut names = Vec::new();
        let line = |points: [(f64, f64); 2]| {
            LinePlot::new().with_data(points).with_color("#333333").with_stroke_width(1.3)
        };
        let fastest = self.levels.iter().chain(&self.more_levels).map(|l| l.rate).fold(0.0, f64::max);
        let mut labelled = f64::INFINITY;
        for roof in self.roofs.iter().filter(|r| r.rate > y0) {
            plots.push(Plot::Line(line([((roof.rate / fastest).max(x.0), roof.rate), (x.1, roof.rate)])));
            // A roof too near to the one above it goes without words; the legend of numbers is the table.
            if labelled / roof.rate >= LABEL_GAP {
                labelled = roof.rate;
                let text = format!("{} {}", roof.name, short_si(roof.rate, "FLOP/s"));
                names.push((text, roof.rate));
            }
        }
        for (i, level) in self.levels.iter().chain(&self.more_levels).enumerate() {
            let from = x.0.max(y0 / level.rate);
            let to = top / level.rate;
            if from < to {
                let slope = line([(from, from * level.rate), (to, top)]);
                plots.push(Plot::Line(match i % 3 {
                    0 => slope.with_dashed(),
                    1 => slope.with_dotted(),
                    _ => slope.with_dashdot(),
                }));
            }
        }
        names
    }

    fn draw_work(&self, lowest: f64, plots: &mut Vec<Plot>) {
        for series in &self.series {
            let (color, _) = style(series.style);
            let points: Vec<&RatePoint> = series.points.iter().filter(|p| p.rate > lowest).collect();
            if self.levels.len() > 1 {
                for p in &points {
                    if let Some((a, b)) = extent(p.intensity.iter().flatten().copied()) {
                        plots.push(Plot::Line(
                            LinePlot::new()
                                .with_data([(a, p.rate), (b, p.rate)])
                                .with_color(color)
                                .with_stroke_width(0.7),
                        ));
                    }
                }
            }
            for (level, marker) in LEVEL_MARKERS.iter().enumerate().take(self.levels.len()).rev() {
                let here = |p: &&RatePoint| Some((p.intensity.get(level).copied().flatten()?, p.rate));
                let known: Vec<(&RatePoint, (f64, f64))> =
                    points.iter().filter_map(|p| Some((*p, here(p)?))).collect();
                if series.joined && level == 0 {
                    plots.push(Plot::Line(
                        LinePlot::new()
                            .with_data(known.iter().map(|k| k.1))
                            .with_color(color)
                            .with_stroke_width(1.8),
                    ));
                }
                plots.push(Plot::Scatter(
                    ScatterPlot::new()
                        .with_data(known.iter().map(|k| k.1))
                        .with_color(color)
                        .with_marker(if self.levels.len() > 1 { *marker } else { style(series.style).1 })
                        .with_sizes(known.iter().map(|k| k.0.radius))
                        .with_marker_opacity(0.75),
                ));
                let flagged: Vec<(f64, f64)> = known.iter().filter(|k| k.0.flagged).map(|k| k.1).collect();
                if level == 0 && !flagged.is_empty() {
                    plots.push(Plot::Scatter(
                        ScatterPlot::new()
                            .with_data(flagged)
                            .with_color(FLAG)
                            .with_marker(MarkerShape::Cross)
                            .with_size(4.5)
                            .with_marker_stroke_width(1.4),
                    ));
                }
            }
        }
    }

    fn legend(&self, lowest: f64) -> Vec<LegendEntry> {
        let several = self.levels.len() > 1;
        let entry = |label: &str, color: &str, shape| LegendEntry {
            label: label.to_string(),
            color: color.to_string(),
            shape,
            dasharray: None,
        };
        let mut entries = Vec::new();
        for series in self.series.iter().filter(|s| s.points.iter().any(|p| p.rate > 0.0)) {
            let (color, marker) = style(series.style);
            let shape = if several { LegendShape::Rect } else { LegendShape::Marker(marker) };
            entries.push(entry(&series.name, color, shape));
        }
        if several {
            for (level, marker) in self.levels.iter().zip(LEVEL_MARKERS) {
                entries.push(entry(&format!("at {}", level.name), "#333333", LegendShape::Marker(marker)));
            }
        }
        for (i, level) in self.levels.iter().chain(&self.more_levels).enumerate() {
            let label = format!("{} {}", level.name, short_si(level.rate, "B/s"));
            let dash = Some(DASHES[i % DASHES.len()].to_string());
            entries.push(LegendEntry { dasharray: dash, ..entry(&label, "#333333", LegendShape::Line) });
        }
        let outside = self.points().filter(|p| p.rate <= lowest).count();
        if outside > 0 {
            entries.push(entry(&format!("{outside} below the frame"), "#ffffff", LegendShape::Rect));
        }
        if self.points().any(|p| p.flagged) {
            entries.push(entry("above a roof", FLAG, LegendShape::Marker(MarkerShape::Cross)));
        }
        entries
    }
}

fn decades(low: f64, high: f64) -> (f64, f64) {
    (10f64.powf(low.log10().floor()), 10f64.powf(high.log10().ceil()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Format;

    fn chart(levels: usize) -> RooflineChart {
        let rate = |name: &str, rate| NamedRate { name: name.into(), rate };
        let point = RatePoint {
            intensity: vec![Some(350.0), Some(40.0), None],
            rate: 10.8e12,
            radius: 4.0,
            flagged: false,
        };
        RooflineChart {
            title: "T".into(),
            subtitle: "S".into(),
            roofs: vec![rate("fp16 tensor", 106.49e12), rate("fp32", 15.158e12)],
            levels: [rate("DRAM", 828.8e9), rate("L2", 3e12), rate("L1", 14e12)][..levels].to_vec(),
            more_levels: vec![],
            series: vec![RateSeries { name: "conv".into(), style: 1, points: vec![point], joined: false }],
        }
    }

    #[test]
    fn draws_one_level_and_three() {
        let one = chart(1).draw().unwrap();
        assert!(one.svg().contains("DRAM 829 GB/s") && one.svg().contains("fp32 15.2 TFLOP/s"));
        let three = chart(3).draw().unwrap();
        assert!(three.svg().contains("at L2"));
        assert!(three.render(Format::Png).unwrap().starts_with(b"\x89PNG"));
        assert_eq!(chart(0).draw().unwrap_err(), PlotError::Empty);
    }
}
