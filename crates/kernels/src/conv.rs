//! Convolutions: the kernel families a library chooses from, their constants and keys; `conv_form` has their times.
//!
//! A convolution is a product in three disguises (implicit GEMM):
//!
//! | pass | M | N | K |
//! |---|---|---|---|
//! | forward | b oh ow | co/g | r s ci/g |
//! | data gradient | b h w | ci/g | r s co/g / stride^2 |
//! | weight gradient | co/g | r s ci/g | b oh ow |
//!
//! Tensor-core families pad the channels of every filter tap to their K tile; kernels without group support
//! are launched once per group; NCHW tensors are converted to NHWC and back around tensor-core kernels.

use super::alignment;
use super::tile::Constants;
pub use preflop_learned::family::ConvFamily;
use preflop_ops::{Conv, Gemm, Layout, Pass};
use preflop_units::dtype::Dtype;

/// Constants of one family and key: a tiled product and the layout conversion around it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ConvConstants {
    /// The product.
    pub tile: Constants,
    /// Seconds of one conversion kernel.
    pub cv0: f64,
    /// Share of the sustained DRAM bandwidth that conversions reach; of the L2 bandwidth that atomic sums reach.
    pub cvbw: f64,
    /// Seconds that a wave of CTAs spends before and after its sums, where the tile is known.
    pub epilogue: f64,
    /// Share of the groups that wait for each other where a kernel is launched for each: 1 on one stream, an eighth on eight.
    pub waiting: f64,
}

impl ConvConstants {
    /// How many there are.
    pub const COUNT: usize = Constants::COUNT + 4;

    /// Where fits start.
    pub const START: Self = Self {
        tile: Constants { eff: 0.8, t0: 3.0e-6, drain: 50.0, ..Constants::START },
        cv0: 2e-6,
        cvbw: 0.6,
        epilogue: 0.6e-6,
        waiting: 0.15,
    };

    /// As a list.
    pub fn to_array(self) -> [f64; Self::COUNT] {
        let [eff, bw, hot, l2, slope, pw, kl, red0, t0, drain] = self.tile.to_array();
        let Self { cv0, cvbw, epilogue, waiting, .. } = self;
        [eff, bw, hot, l2, slope, pw, kl, red0, t0, cv0, cvbw, epilogue, drain, waiting]
    }

    /// From a list.
    pub fn from_slice(a: &[f64]) -> Option<Self> {
        let [eff, bw, hot, l2, slope, pw, kl, red0, t0, cv0, cvbw, epilogue, drain, waiting] =
            *a.first_chunk()?;
        let tile = Constants { eff, bw, hot, l2, slope, pw, kl, red0, t0, drain };
        Some(Self { tile, cv0, cvbw, epilogue, waiting: waiting.min(1.0) })
    }
}

/// Side of the blocks that layout conversion transposes, as its grids show.
const BLOCK: u64 = 32;
/// How much slower the general conversion kernel is than transposing: ratio of the rates that fit layers with and
/// without it best.
pub const GENERAL: f64 = 12.0;
/// The same of the kernels that pad channels.
const PADDING: f64 = 2.0;

/// A plain convolution in one pass: what the families are asked to do.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Task {
    /// The convolution, never transposed.
    pub conv: Conv,
    /// Forward, data or weight gradient.
    pub pass: Pass,
    /// Number format.
    pub dtype: Dtype,
}

impl Task {
    /// The task of a call. Along the one place of a line's height no stride or dilation means anything; they are written as along its width.
    pub fn new(conv: &Conv, pass: Pass, dtype: Dtype) -> Self {
        let (mut conv, pass) = conv.plain(pass);
        if conv.h == 1 && conv.r == 1 && conv.pad[0] == 0 {
            (conv.stride[0], conv.dilation[0]) = (conv.stride[1], conv.dilation[1]);
        }
        Self { conv, pass, dtype }
    }

    /// Depthwise: one input channel per group.
    pub fn depthwise(&self) -> bool {
        self.conv.groups > 1 && self.conv.groups == self.conv.ci
    }

    /// Grouped, but not depthwise.
    pub fn grouped(&self) -> bool {
        self.conv.groups > 1 && !self.depthwise()
    }

