//! The time plane: work as bytes and FLOPs, its time on the same diagonal, one joined to the other.

use crate::roofline::{FLAG, GUIDE, GUIDE_TEXT, Mark, Series, extent, si_ticks, style};
use crate::{Chart, PlotError};
use kuva::plot::scatter::MarkerShape;
use kuva::plot::{LegendEntry, LegendPosition, LegendShape, LinePlot, ScatterPlot};
use kuva::render::annotations::TextAnnotation;
use kuva::render::layout::Layout;
use kuva::render::plots::Plot;
use kuva::render::render::render_multiple;
use preflop_units::format::short_si;

/// A launch box: everything inside takes less than launching it.
#[derive(Debug, Clone, PartialEq)]
pub struct LaunchBox {
    /// Beside its edge.
    pub label: String,
    /// `N t0` in seconds.
    pub time: f64,
}

/// Work without FLOPs.
#[derive(Debug, Clone, Default)]
pub struct Rug {
    /// Times in seconds.
    pub times: Vec<f64>,
    /// What it is and its share.
    pub label: String,
}

/// The time plane of one roof and one memory level.
#[derive(Debug, Clone)]
pub struct PlaneChart {
    /// Above the chart.
    pub title: String,
    /// Below the title.
    pub subtitle: String,
    /// `P` in FLOP/s.
    pub peak: f64,
    /// `W` in B/s.
    pub bandwidth: f64,
    /// What `P` is, such as `bf16 tensor`.
    pub roof: String,
    /// What `W` is, such as `DRAM`.
    pub level: String,
    /// The work.
    pub series: Vec<Series>,
    /// Launch boxes.
    pub boxes: Vec<LaunchBox>,
    /// Work without FLOPs.
    pub rug: Option<Rug>,
}

/// Longer side of the plot area in logical pixels.
const SIDE: f64 = 560.0;
const LEFT: f64 = 126.0;
const TOP: f64 = 118.0;
const BOTTOM: f64 = 54.0;
/// Room for the right axis.
const AXIS: f64 = 104.0;
/// Room for the legend.
const LEGEND: f64 = 230.0;
/// The plot area is at most so many times as wide as high, and the other way round.
const ASPECT: f64 = 1.3;

/// Share of the pieces of work that may lie outside, below the frame, with their segments cut.
const OUTSIDE: f64 = 0.03;

/// The frame, in seconds: x is byte time, y is FLOP time; a decade is as long on x as on y.
#[derive(Debug, Clone, Copy)]
struct Frame {
    x: (f64, f64),
    y: (f64, f64),
    /// Pixels of a decade.
    decade: f64,
}

impl Frame {
    /// The factor on an axis that is so many pixels.
    fn factor(&self, pixels: f64) -> f64 {
        10f64.powf(pixels / self.decade)
    }

    fn size(&self) -> (f64, f64) {
        let length = |(low, high): (f64, f64)| (high / low).log10() * self.decade;
        (length(self.x), length(self.y))
    }
}

impl PlaneChart {
    fn marks(&self) -> impl Iterator<Item = &Mark> {
        self.series.iter().flat_map(|s| &s.marks).filter(|m| m.bytes > 0.0 && m.flops > 0.0 && m.time > 0.0)
    }

    fn balance(&self) -> f64 {
        self.peak / self.bandwidth
    }

    /// `AI > MB`: FLOP time = t, byte time = t MB/AI; else byte time = t, FLOP time = t AI/MB.
    fn time_point(&self, mark: &Mark) -> (f64, f64) {
        let relative = mark.flops / mark.bytes / self.balance();
        let (byte_time, flop_time) = if relative > 1.0 {
            (mark.time / relative, mark.time)
        } else {
            (mark.time, mark.time * relative)
        };
        (byte_time * self.bandwidth, flop_time * self.peak)
    }

    fn frame(&self) -> Option<Frame> {
        let boxes = || self.boxes.iter().map(|b| b.time);
        let rug = self.rug.iter().flat_map(|r| r.times.iter().copied());
        let times = |m: &Mark| {
            let (bytes, flops) = self.time_point(m);
            (bytes / self.bandwidth, flops / self.peak)
        };
        let x = extent(self.marks().map(|m| times(m).0).chain(boxes()).chain(rug))?;
        let y = extent(self.marks().map(|m| times(m).1).chain(boxes())).unwrap_or(x);
        // A few tiny pieces of work would press all else into a corner: their ends are left outside.
        let lowest = |mut work: Vec<f64>, time: (f64, f64)| {
            work.sort_by(f64::total_cmp);
            let kept = work.get((OUTSIDE * work.len() as f64) as usize..).unwrap_or_default();
            extent(kept.iter().copied().chain([time.0, time.1])).unwrap_or(time)
        };
        let x = lowest(self.marks().map(|m| m.bytes / self.bandwidth).collect(), x);
        let y = lowest(self.marks().map(|m| m.flops / self.peak).collect(), y);
        // A little air, so that no point sits on the frame.
        let decades = |(low, high): (f64, f64)| ((low / 1.4).log10().floor(), (high * 1.4).log10().ceil());
        let (x, y) = (decades(x), decades(y));
        let (nx, ny) = (x.1 - x.0, y.1 - y.0);
        let grown = |(low, high): (f64, f64), n: f64| {
            let more = (n - (high - low)).ceil().max(0.0);
            (low - (more / 2.0).floor(), high + (more / 2.0).ceil())
        };
        let (x, y) = (grown(x, ny / ASPECT), grown(y, nx / ASPECT));
        let power = |(a, b): (f64, f64)| (10f64.powf(a), 10f64.powf(b));
        let decade = SIDE / (x.1 - x.0).max(y.1 - y.0);
        Some(Frame { x: power(x), y: power(y), decade })
    }

