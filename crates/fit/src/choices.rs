//! What cuDNN answered when it was asked for its choice, and the variants behind the answers.

use crate::sets::Sets;
use anyhow::{Context, Result};
use preflop_core::kernels::conv::{ConvFamily, Task, dtype_group};
use preflop_core::ops::Conv;
use preflop_core::time::choice::Variant;
use preflop_core::{Dtype, Pass};
use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead, BufReader};

/// A shape as `cudnn_choice` reads it.
pub type Shape = [u32; 15];

/// An engine and the knobs that decide its kernel: tile size, tile depth, stages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Answer {
    pub engine: u8,
    knobs: [u8; 3],
    /// CTAs of a cluster along rows and columns; zeros where the engine has no clusters.
    cluster: [u8; 2],
    /// May the kernel share out its sums?
    segments: bool,
    /// Parts of the sum as in [`Variant`].
    split: u8,
}

/// Knob types of [`Answer`]: `CUDNN_KNOB_TYPE_TILE_SIZE`, `_TILEK`, `_STAGES`.
const KNOBS: [&str; 3] = ["2", "13", "14"];
/// `CUDNN_KNOB_TYPE_TILE_CGA_M` and `_N`.
const CLUSTER: [&str; 2] = ["27", "28"];
/// `CUDNN_KNOB_TYPE_WORKSPACE`: 0 lets clustered kernels share out their sums.
const WORKSPACE: &str = "25";
/// `CUDNN_KNOB_TYPE_SPLIT_K`.
const SPLIT: &str = "0";
/// Engine number of calls whose answer is not known.
pub const UNKNOWN: u8 = 255;

impl Answer {
    fn parse(text: &str) -> Option<Self> {
        let (engine, rest) = text.split_once('|')?;
        let mut knobs = [u8::MAX; 3];
        let (mut cluster, mut segments, mut split) = ([0; 2], false, 0);
        for (kind, value) in rest.split(',').filter_map(|k| k.split_once('=')) {
            if let Some(i) = KNOBS.iter().position(|k| *k == kind) {
                knobs[i] = value.parse().ok()?;
            }
            if let Some(i) = CLUSTER.iter().position(|k| *k == kind) {
                cluster[i] = value.parse().ok()?;
            }
            if kind == SPLIT {
                let parts: f64 = value.parse().ok()?;
                split = 1 + parts.max(1.0).log2().round() as u8;
            }
            segments |= kind == WORKSPACE && value == "0";
        }
        segments &= cluster[0] > 0;
        Some(Self { engine: engine.parse().ok()?, knobs, cluster, segments, split })
    }
}

impl Answer {
    /// What decides the kernel.
    pub fn kernel(self) -> Knobs {
        (self.engine, self.knobs)
    }
}

/// The variant of an engine with the family and tile of the kernels that ran.
pub fn with_kernels(said: Variant, names: &str) -> Option<Variant> {
    let family = ConvFamily::of_kernels(names)?;
    Some(Variant { family, tile: if family.tiled() { tile_of_kernels(names) } else { [0; 3] }, ..said })
}

/// The shape of a task; none where its strides or dilations differ, which the recorded shapes never do.
pub fn shape_of(task: &Task) -> Option<Shape> {
    let c = &task.conv;
    if c.stride[0] != c.stride[1] || c.dilation[0] != c.dilation[1] {
        return None;
    }
    let dtype = match task.dtype {
        Dtype::Fp32 => 0,
        Dtype::Tf32 => 1,
        Dtype::Fp16 => 2,
        Dtype::Bf16 => 3,
        _ => return None,
    };
    let mut out = [0; 15];
    let values = [
        pass_of(task.pass) as u64,
        dtype,
        c.batch,
        c.ci,
        c.h,
        c.w,
        c.co,
        c.r,
        c.s,
        c.stride[0],
        c.pad[0],
        c.pad[1],
        c.dilation[0],
        c.groups,
        u64::from(c.channels_last),
    ];
    for (o, v) in out.iter_mut().zip(values) {
        *o = u32::try_from(v).ok()?;
    }
    Some(out)
}

/// 0 forward, 1 data gradient, 2 weight gradient.
pub fn pass_of(pass: Pass) -> usize {
    match pass {
        Pass::Dgrad => 1,
        Pass::Wgrad => 2,
        _ => 0,
    }
}