    /// 1x1 filter with stride 1 and no padding: a plain product.
    pub fn pointwise(&self) -> bool {
        let c = &self.conv;
        c.r == 1 && c.s == 1 && c.stride == [1, 1] && c.pad == [0, 0]
    }

    /// Channels that a tensor-core kernel reads at once: 16 bytes of them.
    pub fn vector(&self) -> u64 {
        if self.dtype.is_half() { 8 } else { 4 }
    }

    /// Bytes of input, weight, output.
    pub fn bytes(&self) -> [f64; 3] {
        let e = self.dtype.size();
        [self.conv.input() * e, self.conv.weight() * e, self.conv.output() * e]
    }

    /// M, N, K of one group, K with `tap` channels padded per filter tap.
    pub fn dims(&self, tap: f64) -> (f64, f64, f64) {
        let c = &self.conv;
        let g = c.groups as f64;
        let (ci, co) = (c.ci as f64 / g, c.co as f64 / g);
        let taps = (c.r * c.s) as f64;
        let pad = |x: f64| (x / tap).ceil() * tap;
        let pixels = c.batch as f64 * c.oh() as f64 * c.ow() as f64;
        match self.pass {
            Pass::Dgrad => {
                let stride = (c.stride[0] * c.stride[1]) as f64;
                (c.batch as f64 * (c.h * c.w) as f64, ci, (taps * pad(co) / stride).max(pad(co)))
            }
            Pass::Wgrad => (co, taps * ci, pixels),
            _ => (pixels, co, taps * pad(ci)),
        }
    }

    /// Share of the pixels that a data gradient reaches, and the taps that it sums for each of them. With a stride, pixels meet different
    /// numbers of taps, and kernels before Hopper run through the largest for all; a filter smaller than the stride leaves pixels out.
    pub fn gradient_taps(&self) -> (f64, f64) {
        let c = &self.conv;
        let [sh, sw] = c.stride;
        let share = |taps: u64, stride: u64| (taps as f64 / stride as f64).min(1.0);
        (share(c.r, sh) * share(c.s, sw), (c.r.div_ceil(sh) * c.s.div_ceil(sw)) as f64)
    }

    /// Bytes that layout conversion or channel padding moves, and how many kernels it takes.
    ///
    /// NCHW tensors are transposed in blocks of 32 channels and 32 pixels or taps, so both count in full blocks; filters
    /// of 1x1 stay as they are, and those of odd channels go through a slow general kernel.
    pub fn conversion(&self) -> (f64, f64) {
        let c = &self.conv;
        let v = self.vector();
        let [x, w, y] = self.bytes();
        if !c.channels_last {
            let blocks = |n: u64| n.div_ceil(BLOCK) as f64 * BLOCK as f64;
            let plane = |images: u64, channels: u64, pixels: u64| {
                2.0 * self.dtype.size() * images as f64 * blocks(channels) * blocks(pixels)
            };
            let tensors = plane(c.batch, c.ci, c.h * c.w) + plane(c.batch, c.co, c.oh() * c.ow());
            return if self.general_filter() {
                (tensors + 2.0 * GENERAL * w, 3.0)
            } else if c.r * c.s == 1 {
                (tensors, 2.0)
            } else {
                (tensors + plane(c.co, c.ci / c.groups, c.r * c.s), 3.0)
            };
        }
        let (pad_in, pad_out) = (!(c.ci / c.groups).is_multiple_of(v), !(c.co / c.groups).is_multiple_of(v));
        let mut bytes = 0.0;
        let mut kernels = 0.0;
        for (needed, size) in [(pad_in, x), (pad_in || pad_out, w), (pad_out, y)] {
            if needed {
                bytes += 2.0 * PADDING * size;
                kernels += 1.0;
            }
        }
        (bytes, kernels)
    }

    /// Do the filters go through the general conversion kernel?
    pub fn general_filter(&self) -> bool {
        let v = self.vector();
        !self.conv.channels_last && !self.conv.co.is_multiple_of(v)
    }