    /// Draws it.
    pub fn draw(&self) -> Result<Chart, PlotError> {
        let frame = self.frame().ok_or(PlotError::Empty)?;
        let (w, p) = (self.bandwidth, self.peak);
        let (x0, x1) = (frame.x.0 * w, frame.x.1 * w);
        let (y0, y1) = (frame.y.0 * p, frame.y.1 * p);
        let (width, height) = frame.size();
        let mut plots = Vec::new();
        let mut notes = Vec::new();
        self.guides(&frame, &mut plots, &mut notes);
        self.boxes(&frame, &mut plots, &mut notes);
        self.work(&frame, &mut plots, &mut notes);
        if let Some(rug) = &self.rug {
            let ticks = rug.times.iter().filter(|t| **t > 0.0).map(|t| (t * w, y0 * 1.35));
            plots.push(Plot::Scatter(
                ScatterPlot::new()
                    .with_data(ticks)
                    .with_color("#555555")
                    .with_size(3.5)
                    .with_marker(MarkerShape::Plus),
            ));
        }
        let mut layout = Layout::auto_from_plots(&plots)
            .with_title(self.title.as_str())
            .with_subtitle(self.subtitle.as_str())
            .with_log_scale()
            .with_show_grid(false)
            .with_x_axis_min(x0)
            .with_x_axis_max(x1)
            .with_y_axis_min(y0)
            .with_y_axis_max(y1)
            // Whole decades already; nudged inwards, since the renderer rounds outwards.
            .with_x2_range(frame.x.0 * 1e6 * 1.000_001, frame.x.1 * 1e6 * 0.999_999)
            .with_y2_range(frame.y.0 * 1e6, frame.y.1 * 1e6)
            .with_y2_axis_min(frame.y.0 * 1e6)
            .with_y2_axis_max(frame.y.1 * 1e6)
            .with_log_x2()
            .with_log_y2()
            .with_x_label(format!("{} bytes", self.level))
            .with_y_label("FLOPs")
            .with_x2_label(format!("byte time at {}", short_si(w, "B/s")))
            .with_y2_label(format!("FLOP time at {} ({})", short_si(p, "FLOP/s"), self.roof))
            .with_x_tick_format(si_ticks("B"))
            .with_y_tick_format(si_ticks("FLOP"))
            .with_x2_tick_format(micro_ticks())
            .with_y2_tick_format(micro_ticks())
            .with_legend_entries(self.legend())
            .with_legend_position(LegendPosition::OutsideRightTop)
            .with_legend_at(LEFT + width + AXIS, TOP)
            .with_force_margins(LEFT, AXIS + LEGEND)
            .with_force_margins_y(TOP, BOTTOM)
            .with_width(LEFT + width + AXIS + LEGEND)
            .with_height(TOP + height + BOTTOM);
        for note in notes {
            layout = layout.with_annotation(note);
        }
        Ok(Chart { scene: render_multiple(plots, layout) })
    }

