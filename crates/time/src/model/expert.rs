//! Which fit speaks for a product on a GPU, and how far it is trusted where nobody measured.

use super::TimeModel;
use super::draft::Question;
use crate::evidence::{Evidence, Library, Nearness};
use crate::fitted::TileKey;
use preflop_gpu::{Architecture, Gpu, Vendor};
use preflop_kernels::tile::{Constants, Tiling};
use preflop_kernels::{Machine, gemm, kernels_of, skinny};
use preflop_ops::{Gemm, GemmKind};
use preflop_units::dtype::Dtype;
use preflop_units::math::Elementary as _;

/// Added to the alignment class of constants that were fitted on published measurements.
const PUBLISHED: u8 = 4;

impl Library {
    /// The GPU as these measurements see it.
    pub fn machine(self, gpu: &Gpu, dtype: Dtype) -> Machine {
        match self {
            Self::Own => Machine::of(gpu, dtype),
            Self::Served => Machine::served(gpu, dtype),
            Self::Plain => Machine::plain(gpu, dtype),
        }
    }

    /// The GPU as these measurements see it with a product by the kernels of a generation.
    pub fn machine_of(self, g: &Gemm, gpu: &Gpu, dtype: Dtype, kernels: Architecture) -> Machine {
        let in_pieces = self == Self::Plain && gemm::in_pieces(g, kernels);
        Machine { in_pieces, ..self.machine(gpu, dtype) }
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

/// `own_hopper` says whether the project's own measurements know such products on Hopper.
pub(super) fn expert(dtype: Dtype, class: u8, own_hopper: bool, gpu: &Gpu) -> Expert {
    let generation = kernels_of(gpu);
    let forest = gemm::own_forest(dtype, class);
    let own = Expert { library: Library::Own, constants: dtype, forest, pooled: forest };
    let hopper = own_hopper && generation == Architecture::Hopper;
    match dtype {
        Dtype::Fp8 | Dtype::Fp4 | Dtype::Int8 if hopper => Expert { constants: Dtype::Fp8, ..own },
        Dtype::Fp8 | Dtype::Fp4 | Dtype::Int8 => Expert {
            library: Library::Served,
            constants: Dtype::Fp8,
            forest: "gemm/fp8",
            pooled: "gemm/fp8/pooled",
        },
        // fp16 was measured by the project alone, on Hopper; elsewhere its kernels are bf16's twins.
        Dtype::Bf16 | Dtype::Fp16 if class == 2 && !hopper => Expert {
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

/// Was another chip design of the GPU's generation measured? A P100 and a P4 are both of Pascal, but the one has 64 lanes an SM, HBM and the watts it needs, the other 128 lanes, GDDR5 and 75 W.
/// Designs of a generation differ in their compute capability.
fn other_design(expert: &Expert, gpu: &Gpu, reference: &Gpu) -> bool {
    expert.library == Library::Plain && gpu.compute_capability != reference.compute_capability
}

/// Constants between two sets, by their geometric mean.
fn midway(one: &Constants, other: &Constants) -> Constants {
    let (a, b) = (one.to_array(), other.to_array());
    Constants::from_array(std::array::from_fn(|i| (a[i] * b[i]).sqrt()))
}

/// Constants of a generation that nobody measured, from those of all and of the one with similar kernels: memory and
/// launch as everywhere, results stored and parts of a sum added up as by those kernels (2.0 and 2.4 us at the H200's clock on A100 and L40S, 3.1 to 3.3 on Hopper and
/// the B200), the rest midway (geometric mean).
fn between(all: &Constants, same: &Constants) -> Constants {
    let mid = |f: fn(&Constants) -> f64| (f(all) * f(same)).sqrt();
    Constants {
        eff: mid(|c| c.eff),
        slope: mid(|c| c.slope),
        pw: mid(|c| c.pw),
        kl: mid(|c| c.kl),
        red0: same.red0,
        drain: same.drain,
        ..*all
    }
}

/// How far what was learned on another design of the generation is trusted, on kin, and over all generations. Chosen by leaving GPUs
/// out (docs/accuracy.md): what is left beside the form on a P4 makes a P100 worse (16.5 % with all of it, 12.2 % without).
const TRUST_DESIGN: f64 = 0.0;
const TRUST_KIN: f64 = 0.5;
const TRUST_POOLED: f64 = 0.5;
/// The same of a server's products: what is left beside the form at one shape is hardly the same on two GPUs (correlations 0.01 to 0.14).
const TRUST_SERVED: f64 = 0.0;
/// Published fp32 products end here: below, their times are the host's.
const SHORTEST_FP32: f64 = 200e-6;

/// A product as its fit sees it.
pub(super) struct Judged<'a> {
    pub form: Tiling,
    /// The form on the GPU of the measurements.
    pub at: Tiling,
    /// What is asked of who knows the natural log of measured/closed form.
    pub question: Question<'a>,
    /// How far it is trusted here, and how far it knows such products.
    pub trust: f64,
    pub known: f64,
    /// How near the measurements are.
    pub nearness: Nearness,
    /// Class of the interval.
    pub class: &'static str,
}

impl TimeModel {
    /// The closed form of a product on a GPU and what was learned about it. Constants and trees are those of the GPU's
    /// generation (midway to those of all where another design of it was measured), else of its kin, else of all generations together.
    pub(super) fn judge(&self, g: &Gemm, dtype: Dtype, gpu: &Gpu) -> Judged<'_> {
        let class = gemm::class(g, dtype);
        let own_hopper = self.fitted.tile_of(TileKey { dtype, class, generation: Architecture::Hopper });
        let known = own_hopper.is_some() || dtype.size() < 2.0;
        let expert = expert(dtype, class, known && !self.stack.server, gpu);
        let own = kernels_of(gpu);
        let near = if expert.library == Library::Plain { kin(own) } else { same_kernels(own) };
        let Evidence { reference, nearness } = self.references.nearest(expert.library, near, gpu);
        let (constants, nearest) = self.nearest(&expert, g, dtype, (gpu, reference));
        let machine = |on: &Gpu| {
            let machine = expert.library.machine_of(g, on, dtype, own);
            Machine { in_pieces: machine.in_pieces && !self.stack.wide_pascal, ..machine }
        };
        let there = machine(reference);
        let at = expert.library.form(g, dtype, &constants, &there, own);
        let form = if nearness == Nearness::Here {
            at
        } else {
            let here = machine(gpu).fitted_on(&there);
            expert.library.form(g, dtype, &constants, &here, own)
        };
        let (forest, trust) = match (nearest, gpu.vendor) {
            (n, _) if n == own && other_design(&expert, gpu, reference) => (expert.forest, TRUST_DESIGN),
            (n, _) if n == own => (expert.forest, 1.0),
            (Architecture::Other, Vendor::Amd) => (expert.pooled, 0.0),
            (Architecture::Other, _) if expert.library == Library::Served => (expert.pooled, TRUST_SERVED),
            (Architecture::Other, _) => (expert.pooled, TRUST_POOLED),
            _ => (expert.forest, TRUST_KIN),
        };
        // The form there follows from the product, the format, the reference, the generations, and whether the reference is another design.
        let reading = (there.in_pieces, other_design(&expert, gpu, reference));
        let about = (g, dtype, expert.library, std::ptr::from_ref(reference).addr(), own, nearest, reading);
        let features = || gemm::features(g, dtype, &at, &there, nearest);
        let question = self.question(self.fitted.forest(forest), &about, features);
        // What the published fp32 rows teach fades out below them.
        let known = if expert.library == Library::Plain { (at.time / SHORTEST_FP32).min(1.0) } else { 1.0 };
        // Skinny products were not among them and have a form of their own.
        let thin = match expert.library {
            Library::Plain if !there.in_pieces || g.m.min(g.n) <= skinny::FEWEST => skinny::share(g),
            _ => 0.0,
        };
        let known = known * (1.0 - thin);
        let [form, at] = if thin > 0.0 {
            let [here, there] = [gpu, reference].map(|on| expert.library.machine_of(g, on, dtype, own));
            [(form, here), (at, there)].map(|(t, m)| self.thinned(g, &t, (&m, own), thin))
        } else {
            [form, at]
        };
        let class = expert.library.interval_class(g, dtype);
        Judged { form, at, question, trust, known, nearness, class }
    }

    /// A product as far as it is skinny by the form of such products.
    fn thinned(&self, g: &Gemm, other: &Tiling, on: (&Machine, Architecture), share: f64) -> Tiling {
        let own = skinny::form(g, &self.boards.skinny, on.0, on.1);
        let time = own.time.power(share) * other.time.power(1.0 - share);
        Tiling { time, ..if share > 0.5 { own } else { *other } }
    }

    /// Constants of a product on this GPU and the generation they are of; `Other` if of all, or what its kernels do of its
    /// kin and what memory and launch do of all.
    fn nearest(
        &self,
        expert: &Expert,
        g: &Gemm,
        dtype: Dtype,
        (gpu, reference): (&Gpu, &Gpu),
    ) -> (Constants, Architecture) {
        let class = expert.library.class(g, dtype);
        let own = kernels_of(gpu);
        let key = |generation| TileKey { dtype: expert.constants, class, generation };
        let near = if expert.library == Library::Plain { kin(own) } else { None };
        let found =
            [Some(own), near].into_iter().flatten().find_map(|a| Some((*self.fitted.tile_of(key(a))?, a)));
        if let (Some((c, a)), true) = (found, other_design(expert, gpu, reference))
            && a == own
            && let Some(all) = self.fitted.tile_of(key(Architecture::Other))
        {
            return (midway(all, &c), a);
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use preflop_gpu::catalog;
    use preflop_ops::{Layout, Op, OpCall};

    #[test]
    fn what_is_kept_of_products_does_not_speak_for_another_gpu() {
        let plain = TimeModel::embedded();
        let gpus: Vec<Gpu> = catalog::names().map(|name| catalog::find(name).unwrap()).collect();
        // Whoever asks first.
        let [forth, back] = [(); 2].map(|()| TimeModel::embedded().with_recall());
        for dtype in [Dtype::Fp32, Dtype::Bf16] {
            for [m, n, k] in
                [[256, 4096, 25_088], [4096, 25_088, 64], [25_088, 4096, 512], [4096, 1000, 1024]]
            {
                let call = OpCall::fwd(Op::Gemm(Gemm::mm(m, n, k, Layout::Nn)), dtype);
                let asked = gpus.iter().map(|g| (&forth, g)).chain(gpus.iter().rev().map(|g| (&back, g)));
                for (keeping, gpu) in asked {
                    let name = &gpu.name;
                    let kept = keeping.predict_many(&[&call], gpu)[0];
                    assert_eq!(kept, plain.predict(&call, gpu), "{call:?} on {name}");
                }
            }
        }
    }
}