    /// The plain product that a 1x1 layer with stride 1 is, as a library would call it.
    ///
    /// NHWC: pixels are rows, as in a linear layer and its gradients. NCHW: one product per image with pixels as
    /// columns; the weight gradient sums over images and pixels.
    pub fn as_gemm(&self) -> Gemm {
        let c = &self.conv;
        let (pixels, images) = (c.h * c.w, c.batch);
        match (c.channels_last, self.pass) {
            (true, Pass::Dgrad) => Gemm::mm(images * pixels, c.ci, c.co, Layout::Nn),
            (true, Pass::Wgrad) => Gemm::mm(c.co, c.ci, images * pixels, Layout::Tn),
            (true, _) => Gemm::linear(images * pixels, c.co, c.ci, false),
            (false, Pass::Dgrad) => Gemm { layout: Layout::Tn, ..Gemm::bmm(images, c.ci, pixels, c.co) },
            (false, Pass::Wgrad) => Gemm::mm(c.co, c.ci, images * pixels, Layout::Linear),
            (false, _) => Gemm::bmm(images, c.co, pixels, c.ci),
        }
    }

    /// Least alignment of the leading dimensions that a plain product of a 1x1 layer would see.
    pub fn gemm_alignment(&self) -> u64 {
        let c = &self.conv;
        if c.channels_last {
            alignment(c.ci, 16).min(alignment(c.co, 16))
        } else {
            alignment(c.h * c.w, 16).min(if self.pass == Pass::Wgrad { 16 } else { alignment(c.ci, 16) })
        }
    }

    /// Alignment class of [`Task::gemm_alignment`], as for plain products.
    pub fn gemm_class(&self) -> u8 {
        match (self.dtype, self.gemm_alignment()) {
            (Dtype::Fp32, _) | (Dtype::Tf32, 4..) | (_, 8..) => 2,
            (Dtype::Tf32, _) | (_, 1) => 0,
            _ => 1,
        }
    }
}

/// A guess is sure when it is likelier than this.
pub const SURE: f32 = 0.7;

/// Class of the interval: the likeliest family, grouped or not, sure or not.
pub fn interval_class(family: usize, grouped: bool, sure: bool) -> String {
    let family = ConvFamily::ALL.get(family).map_or("", |f| f.name());
    let (kind, certain) = (if grouped { "grouped" } else { "plain" }, if sure { "sure" } else { "unsure" });
    format!("conv/{family}/{kind}/{certain}")
}

/// Number formats that share constants and trees.
pub fn dtype_group(dtype: Dtype) -> &'static str {
    match dtype {
        Dtype::Fp32 | Dtype::Fp64 => "fp32",
        Dtype::Tf32 => "tf32",
        _ => "half",
    }
}

/// Which constants serve a task by a family: its pass, number formats and kind of layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConvKey {
    family: ConvFamily,
    pass: u8,
    group: u8,
    /// 0 plain, 1 grouped in any layout, 2 1x1, 3.. alignment class and layout of plain products, 9.. layout of grouped ones;
    /// depthwise: layout, stride and filter size.
    kind: u8,
}

const PASSES: [&str; 3] = ["fwd", "dgrad", "wgrad"];
const GROUPS: [&str; 3] = ["half", "tf32", "fp32"];
/// Kinds of one family, pass and group.
const KINDS: usize = 64;
/// Largest depthwise filter that is told apart.
const LARGEST_FILTER: u64 = 15;

/// The kinds of a family.
fn kinds(family: ConvFamily) -> std::ops::Range<u8> {
    if family.streams() { 0..KINDS as u8 } else { 0..11 }
}

/// Kinds of a family bound by memory whose text begins with these parts: layout, filter size, stride.
fn streaming_kinds(parts: &[&str]) -> Vec<u8> {
    let number = |at: usize| parts.get(at).map(|p| p.parse::<u8>().ok());
    let layout = parts.first().map(|p| ["nchw", "nhwc"].iter().position(|name| name == p));
    let (size, stride) = (number(1), number(2));
    let is = |part: Option<Option<u8>>, wanted: u8| part.is_none_or(|p| p == Some(wanted));
    let meant = |kind: &u8| {
        let odd = usize::from(kind % 2);
        layout.is_none_or(|l| l == Some(odd)) && is(size, kind / 4) && is(stride, 1 + (kind / 2) % 2)
    };
    if parts.len() > 3 { Vec::new() } else { (0..KINDS as u8).filter(meant).collect() }
}