    /// The balance diagonal, iso-AI diagonals and iso-time curves.
    fn guides(&self, frame: &Frame, plots: &mut Vec<Plot>, notes: &mut Vec<TextAnnotation>) {
        let (w, p) = (self.bandwidth, self.peak);
        let line = |from: (f64, f64), to: (f64, f64)| {
            LinePlot::new().with_data([from, to]).with_color(GUIDE).with_stroke_width(0.8)
        };
        // Iso-time: every second decade, so that they stay readable.
        let first = frame.x.0.min(frame.y.0).log10().round() as i32;
        let last = frame.x.1.max(frame.y.1).log10().round() as i32;
        for decade in first + 1..last {
            let t = 10f64.powi(decade);
            let (x, y) = (t * w, t * p);
            let (x0, y0) = (frame.x.0 * w, frame.y.0 * p);
            if t < frame.x.1 * 0.99 && t > frame.x.0 * 1.01 {
                let top = y.min(frame.y.1 * p);
                plots.push(Plot::Line(line((x, y0), (x, top)).with_dotted()));
            }
            if t < frame.y.1 * 0.99 && t > frame.y.0 * 1.01 {
                let right = x.min(frame.x.1 * w);
                plots.push(Plot::Line(line((x0, y), (right, y)).with_dotted()));
            }
        }
        // Iso-AI: flop time = relative * byte time.
        let balance = self.balance();
        let (low, high) = extent(self.marks().map(|m| m.flops / m.bytes)).unwrap_or((balance, balance));
        let (low, high) = (low.min(balance).log10().floor() as i32, high.max(balance).log10().ceil() as i32);
        for decade in low..=high {
            let intensity = 10f64.powi(decade);
            let Some((from, to)) = diagonal(frame, intensity / balance) else { continue };
            plots.push(Plot::Line(line((from.0 * w, from.1 * p), (to.0 * w, to.1 * p))));
            // Near the upper end, where no work lies below its time; not where the balance has its own.
            let back = frame.factor(34.0);
            let clear_of_balance = (intensity / balance).log10().abs() * frame.decade > 36.0;
            if to.0 / from.0 > frame.factor(90.0) && clear_of_balance {
                let text = if (-2..=5).contains(&decade) {
                    format!("AI {intensity}")
                } else {
                    format!("AI 1e{decade}")
                };
                notes.push(
                    TextAnnotation::new(text, to.0 / back * w, to.1 / back * p)
                        .with_color(GUIDE_TEXT)
                        .with_font_size(9),
                );
            }
        }
        if let Some((from, to)) = diagonal(frame, 1.0) {
            let thick = LinePlot::new()
                .with_data([(from.0 * w, from.1 * p), (to.0 * w, to.1 * p)])
                .with_color("#333333")
                .with_stroke_width(1.6)
                .with_dashed();
            plots.push(Plot::Line(thick));
        }
    }

    fn boxes(&self, frame: &Frame, plots: &mut Vec<Plot>, notes: &mut Vec<TextAnnotation>) {
        let (w, p) = (self.bandwidth, self.peak);
        for (i, launch) in self.boxes.iter().enumerate() {
            let t = launch.time;
            if t <= frame.x.0 || t <= frame.y.0 {
                continue;
            }
            let corner = [(frame.x.0 * w, t * p), (t * w, t * p), (t * w, frame.y.0 * p)];
            plots.push(Plot::Line(
                LinePlot::new().with_data(corner).with_color("#8c510a").with_stroke_width(1.3).with_dashdot(),
            ));
            // At the left end of its edge, one step further right for each box, so that labels do not meet.
            let half = 3.0 * launch.label.chars().count() as f64 + 8.0;
            let shift = frame.factor(half + 14.0 * i as f64);
            notes.push(
                TextAnnotation::new(launch.label.as_str(), frame.x.0 * shift * w, t * p)
                    .with_color("#8c510a")
                    .with_font_size(10),
            );
        }
    }

