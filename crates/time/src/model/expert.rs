//! Which fit speaks for a product on a GPU, and how far it is trusted where nobody measured.

use super::{MEASURED, TimeModel};
use crate::fitted::TileKey;
use preflop_gpu::{Architecture, Gpu, Vendor};
use preflop_kernels::tile::{Constants, Tiling};
use preflop_kernels::{Machine, gemm, kernels_of};
use preflop_ops::{Gemm, GemmKind};
use preflop_units::dtype::Dtype;

/// Added to the alignment class of constants that were fitted on published measurements.
const PUBLISHED: u8 = 4;

/// Which measurements speak for a product.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Library {
    /// The project's own: PyTorch on an H200.
    Own,
    /// Published 16-bit and 8-bit products of an inference server.
    Served,
    /// Published fp32 products of PyTorch on older GPUs.
    Plain,
}

impl Library {
    /// The GPU as these measurements see it.
    pub fn machine(self, gpu: &Gpu, dtype: Dtype) -> Machine {
        match self {
            Self::Own => Machine::of(gpu, dtype),
            Self::Served => Machine::served(gpu, dtype),
            Self::Plain => Machine::plain(gpu, dtype),
        }
    }

    /// The closed form with the kernels of a generation.
    pub fn form(self, g: &Gemm, dtype: Dtype, c: &Constants, m: &Machine, kernels: Architecture) -> Tiling {
        if self == Self::Plain { gemm::plain_form(g, c, m, kernels) } else { gemm::form(g, dtype, c, m) }
    }

    /// Class of the constants: alignment, and for published fp32 products whether they are batched.
    pub fn class(self, g: &Gemm, dtype: Dtype) -> u8 {
        let class = gemm::class(g, dtype);
        match self {
            Self::Own => class,
            Self::Served => class + PUBLISHED,
            Self::Plain => class + PUBLISHED - u8::from(g.kind == GemmKind::Bmm),
        }
    }

    /// Class of the interval.
    pub fn interval_class(self, g: &Gemm, dtype: Dtype) -> &'static str {
        match (self, dtype) {
            (Self::Own, _) => gemm::interval_class(dtype, gemm::class(g, dtype)),
            (Self::Served, Dtype::Bf16 | Dtype::Fp16) => "gemm/served/half",
            (Self::Served, _) => "gemm/served/fp8",
            (Self::Plain, _) if g.kind == GemmKind::Bmm => "gemm/plain/batched",
            (Self::Plain, _) => "gemm/plain/single",
        }
    }
}

/// Which fit speaks for a product on a GPU.
pub(super) struct Expert {
    pub library: Library,
    /// Number format whose constants apply.
    pub constants: Dtype,
    /// Forest of the correction, and of one that knows no generations.
    pub forest: &'static str,
    pub pooled: &'static str,
}

pub(super) fn expert(dtype: Dtype, class: u8, gpu: &Gpu) -> Expert {
    let generation = kernels_of(gpu);
    let forest = gemm::own_forest(dtype, class);
    let own = Expert { library: Library::Own, constants: dtype, forest, pooled: forest };
    let hopper = generation == Architecture::Hopper;
    match dtype {
        Dtype::Fp8 | Dtype::Fp4 | Dtype::Int8 if hopper => Expert { constants: Dtype::Fp8, ..own },
        Dtype::Fp8 | Dtype::Fp4 | Dtype::Int8 => Expert {
            library: Library::Served,
            constants: Dtype::Fp8,
            forest: "gemm/fp8",
            pooled: "gemm/fp8/pooled",
        },
        // fp16 was measured on the H200 only; elsewhere its kernels are bf16's twins.
        Dtype::Bf16 | Dtype::Fp16 if class == 2 && gpu.name != MEASURED => Expert {
            library: Library::Served,
            constants: Dtype::Bf16,
            forest: "gemm/bf16",
            pooled: "gemm/bf16/pooled",
        },
        Dtype::Fp32 | Dtype::Fp64 if !plain_as_measured(gpu) => Expert {
            library: Library::Plain,
            constants: Dtype::Fp32,
            forest: "gemm/fp32",
            pooled: "gemm/fp32/pooled",
        },
        _ => own,
    }
}

/// Do the project's own measurements speak for fp32 on plain pipes? They were made on Hopper, and the B200 runs the same
/// kernels there.
pub fn plain_as_measured(gpu: &Gpu) -> bool {
    matches!(kernels_of(gpu), Architecture::Hopper | Architecture::Blackwell)
}