/// Do the parts of a kind's text begin with these, in a family that is not bound by memory?
fn of_kind(kind: u8, parts: &[&str]) -> bool {
    let is = |at: usize, wanted: &str| parts.get(at).is_none_or(|p| *p == wanted);
    let number = |at: usize, wanted: u8| parts.get(at).is_none_or(|p| p.parse() == Ok(wanted));
    let layout = |at: usize, odd: u8| is(at, if odd == 1 { "nhwc" } else { "nchw" });
    match kind {
        0 => parts.is_empty(),
        1 => parts.len() <= 1 && is(0, "grouped"),
        2 => parts.len() <= 1 && is(0, "1x1"),
        9.. => parts.len() <= 2 && is(0, "grouped") && layout(1, kind - 9),
        k => parts.len() <= 2 && number(0, (k - 3) / 2) && layout(1, (k - 3) % 2),
    }
}

/// Which of PyTorch's depthwise kernels runs: one for a square filter of this size; [`ANY_FILTER`]; or [`ANY_STRIDE`], whose data gradients divide by the stride
/// at every tap. A line's stride along its height is one, so that it is not the same on both sides.
fn torch_filter(task: &Task) -> u8 {
    let c = &task.conv;
    let line = c.h == 1 && c.r == 1 && c.s > 1;
    let divides = c.stride[0] > 2 || c.stride[0] != c.stride[1] || (line && c.stride[1] > 1);
    match (c.r, c.s) {
        _ if task.pass == Pass::Dgrad && divides => ANY_STRIDE,
        (1, 1) => 1,
        (3, 3) => 3,
        (5, 5) => 5,
        _ => ANY_FILTER,
    }
}

/// In the place of a filter's size.
const ANY_FILTER: u8 = 0;
const ANY_STRIDE: u8 = 2;

impl ConvKey {
    /// The key of a task.
    pub fn new(task: &Task, family: ConvFamily) -> Self {
        let c = &task.conv;
        let pass = match task.pass {
            Pass::Dgrad => 1,
            Pass::Wgrad => 2,
            _ => 0,
        };
        let group = match dtype_group(task.dtype) {
            "half" => 0,
            "tf32" => 1,
            _ => 2,
        };
        let layout = u8::from(c.channels_last);
        let kind = match family {
            ConvFamily::TorchDepthwise if task.pass == Pass::Wgrad => layout,
            ConvFamily::TorchDepthwise => layout + 2 * u8::from(c.stride[0] > 1) + 4 * torch_filter(task),
            _ if family.streams() => {
                layout + 2 * u8::from(c.stride[0] > 1) + 4 * c.r.max(c.s).min(LARGEST_FILTER) as u8
            }
            ConvFamily::Gemm => 3 + 2 * task.gemm_class() + layout,
            _ if c.groups > 1 => 9 + layout,
            ConvFamily::Ffma | ConvFamily::Sgemm if c.r * c.s == 1 => 2,
            _ => 0,
        };
        Self { family, pass, group, kind }
    }

    /// Is it of a family bound by memory?
    pub fn streams(self) -> bool {
        self.family.streams()
    }

    /// A number below [`ConvKey::COUNT`].
    pub fn index(self) -> usize {
        ((self.family as usize * 3 + usize::from(self.pass)) * 3 + usize::from(self.group)) * KINDS
            + usize::from(self.kind)
    }

    /// How many numbers there are.
    pub const COUNT: usize = ConvFamily::ALL.len() * 9 * KINDS;

    /// Every key.
    pub fn all() -> impl Iterator<Item = Self> {
        ConvFamily::ALL.into_iter().flat_map(|family| {
            let kinds = kinds(family);
            (0..3u8).flat_map(move |pass| {
                let kinds = kinds.clone();
                (0..3u8)
                    .flat_map(move |group| kinds.clone().map(move |kind| Self { family, pass, group, kind }))
            })
        })
    }