pub fn task_of(s: &Shape) -> Task {
    let v = |i: usize| u64::from(s[i]);
    let conv = Conv {
        batch: v(2),
        ci: v(3),
        h: v(4),
        w: v(5),
        co: v(6),
        r: v(7),
        s: v(8),
        stride: [v(9); 2],
        pad: [v(10), v(11)],
        dilation: [v(12); 2],
        groups: v(13),
        channels_last: s[14] == 1,
        transposed: false,
    };
    let pass = [Pass::Fwd, Pass::Dgrad, Pass::Wgrad][s[0] as usize % 3];
    let dtype = [Dtype::Fp32, Dtype::Tf32, Dtype::Fp16, Dtype::Bf16][s[1] as usize % 4];
    Task { conv, pass, dtype }
}

/// Reads a file of shapes with their answers.
pub fn read(sets: &Sets, name: &str) -> Result<Vec<(Task, Answer)>> {
    // `none`: no engine serves it.
    let answered = |(shape, word): (Shape, String)| Some((task_of(&shape), Answer::parse(&word)?));
    Ok(lines(sets, name)?.into_iter().filter_map(answered).collect())
}

/// Reads a file of shapes with the names of the kernels that ran, joined by a bar.
pub fn read_names(sets: &Sets, name: &str) -> Result<HashMap<Shape, String>> {
    Ok(lines(sets, name)?.into_iter().collect())
}

/// Lines of a shape and one more word.
fn lines(sets: &Sets, name: &str) -> Result<Vec<(Shape, String)>> {
    let mut out = Vec::new();
    for (i, line) in BufReader::new(sets.open(name)?).lines().enumerate() {
        let line = line?;
        let mut words = line.split_ascii_whitespace();
        let mut shape = [0; 15];
        for s in &mut shape {
            *s = words
                .next()
                .and_then(|w| w.parse().ok())
                .with_context(|| format!("{}, line {}: no shape", name, i + 1))?;
        }
        out.push((shape, words.next().unwrap_or_default().to_string()));
    }
    Ok(out)
}

/// Kernels whose template arguments tell the tile.
const ENGINES: [&str; 5] =
    ["convolve_sgemm<", "dgrad_engine<", "wgrad_alg0_engine<", "wgrad_alg1_engine", "convolve_common_engine"];

/// Rows, columns and depth of the tile that a kernel's name tells; zeros if none does.
pub fn tile_of_kernels(names: &str) -> [u16; 3] {
    fn numbers(text: &str, separators: [&str; 2], end: &str) -> Option<[u16; 3]> {
        let (a, rest) = text.split_once(separators[0])?;
        let (b, rest) = rest.split_once(separators[1])?;
        let c: String = rest.chars().take_while(char::is_ascii_digit).collect();
        if !rest[c.len()..].starts_with(end) {
            return None;
        }
        Some([a.parse().ok()?, b.parse().ok()?, c.parse().ok()?])
    }
    for name in names.split('|') {
        if ["ToNhwc", "ToNchw", "Padding", "SplitK", "splitK", "reduce"].iter().any(|w| name.contains(w)) {
            continue;
        }
        if let Some((_, rest)) = name.split_once("tilesize")
            && let Some(t) = numbers(rest, ["x", "x"], "")
        {
            return t;
        }
        if let Some((_, rest)) = name.split_once("GemmShapeILi")
            && let Some(t) = numbers(rest, ["ELi", "ELi"], "E")
        {
            return t;
        }
        if let Some(size) = fft_size(name) {
            return [size, size, 8];
        }
        if ENGINES.iter().any(|e| name.contains(e))
            && let Some((_, arguments)) = name.split_once('<')
        {
            // Threads or bytes, then the logarithms of rows and columns; the sums go in steps of 8.
            let mut numbers = arguments.split(',').filter_map(|a| a.trim().parse::<u16>().ok()).skip(1);
            if let (Some(rows @ 4..9), Some(columns @ 4..9)) = (numbers.next(), numbers.next()) {
                return [1 << rows, 1 << columns, 8];
            }
        }
        if name.contains("cutlass") {
            for (i, _) in name.match_indices('_') {
                if let Some(t) = numbers(&name[i + 1..], ["x", "_"], "x") {
                    return t;
                }
            }
        }
    }
    [0; 3]
}