    fn work(&self, frame: &Frame, plots: &mut Vec<Plot>, notes: &mut Vec<TextAnnotation>) {
        for series in &self.series {
            let (color, marker) = style(series.style);
            let marks: Vec<&Mark> =
                series.marks.iter().filter(|m| m.bytes > 0.0 && m.flops > 0.0 && m.time > 0.0).collect();
            let inside = |m: &Mark| m.bytes >= frame.x.0 * self.bandwidth && m.flops >= frame.y.0 * self.peak;
            for mark in &marks {
                // Where the work lies outside, its segment ends at the frame.
                let cut = (frame.x.0 * self.bandwidth / mark.bytes)
                    .max(frame.y.0 * self.peak / mark.flops)
                    .max(1.0);
                let ends = [(mark.bytes * cut, mark.flops * cut), self.time_point(mark)];
                if let Some(label) = &mark.label {
                    let (x, y) = ends[1];
                    let beside = frame.factor(10.0 + 3.0 * label.chars().count() as f64);
                    notes.push(
                        TextAnnotation::new(label.as_str(), x * beside, y / frame.factor(9.0))
                            .with_color(color)
                            .with_font_size(10),
                    );
                }
                plots.push(Plot::Line(
                    LinePlot::new().with_data(ends).with_color(color).with_stroke_width(0.9),
                ));
            }
            if series.joined {
                let path = marks.iter().map(|m| self.time_point(m));
                plots.push(Plot::Line(
                    LinePlot::new().with_data(path).with_color(color).with_stroke_width(1.8),
                ));
            }
            let complexity = marks.iter().filter(|m| inside(m)).map(|m| (m.bytes, m.flops));
            plots.push(Plot::Scatter(
                ScatterPlot::new()
                    .with_data(complexity)
                    .with_color(color)
                    .with_size(2.6)
                    .with_marker_opacity(0.0)
                    .with_marker_stroke_width(1.0),
            ));
            let time = marks.iter().map(|m| self.time_point(m));
            plots.push(Plot::Scatter(
                ScatterPlot::new()
                    .with_data(time)
                    .with_color(color)
                    .with_marker(marker)
                    .with_sizes(marks.iter().map(|m| m.radius))
                    .with_marker_opacity(0.8),
            ));
            let flagged: Vec<(f64, f64)> =
                marks.iter().filter(|m| m.flagged).map(|m| self.time_point(m)).collect();
            if !flagged.is_empty() {
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

    fn legend(&self) -> Vec<LegendEntry> {
        let entry = |label: String, color: &str, shape, dash: Option<&str>| LegendEntry {
            label,
            color: color.to_string(),
            shape,
            dasharray: dash.map(str::to_string),
        };
        let mut entries: Vec<LegendEntry> = Vec::new();
        let mut seen = Vec::new();
        for series in self.series.iter().filter(|s| !s.marks.is_empty()) {
            if !seen.contains(&series.name) {
                seen.push(series.name.clone());
                let (color, marker) = style(series.style);
                entries.push(entry(series.name.clone(), color, LegendShape::Marker(marker), None));
            }
        }
        entries.push(entry(
            "filled: its time".into(),
            "#333333",
            LegendShape::Marker(MarkerShape::Circle),
            None,
        ));
        entries.push(entry("hollow: its work".into(), "#333333", LegendShape::Line, None));
        let balance = format!("balance {}", short_si(self.balance(), "FLOP/B"));
        entries.push(entry(balance, "#333333", LegendShape::Line, Some("6 4")));
        if !self.boxes.is_empty() {
            entries.push(entry("launch box".into(), "#8c510a", LegendShape::Line, Some("8 3 2 3")));
        }
        if self.series.iter().flat_map(|s| &s.marks).any(|m| m.flagged) {
            entries.push(entry("above a roof".into(), FLAG, LegendShape::Marker(MarkerShape::Cross), None));
        }
        if let Some(rug) = self.rug.as_ref().filter(|r| !r.times.is_empty()) {
            entries.push(entry(rug.label.clone(), "#555555", LegendShape::Marker(MarkerShape::Plus), None));
        }
        entries
    }
}

/// Where `flop time = relative * byte time` enters and leaves the frame.
fn diagonal(frame: &Frame, relative: f64) -> Option<((f64, f64), (f64, f64))> {
    let start = frame.x.0.max(frame.y.0 / relative);
    let end = frame.x.1.min(frame.y.1 / relative);
    (start < end * 0.999).then_some(((start, start * relative), (end, end * relative)))
}

fn micro_ticks() -> kuva::render::layout::TickFormat {
    kuva::render::layout::TickFormat::Custom(std::sync::Arc::new(|us| short_si(us * 1e-6, "s")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Format;

    fn chart() -> PlaneChart {
        let mark =
            Mark { bytes: 81.95e6, flops: 28.72e9, time: 2652e-6, radius: 4.0, flagged: true, label: None };
        PlaneChart {
            title: "T".into(),
            subtitle: "S".into(),
            peak: 106.49e12,
            bandwidth: 828.8e9,
            roof: "fp16 tensor".into(),
            level: "DRAM".into(),
            series: vec![Series { name: "conv".into(), style: 0, marks: vec![mark], joined: false }],
            boxes: vec![LaunchBox { label: "1 launch".into(), time: 4.2e-6 }],
            rug: Some(Rug { times: vec![1e-5], label: "no FLOPs".into() }),
        }
    }

    #[test]
    fn the_frame_is_near_square_and_holds_everything() {
        let frame = chart().frame().unwrap();
        let (width, height) = frame.size();
        assert!(width / height <= 1.5 && height / width <= 1.5, "{width} x {height}");
        // byte times: 98.9 us of the work, 972 us of the time, 4.2 us of the box
        assert!(frame.x.0 < 4.2e-6 && frame.x.1 > 972e-6);
        assert!(frame.y.0 < 4.2e-6 && frame.y.1 > 2652e-6);
    }

    #[test]
    fn draws_both_formats() {
        let drawn = chart().draw().unwrap();
        let svg = drawn.svg();
        for text in ["conv", "1 launch", "DRAM bytes", "FLOP time at 106 TFLOP/s", "above a roof", "no FLOPs"]
        {
            assert!(svg.contains(text), "{text}");
        }
        assert!(drawn.render(Format::Png).unwrap().starts_with(b"\x89PNG"));
        let empty = PlaneChart { series: vec![], boxes: vec![], rug: None, ..chart() };
        assert_eq!(empty.draw().unwrap_err(), PlotError::Empty);
    }
}