    /// The keys that a text stands for: the one that has this text, or all whose text begins with it and a slash.
    pub fn under(text: &str) -> Vec<Self> {
        let mut out = Vec::new();
        let mut parts = text.split('/');
        let known = parts.next() == Some("conv");
        let family = parts.next().and_then(|name| ConvFamily::ALL.into_iter().find(|f| f.name() == name));
        let Some(family) = family.filter(|_| known) else { return out };
        let (pass, group) = (parts.next(), parts.next());
        let kind: Vec<&str> = parts.collect();
        let kinds: Vec<u8> = if family.streams() {
            streaming_kinds(&kind)
        } else {
            kinds(family).filter(|k| of_kind(*k, &kind)).collect()
        };
        // Without a part every one is meant.
        let meant = |part: Option<&str>, name: &str| part.is_none_or(|p| p == name);
        for (p, _) in (0..).zip(PASSES).filter(|(_, name)| meant(pass, name)) {
            for (g, _) in (0..).zip(GROUPS).filter(|(_, name)| meant(group, name)) {
                out.extend(kinds.iter().map(|kind| Self { family, pass: p, group: g, kind: *kind }));
            }
        }
        out
    }

    /// The key as it stands in the file; the parts before each slash are coarser keys.
    pub fn text(self) -> String {
        let (pass, group) = (PASSES[usize::from(self.pass)], GROUPS[usize::from(self.group)]);
        let family = self.family.name();
        let layout = |odd: u8| if odd == 1 { "nhwc" } else { "nchw" };
        if self.family.streams() {
            let (size, stride) = (self.kind / 4, 1 + (self.kind / 2) % 2);
            return format!("conv/{family}/{pass}/{group}/{}/{size}/{stride}", layout(self.kind % 2));
        }
        let kind = match self.kind {
            0 => String::new(),
            1 => "/grouped".to_string(),
            2 => "/1x1".to_string(),
            9.. => format!("/grouped/{}", layout(self.kind - 9)),
            k => format!("/{}/{}", (k - 3) / 2, layout((k - 3) % 2)),
        };
        format!("conv/{family}/{pass}/{group}{kind}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_passes_do_the_same_work() {
        let conv = Conv::square(8, 64, 28, 128, 3, 1, 1);
        for pass in [Pass::Fwd, Pass::Dgrad, Pass::Wgrad] {
            let (m, n, k) = Task::new(&conv, pass, Dtype::Fp32).dims(1.0);
            assert_eq!(2.0 * m * n * k, conv.flops().0);
        }
    }

    #[test]
    fn a_1x1_layer_is_a_product() {
        let conv = Conv::square(8, 64, 28, 128, 1, 1, 0);
        for pass in [Pass::Fwd, Pass::Dgrad, Pass::Wgrad] {
            for channels_last in [false, true] {
                let task = Task::new(&Conv { channels_last, ..conv }, pass, Dtype::Bf16);
                assert_eq!(task.as_gemm().flops(), conv.flops());
            }
        }
    }

    #[test]
    fn channels_are_padded_per_tap() {
        let conv = Conv { channels_last: true, ..Conv::square(8, 24, 28, 64, 3, 1, 1) };
        // 24 channels become 32 for each of 9 taps
        assert_eq!(Task::new(&conv, Pass::Fwd, Dtype::Bf16).dims(32.0).2, 288.0);
    }

    #[test]
    fn nchw_needs_three_conversions() {
        let conv = Conv::square(8, 64, 28, 64, 3, 1, 1);
        assert_eq!(Task::new(&conv, Pass::Fwd, Dtype::Bf16).conversion().1, 3.0);
        let nhwc = Conv { channels_last: true, ..conv };
        assert_eq!(Task::new(&nhwc, Pass::Fwd, Dtype::Bf16).conversion(), (0.0, 0.0));
    }

    #[test]
    fn kernel_names_tell_the_family() {
        let f = ConvFamily::of_kernels;
        assert_eq!(f("sm90_xmma_fprop_implicit_gemm_bf16"), Some(ConvFamily::Xmma90));
        assert_eq!(f("sm80_xmma_fprop_implicit_gemm_f32f32_f32f32_f32_nchw"), Some(ConvFamily::Ffma));
        assert_eq!(f("nvjet_hsh_128x64"), Some(ConvFamily::Gemm));
        assert_eq!(f("unheard_of"), None);
    }
}
