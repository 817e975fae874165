//! A convolution or fully connected layer and the matrix product it becomes.

use super::DeltaError;
use preflop_ops::Conv;

/// A layer as DeLTA sees it: a forward convolution. A fully connected layer is a 1x1 convolution on a 1x1 map.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Layer {
    /// B, images.
    pub batch: u64,
    /// C_i, input channels.
    pub ci: u64,
    /// H_i, input height without padding.
    pub h: u64,
    /// W_i, input width without padding.
    pub w: u64,
    /// C_o, output channels.
    pub co: u64,
    /// H_f, filter height.
    pub r: u64,
    /// W_f, filter width.
    pub s: u64,
    /// Strd, height and width.
    pub stride: [u64; 2],
    /// Pad on each side, height and width.
    pub pad: [u64; 2],
    /// Dilation, height and width.
    pub dilation: [u64; 2],
    /// Channel groups.
    pub groups: u64,
    /// Bytes of one element.
    pub element_bytes: f64,
}

/// The matrix product of one channel group, and how many groups there are.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Gemm {
    /// Rows: B·H_o·W_o.
    pub m: f64,
    /// Columns: C_o of the group.
    pub n: f64,
    /// Depth: C_i·H_f·W_f of the group.
    pub k: f64,
    /// Groups.
    pub groups: f64,
}

/// Sizes above this are refused: products of seven sizes still fit a double exactly enough.
const LARGEST: u64 = 1 << 24;

impl Layer {
    /// A square fp32 convolution without groups or dilation.
    pub const fn square(batch: u64, ci: u64, hw: u64, co: u64, filter: u64, stride: u64, pad: u64) -> Self {
        Self {
            batch,
            ci,
            h: hw,
            w: hw,
            co,
            r: filter,
            s: filter,
            stride: [stride; 2],
            pad: [pad; 2],
            dilation: [1; 2],
            groups: 1,
            element_bytes: 4.0,
        }
    }

    /// A fully connected fp32 layer (paper, Sec. IV-B: treated as a 1x1 convolution).
    pub const fn fully_connected(batch: u64, inputs: u64, outputs: u64) -> Self {
        Self::square(batch, inputs, 1, outputs, 1, 1, 0)
    }

    /// From an operator; the forward pass of a plain convolution.
    pub fn from_conv(conv: &Conv, element_bytes: f64) -> Self {
        Self {
            batch: conv.batch,
            ci: conv.ci,
            h: conv.h,
            w: conv.w,
            co: conv.co,
            r: conv.r,
            s: conv.s,
            stride: conv.stride,
            pad: conv.pad,
            dilation: conv.dilation,
            groups: conv.groups,
            element_bytes,
        }
    }

    /// Refuses what no convolution can be.
    pub fn check(&self) -> Result<(), DeltaError> {
        let fail = |problem: String| {
            Err(DeltaError::Layer {
                layer: format!("{}x{}x{}x{}", self.batch, self.ci, self.h, self.w),
                problem,
            })
        };
        let sizes = [
            ("batch", self.batch),
            ("input channels", self.ci),
            ("height", self.h),
            ("width", self.w),
            ("output channels", self.co),
            ("filter height", self.r),
            ("filter width", self.s),
            ("stride", self.stride[0].min(self.stride[1])),
            ("dilation", self.dilation[0].min(self.dilation[1])),
            ("groups", self.groups),
        ];
        for (name, value) in sizes {
            if value == 0 {
                return fail(format!("{name} is 0; it must be at least 1"));
            }
        }
        let largest = sizes.iter().map(|s| s.1).chain(self.pad).chain(self.stride).chain(self.dilation).max();
        if largest > Some(LARGEST) {
            return fail(format!("a size of {} is above {LARGEST}", largest.unwrap_or(0)));
        }
        if !(self.element_bytes > 0.0 && self.element_bytes <= 16.0) {
            return fail(format!(
                "an element of {} bytes; it must be above 0 and at most 16",
                self.element_bytes
            ));
        }
        if !self.ci.is_multiple_of(self.groups) || !self.co.is_multiple_of(self.groups) {
            return fail(format!(
                "{} groups do not divide {} input and {} output channels",
                self.groups, self.ci, self.co
            ));
        }
        let (hp, wp) = (self.h + 2 * self.pad[0], self.w + 2 * self.pad[1]);
        let (rf, sf) = (self.reach(0), self.reach(1));
        if rf > hp || sf > wp {
            return fail(format!("the filter reaches over {rf}x{sf} but the padded map is {hp}x{wp}"));
        }
        Ok(())
    }

    /// Extent of the filter on the map with its dilation: height (0) or width (1).
    pub fn reach(&self, axis: usize) -> u64 {
        let taps = if axis == 0 { self.r } else { self.s };
        self.dilation[axis] * (taps - 1) + 1
    }

    /// W_i + 2·Pad, or the same in height.
    pub fn padded(&self, axis: usize) -> u64 {
        (if axis == 0 { self.h } else { self.w }) + 2 * self.pad[axis]
    }

    /// H_o or W_o; 0 if the filter does not fit.
    pub fn out(&self, axis: usize) -> u64 {
        match self.padded(axis).checked_sub(self.reach(axis)) {
            Some(span) => span / self.stride[axis].max(1) + 1,
            None => 0,
        }
    }

    /// Is every input element met by one filter tap only: a 1x1 convolution or a fully connected layer?
    pub fn is_pointwise(&self) -> bool {
        self.r == 1 && self.s == 1
    }

    /// The matrix product of one group.
    pub fn gemm(&self) -> Gemm {
        Gemm {
            m: self.batch as f64 * self.out(0) as f64 * self.out(1) as f64,
            n: (self.co / self.groups.max(1)) as f64,
            k: (self.ci / self.groups.max(1)) as f64 * self.r as f64 * self.s as f64,
            groups: self.groups as f64,
        }
    }

    /// The layer with another batch.
    #[must_use]
    pub fn with_batch(self, batch: u64) -> Self {
        Self { batch, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alexnet_conv1_matrix() {
        // H_o = (227 - 11) / 4 + 1 = 55; M = 256*55*55 = 774,400; K = 3*11*11 = 363
        let g = Layer::square(256, 3, 227, 96, 11, 4, 0).gemm();
        assert_eq!((g.m, g.n, g.k, g.groups), (774_400.0, 96.0, 363.0, 1.0));
    }

    #[test]
    fn groups_divide_the_matrix() {
        let g = Layer { groups: 2, ..Layer::square(1, 96, 27, 256, 5, 1, 2) }.gemm();
        assert_eq!((g.n, g.k, g.groups), (128.0, 48.0 * 25.0, 2.0));
    }

    #[test]
    fn refuses_impossible_layers() {
        let base = Layer::square(1, 3, 5, 8, 3, 1, 0);
        let message = |l: Layer| l.check().map_err(|e| e.to_string()).err().unwrap_or_default();
        assert!(message(Layer { r: 7, s: 7, ..base }).contains("reaches over 7x7 but the padded map is 5x5"));
        assert!(message(Layer { dilation: [3, 3], ..base }).contains("reaches over 7x7"));
        assert!(message(Layer { batch: 0, ..base }).contains("batch is 0"));
        assert!(message(Layer { groups: 2, ..base }).contains("2 groups do not divide 3"));
        assert!(message(Layer { stride: [0, 1], ..base }).contains("stride is 0"));
        assert!(message(Layer { element_bytes: f64::NAN, ..base }).contains("bytes"));
        assert!(message(Layer { h: u64::MAX, ..base }).contains("above"));
        assert_eq!(message(base), "");
    }
}
