//! 2-D convolution with groups, dilation, rectangular filters and maps, and its two gradients.

use super::{Pass, Traffic};
use preflop_units::Flops;
use preflop_units::dtype::Dtype;
use serde::{Deserialize, Serialize};

/// A convolution. For a transposed one, `ci`, `h`, `w` still describe the layer's input and `co` its output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Conv {
    /// Images.
    pub batch: u64,
    /// Input channels.
    pub ci: u64,
    /// Input height.
    pub h: u64,
    /// Input width.
    pub w: u64,
    /// Output channels.
    pub co: u64,
    /// Filter height.
    pub r: u64,
    /// Filter width.
    pub s: u64,
    /// Stride, height and width.
    pub stride: [u64; 2],
    /// Padding on each side, height and width.
    pub pad: [u64; 2],
    /// Dilation, height and width.
    pub dilation: [u64; 2],
    /// Channel groups.
    pub groups: u64,
    /// Do the tensors lie in memory channels-last (NHWC)?
    pub channels_last: bool,
    /// Is it a transposed convolution?
    pub transposed: bool,
}

impl Conv {
    /// A square convolution without groups or dilation, NCHW.
    pub fn square(batch: u64, ci: u64, hw: u64, co: u64, k: u64, stride: u64, pad: u64) -> Self {
        Self {
            batch,
            ci,
            h: hw,
            w: hw,
            co,
            r: k,
            s: k,
            stride: [stride; 2],
            pad: [pad; 2],
            dilation: [1; 2],
            groups: 1,
            channels_last: false,
            transposed: false,
        }
    }

    /// Output height; 0 if the filter does not fit.
    pub fn oh(&self) -> u64 {
        out_size(self.h, self.pad[0], self.dilation[0], self.r, self.stride[0], self.transposed)
    }

    /// Output width; 0 if the filter does not fit.
    pub fn ow(&self) -> u64 {
        out_size(self.w, self.pad[1], self.dilation[1], self.s, self.stride[1], self.transposed)
    }

    /// Elements of the layer's input.
    pub fn input(&self) -> f64 {
        self.batch as f64 * self.ci as f64 * self.h as f64 * self.w as f64
    }

    /// Elements of the layer's output.
    pub fn output(&self) -> f64 {
        self.batch as f64 * self.co as f64 * self.oh() as f64 * self.ow() as f64
    }

    /// Elements of the filter.
    pub fn weight(&self) -> f64 {
        self.co as f64 * self.ci as f64 / self.groups as f64 * self.r as f64 * self.s as f64
    }

    /// Direct-convolution FLOPs, the same in each of the three passes.
    pub fn flops(&self) -> Flops {
        // Each element of the smaller side of the stride meets every filter tap of its group once.
        let pixels = if self.transposed {
            self.batch as f64 * self.h as f64 * self.w as f64
        } else {
            self.batch as f64 * self.oh() as f64 * self.ow() as f64
        };
        Flops(2.0 * pixels * self.weight())
    }

    /// The two operands read, the result written.
    pub fn traffic(&self, pass: Pass, dtype: Dtype) -> Traffic {
        let (x, w, y) = (self.input(), self.weight(), self.output());
        let e = dtype.size();
        match pass {
            Pass::Fwd => Traffic::elements(x + w, y, e),
            Pass::Dgrad => Traffic::elements(y + w, x, e),
            Pass::Wgrad => Traffic::elements(x + y, w, e),
            Pass::Bwd => Traffic::elements(2.0 * y + x + w, x + w, e),
        }
    }

    /// The plain convolution and pass whose kernel a library runs for this call: the forward of a
    /// transposed convolution is the data gradient of the plain one from its output to its input.
    pub fn plain(&self, pass: Pass) -> (Self, Pass) {
        if !self.transposed {
            return (*self, pass);
        }
        let plain = Self { ci: self.co, h: self.oh(), w: self.ow(), co: self.ci, transposed: false, ..*self };
        let pass = match pass {
            Pass::Fwd => Pass::Dgrad,
            Pass::Dgrad => Pass::Fwd,
            other => other,
        };
        (plain, pass)
    }
}

fn out_size(size: u64, pad: u64, dilation: u64, taps: u64, stride: u64, transposed: bool) -> u64 {
    let reach = dilation.saturating_mul(taps.saturating_sub(1)).saturating_add(1);
    if transposed {
        return (size.saturating_sub(1).saturating_mul(stride).saturating_add(reach)).saturating_sub(2 * pad);
    }
    let padded = size.saturating_add(2 * pad);
    if padded < reach { 0 } else { (padded - reach) / stride.max(1) + 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resnet_stem() {
        let c = Conv::square(1, 3, 224, 64, 7, 2, 3);
        assert_eq!((c.oh(), c.ow()), (112, 112));
        // 2 * 112 * 112 * 64 * 3 * 7 * 7 = 236,027,904
        assert_eq!(c.flops().0, 236_027_904.0);
        // x 3*224*224 = 150,528; w 64*3*49 = 9,408; y 64*112*112 = 802,816
        let t = c.traffic(Pass::Fwd, Dtype::Fp32);
        assert_eq!(t.read.0, 4.0 * (150_528.0 + 9_408.0));
        assert_eq!(t.written.0, 4.0 * 802_816.0);
    }

    #[test]
    fn depthwise_and_dilated() {
        let dw = Conv { groups: 32, ..Conv::square(2, 32, 56, 32, 3, 1, 1) };
        // 2 * 2*56*56 * 32*1*9 = 3,612,672
        assert_eq!(dw.flops().0, 3_612_672.0);
        let dil = Conv { dilation: [2; 2], pad: [2; 2], ..Conv::square(1, 8, 20, 8, 3, 1, 0) };
        // 20 + 4 - (2*2+1) + 1 = 20
        assert_eq!(dil.oh(), 20);
    }

    #[test]
    fn transposed_is_the_data_gradient() {
        let t = Conv { transposed: true, ..Conv::square(1, 100, 1, 512, 4, 1, 0) };
        assert_eq!(t.oh(), 4);
        let (plain, pass) = t.plain(Pass::Fwd);
        assert_eq!((plain.ci, plain.h, plain.co, plain.oh(), pass), (512, 4, 100, 1, Pass::Dgrad));
        assert_eq!(plain.flops(), t.flops());
    }
}