/// The generation whose fp32 kernels are nearest. With the tiles that a generation has, Volta's constants give the
/// A100's products to 9 % and the A100's Volta's; AMD's matrix cores are a world of their own.
fn kin(generation: Architecture) -> Option<Architecture> {
    match generation {
        Architecture::Volta | Architecture::Ada => Some(Architecture::Ampere),
        Architecture::Turing | Architecture::Ampere => Some(Architecture::Volta),
        Architecture::Vega | Architecture::Cdna2 | Architecture::Cdna3 => Some(Architecture::Cdna1),
        _ => None,
    }
}

/// The generation with the most similar 16-bit kernels: Ada runs Ampere's very own, and those of Volta and Turing are built
/// like them, with operands from registers and results stored by the clock.
fn same_kernels(generation: Architecture) -> Option<Architecture> {
    match generation {
        Architecture::Volta | Architecture::Turing | Architecture::Ada => Some(Architecture::Ampere),
        Architecture::Ampere => Some(Architecture::Ada),
        _ => None,
    }
}

/// Constants of a generation that nobody measured, from those of all and of the one with similar kernels: memory and
/// launch as everywhere, results stored as by those kernels, the rest midway (geometric mean).
fn between(all: &Constants, same: &Constants) -> Constants {
    let mid = |f: fn(&Constants) -> f64| (f(all) * f(same)).sqrt();
    Constants {
        eff: mid(|c| c.eff),
        slope: mid(|c| c.slope),
        pw: mid(|c| c.pw),
        kl: mid(|c| c.kl),
        red0: mid(|c| c.red0),
        drain: same.drain,
        ..*all
    }
}

/// How far what was learned on kin is trusted, and what was learned over all generations. Fitted by leaving GPUs
/// out (docs/accuracy.md).
const TRUST_KIN: f64 = 0.5;
const TRUST_POOLED: f64 = 0.5;
/// Published fp32 products end here: below, their times are the host's.
const SHORTEST_FP32: f64 = 200e-6;

/// A product as its fit sees it.
pub(super) struct Judged {
    pub form: Tiling,
    /// Learned natural log of measured/closed form, as far as it is trusted here.
    pub learned: f64,
    /// Was this generation measured?
    pub seen: bool,
    /// Class of the interval.
    pub class: &'static str,
}

impl TimeModel {
    /// The closed form of a product on a GPU and what was learned about it. Constants and trees are those of the GPU's
    /// generation, else of its kin, else of all generations together.
    pub(super) fn judge(&self, g: &Gemm, dtype: Dtype, gpu: &Gpu) -> Judged {
        let expert = expert(dtype, gemm::class(g, dtype), gpu);
        let machine = expert.library.machine(gpu, dtype);
        let (constants, nearest) = self.nearest(&expert, g, dtype, gpu);
        let own = kernels_of(gpu);
        let form = expert.library.form(g, dtype, &constants, &machine, own);
        let x = gemm::features(g, dtype, &form, &machine, nearest);
        let (forest, trust) = match (nearest, gpu.vendor) {
            (n, _) if n == own => (expert.forest, 1.0),
            (Architecture::Other, Vendor::Amd) => (expert.pooled, 0.0),
            (Architecture::Other, _) => (expert.pooled, TRUST_POOLED),
            _ => (expert.forest, TRUST_KIN),
        };
        let learned = self.fitted.forest(forest).map_or(0.0, |f| f64::from(f.predict(&x)));
        // What the published fp32 rows teach fades out below them.
        let known = if expert.library == Library::Plain { (form.time / SHORTEST_FP32).min(1.0) } else { 1.0 };
        let class = expert.library.interval_class(g, dtype);
        Judged { form, learned: learned * trust * known, seen: nearest == own, class }
    }

    /// Constants of a product on this GPU and the generation they are of; `Other` if of all, or what its kernels do of its
    /// kin and what memory and launch do of all.
    fn nearest(&self, expert: &Expert, g: &Gemm, dtype: Dtype, gpu: &Gpu) -> (Constants, Architecture) {
        let class = expert.library.class(g, dtype);
        let own = kernels_of(gpu);
        let key = |generation| TileKey { dtype: expert.constants, class, generation };
        let near = if expert.library == Library::Plain { kin(own) } else { None };
        let found =
            [Some(own), near].into_iter().flatten().find_map(|a| Some((*self.fitted.tile_of(key(a))?, a)));
        found.unwrap_or_else(|| {
            let all = self.fitted.tile(key(own)).copied().unwrap_or(Constants::START);
            let same = same_kernels(own).and_then(|a| self.fitted.tile_of(key(a)));
            let constants = match (expert.library, same) {
                (Library::Served, Some(k)) => between(&all, k),
                _ => all,
            };
            (constants, Architecture::Other)
        })
    }
}
