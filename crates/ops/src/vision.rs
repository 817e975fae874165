//! Operators of detection networks: resizing, region alignment, non-maximum suppression.

use super::Traffic;
use preflop_units::{Bytes, Flops};
use serde::{Deserialize, Serialize};

/// How a resize finds a value between places.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Resize {
    /// The nearest place.
    Nearest,
    /// The four places around, weighted; also stands for bicubic.
    #[default]
    Bilinear,
}

impl Resize {
    /// From the name of PyTorch's operator or mode.
    pub fn of(name: &str) -> Self {
        if name.contains("nearest") { Self::Nearest } else { Self::Bilinear }
    }
}

/// Resizing of `batch` x `channels` maps from h x w to oh x ow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Interpolate {
    /// Images.
    pub batch: u64,
    /// Channels.
    pub channels: u64,
    /// Input height.
    pub h: u64,
    /// Input width.
    pub w: u64,
    /// Output height.
    pub oh: u64,
    /// Output width.
    pub ow: u64,
    /// What is taken between places.
    #[serde(default)]
    pub how: Resize,
}

impl Interpolate {
    /// Maps, of all images.
    pub fn maps(&self) -> f64 {
        self.batch as f64 * self.channels as f64
    }

    /// Bilinear: four multiply-adds an output; nearest: one copy.
    pub fn flops(&self) -> Flops {
        let each = if self.how == Resize::Nearest { 1.0 } else { 8.0 };
        Flops(each * self.maps() * self.oh as f64 * self.ow as f64)
    }

    /// Input read, output written.
    pub fn traffic(&self, e: f64) -> Traffic {
        Traffic::elements(
            self.maps() * self.h as f64 * self.w as f64,
            self.maps() * self.oh as f64 * self.ow as f64,
            e,
        )
    }
}

/// `rois` regions of a feature map sampled to `size` x `size`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RoiAlign {
    /// Regions.
    pub rois: u64,
    /// Channels.
    pub channels: u64,
    /// Output side.
    pub size: u64,
    /// Sampling points per output and direction.
    pub sampling: u64,
}

impl RoiAlign {
    fn outputs(&self) -> f64 {
        self.rois as f64 * self.channels as f64 * (self.size * self.size) as f64
    }

    /// Bilinear samples: eight operations each.
    pub fn flops(&self) -> Flops {
        Flops(8.0 * self.outputs() * (self.sampling * self.sampling) as f64)
    }

    /// Four corners per sample read, outputs written.
    pub fn traffic(&self, e: f64) -> Traffic {
        Traffic::elements(4.0 * self.outputs() * (self.sampling * self.sampling) as f64, self.outputs(), e)
    }
}

/// Non-maximum suppression over `boxes` boxes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Nms {
    /// Boxes.
    pub boxes: u64,
}

impl Nms {
    /// All pairs, about 16 operations each.
    pub fn flops(&self) -> Flops {
        Flops(8.0 * self.boxes as f64 * self.boxes as f64)
    }

    /// Boxes and scores read, a pair bit mask written and read back.
    pub fn traffic(&self) -> Traffic {
        let n = self.boxes as f64;
        Traffic { read: Bytes(20.0 * n + n * n / 8.0), written: Bytes(n * n / 8.0 + 8.0 * n) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubling_a_map() {
        let i = Interpolate { batch: 1, channels: 2, h: 4, w: 4, oh: 8, ow: 8, how: Resize::Nearest };
        // 2*16 read, 2*64 written
        assert_eq!(i.traffic(4.0).total().0, 640.0);
    }
}
