//! Static charts, as SVG text or PNG bytes. Takes plain numbers and names, knows nothing of the model.
//!
//! Architecture invariant: this crate writes no files; callers decide where a chart goes.

mod bars;
mod designs;
mod distribution;
mod labels;
mod lines;
mod parity;
mod plane;
mod roofline;
mod roofline_classic;
mod roofline_plane;

pub use bars::Bars;
pub use designs::{DesignBar, DesignPoint, RESOURCES, pareto, speedups};
pub use distribution::distribution;
pub use lines::{Line, LineChart};
pub use parity::parity;
pub use plane::{Plane, PlanePoint};
pub use roofline::{Mark, Series};
pub use roofline_classic::{NamedRate, RatePoint, RateSeries, RooflineChart};
pub use roofline_plane::{LaunchBox, PlaneChart, Rug};

use kuva::backend::raster::RasterBackend;
use kuva::backend::svg::SvgBackend;
use kuva::render::render::Scene;
use std::path::Path;

/// What can go wrong with a chart.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlotError {
    /// A name that ends neither in .svg nor in .png.
    #[error("cannot tell the format of `{path}`; name it .svg or .png")]
    Format {
        /// As given.
        path: String,
    },
    /// The renderer gave up.
    #[error("cannot draw the chart: {detail}")]
    Render {
        /// What it said.
        detail: String,
    },
    /// Nothing to draw.
    #[error("there is nothing to draw")]
    Empty,
}

/// File formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Text, scales without loss.
    Svg,
    /// Pixels, twice the logical size.
    Png,
}

impl Format {
    /// By the ending of a file name.
    pub fn of_path(path: &str) -> Result<Self, PlotError> {
        let ending = Path::new(path).extension().map(|e| e.to_string_lossy().to_ascii_lowercase());
        match ending.as_deref() {
            Some("svg") => Ok(Self::Svg),
            Some("png") => Ok(Self::Png),
            _ => Err(PlotError::Format { path: path.to_string() }),
        }
    }
}

/// Pixels per logical unit of a PNG: sharp on dense screens.
const PNG_SCALE: f32 = 2.0;

/// A drawn chart.
pub struct Chart {
    scene: Scene,
}

impl std::fmt::Debug for Chart {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Chart").finish_non_exhaustive()
    }
}

impl Chart {
    /// The bytes of a file.
    pub fn render(&self, format: Format) -> Result<Vec<u8>, PlotError> {
        match format {
            Format::Svg => Ok(self.svg().into_bytes()),
            Format::Png => RasterBackend::new()
                .with_scale(PNG_SCALE)
                .render_scene(&self.scene)
                .map_err(|detail| PlotError::Render { detail }),
        }
    }

    /// As SVG text.
    pub fn svg(&self) -> String {
        SvgBackend.render_scene(&self.scene)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_by_ending() {
        assert_eq!(Format::of_path("a/b.SVG"), Ok(Format::Svg));
        assert_eq!(Format::of_path("b.png"), Ok(Format::Png));
        assert!(Format::of_path("b.pdf").unwrap_err().to_string().contains("`b.pdf`"));
        assert!(Format::of_path("png").is_err());
    }
}