/// Side of the tiles that an FFT kernel transforms, by its name.
fn fft_size(name: &str) -> Option<u16> {
    let number = |text: &str| text.chars().take_while(char::is_ascii_digit).collect::<String>().parse().ok();
    if let Some((_, rest)) = name.split_once("fft2d_r2c_") {
        return number(rest);
    }
    let (_, arguments) = name.split_once("regular_fft_pad<")?;
    number(arguments.split(',').nth(2)?.trim())
}

/// Engine and knobs that decide the kernel.
type Knobs = (u8, [u8; 3]);
/// How often calls launched kernels of a family and tile.
type Kernels = BTreeMap<(ConvFamily, [u16; 3]), usize>;

/// Which variant an answer means, learned from calls whose kernels were named.
#[derive(Debug, Default)]
pub struct Variants {
    exact: HashMap<(usize, &'static str, Knobs), Kernels>,
    engine: HashMap<(usize, &'static str, u8), BTreeMap<ConvFamily, usize>>,
}

impl Variants {
    /// Notes that a call with this answer launched kernels of this family and tile.
    pub fn note(&mut self, task: &Task, answer: Answer, family: ConvFamily, tile: [u16; 3]) {
        let (pass, group) = (pass_of(task.pass), dtype_group(task.dtype));
        let tile = if family.tiled() { tile } else { [0; 3] };
        let key = (pass, group, answer.kernel());
        *self.exact.entry(key).or_default().entry((family, tile)).or_default() += 1;
        *self.engine.entry((pass, group, answer.engine)).or_default().entry(family).or_default() += 1;
    }

    /// The variant that an answer most often meant; the engine's family without a tile where the knobs are new.
    pub fn of(&self, task: &Task, answer: Answer) -> Option<Variant> {
        let (pass, group) = (pass_of(task.pass), dtype_group(task.dtype));
        let whole = |family, tile| Variant {
            family,
            engine: answer.engine,
            tile,
            cluster: answer.cluster,
            segments: answer.segments,
            split: answer.split,
        };
        if let Some(seen) = self.exact.get(&(pass, group, answer.kernel())) {
            return seen.iter().max_by_key(|(_, n)| **n).map(|((family, tile), _)| whole(*family, *tile));
        }
        let seen = self.engine.get(&(pass, group, answer.engine))?;
        seen.iter().max_by_key(|(_, n)| **n).map(|(family, _)| whole(*family, [0; 3]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_tiles() {
        let f = tile_of_kernels;
        assert_eq!(f("sm90_xmma_fprop_nhwc_tilesize256x128x64_warpgroupsize2x1x1"), [256, 128, 64]);
        assert_eq!(
            f("void cutlass::Kernel2<cutlass_80_tensorop_s16816gemm_bf16_64x64_32x6_nt>"),
            [64, 64, 32]
        );
        assert_eq!(f("nhwcToNchw_tilesize9x9x9|_ZN9GemmShapeILi64ELi128ELi32EEE"), [64, 128, 32]);
        assert_eq!(f("cudnn::detail::dgrad_engine<float, 512, 6, 5, 3, 3, 3, false>"), [64, 32, 8]);
        assert_eq!(f("implicit_convolve_sgemm<float,float,128,6,7,3,3,5,1>"), [64, 128, 8]);
        assert_eq!(f("conv2d_grouped_direct_kernel"), [0; 3]);
        assert_eq!(f("flip_filter|fft2d_r2c_32x32<float,false,1u,false>"), [32, 32, 8]);
        assert_eq!(f("DSE::regular_fft_pad<0, 1, 128, 16, 32, 1, float>"), [128, 128, 8]);
    }

    #[test]
    fn answers_are_read() {
        let a = Answer::parse("62|2=5,13=1,18=0").unwrap();
        assert_eq!((a.engine, a.knobs), (62, [5, 1, u8::MAX]));
        assert!(Answer::parse("none").is_none());
        let a = Answer::parse("62|0=23,2=5,13=1,25=0,27=4,28=2").unwrap();
        assert_eq!((a.cluster, a.segments, a.split), ([4, 2], true, 6));
    }
}
