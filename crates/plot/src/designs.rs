//! Design studies: speed-ups with what binds (as DeLTA's Fig. 16b and c), and cost against speed-up.

use crate::{Chart, PlotError};
use kuva::plot::{BarPlot, LegendEntry, LegendPosition, LegendShape, LinePlot, ScatterPlot};
use kuva::render::annotations::ReferenceLine;
use kuva::render::figure::Figure;
use kuva::render::layout::{Layout, TickFormat};
use kuva::render::plots::Plot;
use kuva::render::render::render_multiple;

/// Resources in the order in which they stack, with their colours (Okabe and Ito 2008).
pub const RESOURCES: [(&str, &str); 6] = [
    ("MAC", "#0072b2"),
    ("SMEM", "#cc79a7"),
    ("L1_BW", "#e69f00"),
    ("L2_BW", "#009e73"),
    ("DRAM_BW", "#d55e00"),
    ("DRAM_LAT", "#56b4e9"),
];

/// One design.
#[derive(Debug, Clone)]
pub struct DesignBar {
    /// Below the bar.
    pub name: String,
    /// Times the base.
    pub speedup: f64,
    /// Share of layers that each of [`RESOURCES`] binds, from 0 to 1.
    pub shares: [f64; 6],
}

/// One design in the plane of cost and speed-up.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DesignPoint {
    /// Times the base.
    pub cost: f64,
    /// Times the base.
    pub speedup: f64,
    /// Does no other design beat it in both?
    pub on_front: bool,
}

/// Speed-up bars above, shares of layers per bottleneck below.
pub fn speedups(title: &str, x_label: &str, designs: &[DesignBar]) -> Result<Chart, PlotError> {
    if designs.is_empty() {
        return Err(PlotError::Empty);
    }
    let mut speed = BarPlot::new();
    let mut binding = BarPlot::new();
    for design in designs {
        speed = speed.with_colored_bar(design.name.as_str(), design.speedup, "#4d4d4d");
        let parts = design.shares.iter().zip(RESOURCES).map(|(share, (_, color))| (100.0 * share, color));
        binding = binding.with_group(design.name.as_str(), parts);
    }
    let binding = binding.with_stacked();
    let top = designs.iter().map(|d| d.speedup).fold(1.0, f64::max);
    let panels = vec![vec![Plot::Bar(speed)], vec![Plot::Bar(binding)]];
    // Many designs need slanted names.
    let slant = designs.iter().map(|d| d.name.len()).max().unwrap_or(0) > 6;
    let dress = |layout: Layout| if slant { layout.with_x_tick_rotate(-45.0) } else { layout };
    let layouts = vec![
        dress(Layout::auto_from_plots(&panels[0]))
            .with_title(title)
            .with_y_label("speed-up over base")
            .with_y_axis_min(0.0)
            .with_y_axis_max((top * 1.1).ceil())
            .with_reference_line(ReferenceLine::horizontal(1.0).with_color("#888888")),
        dress(Layout::auto_from_plots(&panels[1]))
            .with_x_label(x_label)
            .with_y_label("layers bound by (%)")
            .with_y_axis_min(0.0)
            .with_y_axis_max(100.0),
    ];
    let legend = RESOURCES
        .iter()
        .map(|(name, color)| LegendEntry {
            label: (*name).to_string(),
            color: (*color).to_string(),
            shape: LegendShape::Rect,
            dasharray: None,
        })
        .collect();
    let width = (320.0 + 44.0 * designs.len() as f64).clamp(680.0, 2400.0);
    let scene = Figure::new(2, 1)
        .with_plots(panels)
        .with_layouts(layouts)
        .with_cell_size(width, 320.0)
        .with_shared_legend_entries(legend)
        .with_shared_legend_right_middle()
        .render();
    Ok(Chart { scene })
}

/// All designs as dots, the front as a line.
pub fn pareto(title: &str, designs: &[DesignPoint]) -> Result<Chart, PlotError> {
    if designs.is_empty() {
        return Err(PlotError::Empty);
    }
    let pick = |front: bool| -> Vec<(f64, f64)> {
        designs.iter().filter(|d| d.on_front == front).map(|d| (d.cost, d.speedup)).collect()
    };
    let mut front = pick(true);
    front.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
    front.dedup();
    let dots = |points: Vec<(f64, f64)>, color: &str, size: f64| {
        ScatterPlot::new().with_data(points).with_color(color).with_size(size)
    };
    let mut plots = Vec::new();
    let beaten = pick(false);
    if !beaten.is_empty() {
        plots.push(Plot::Scatter(dots(beaten, "#b0b0b0", 2.5).with_legend("beaten")));
    }
    plots.push(Plot::Line(
        LinePlot::new().with_data(front.clone()).with_color("#d55e00").with_stroke_width(1.5),
    ));
    plots.push(Plot::Scatter(dots(front, "#d55e00", 4.0).with_legend("Pareto front")));
    let layout = Layout::auto_from_plots(&plots)
        .with_title(title)
        .with_x_label("hardware cost over base")
        .with_y_label("speed-up over base")
        .with_x_tick_format(TickFormat::Auto)
        .with_legend_position(LegendPosition::OutsideRightTop)
        .with_width(720.0)
        .with_height(440.0);
    Ok(Chart { scene: render_multiple(plots, layout) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Format;

    #[test]
    fn draws_a_study() {
        let bars: Vec<DesignBar> = (1..=3)
            .map(|i| DesignBar {
                name: format!("option {i}"),
                speedup: f64::from(i),
                shares: [0.5, 0.0, 0.0, 0.0, 0.5, 0.0],
            })
            .collect();
        let svg = speedups("a study", "design", &bars).unwrap().svg();
        assert!(svg.contains("option 2") && svg.contains("DRAM_BW"));
        assert_eq!(speedups("t", "x", &[]).unwrap_err(), PlotError::Empty);
    }

    #[test]
    fn draws_a_front() {
        let points = [(1.0, 1.0, true), (2.0, 2.0, true), (2.0, 1.5, false)]
            .map(|(cost, speedup, on_front)| DesignPoint { cost, speedup, on_front });
        let chart = pareto("front", &points).unwrap();
        assert!(chart.svg().contains("Pareto front"));
        assert!(chart.render(Format::Png).unwrap().starts_with(b"\x89PNG"));
    }
}
