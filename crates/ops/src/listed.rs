//! Operators of one table: sorting, scans, picking and adding by index, transforms, sampling, losses, solvers.
//!
//! Each has a name, the keys of its sizes, and what it reads, writes and computes, all of it here. What its kernels do with that
//! is in `preflop-kernels::listed`, what they were measured to cost in `data/fitted/operators.toml`.

use super::{Pass, Traffic};
use preflop_units::math::Elementary as _;
use preflop_units::{Bytes, Flops};
use serde::{Deserialize, Serialize};

/// Directions in which an operator is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phases {
    /// Forward; what backward does are other operators.
    Forward,
    /// Forward and backward.
    Both,
    /// Forward, and a gradient each for data and weights.
    Gradients,
}

impl Phases {
    /// Is this one of them?
    pub fn has(self, pass: Pass) -> bool {
        match pass {
            Pass::Fwd => true,
            Pass::Bwd => self == Self::Both,
            Pass::Dgrad | Pass::Wgrad => self == Self::Gradients,
        }
    }

    /// Their names in operator files.
    pub fn names(self) -> &'static str {
        match self {
            Self::Forward => "fwd",
            Self::Both => "fwd, bwd",
            Self::Gradients => "fwd, dgrad, wgrad",
        }
    }
}

macro_rules! listed {
    ($($kind:ident, $name:literal, [$($key:literal),+], $phases:ident, $says:literal;)*) => {
        /// Which operator.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum ListedKind {
            $(#[doc = $says] $kind,)*
        }

        impl ListedKind {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$kind,)*];

            /// The name used in operator files.
            pub fn name(self) -> &'static str {
                match self { $(Self::$kind => $name,)* }
            }

            /// The operator of that name.
            pub fn from_name(name: &str) -> Option<Self> {
                match name { $($name => Some(Self::$kind),)* _ => None }
            }

            /// The keys of its sizes, in the order of [`Listed::sizes`].
            pub fn keys(self) -> &'static [&'static str] {
                match self { $(Self::$kind => &[$($key),+],)* }
            }

            /// The directions it has.
            pub fn phases(self) -> Phases {
                match self { $(Self::$kind => Phases::$phases,)* }
            }
        }
    };
}

listed! {
    Sort, "sort", ["rows", "cols"], Forward, "Rows sorted, with the places that values came from.";
    TopK, "topk", ["rows", "cols", "k"], Forward, "The largest values of each row.";
    KthValue, "kthvalue", ["rows", "cols"], Forward, "The value of each row that has so many below it: medians.";
    CumSum, "cumsum", ["rows", "cols", "width"], Forward, "Running sums of `cols` values that lie `width` apart.";
    CumMax, "cummax", ["rows", "cols"], Forward, "Running maxima with their places, or running log-sums.";
    SumInner, "sum_inner", ["rows", "cols", "width"], Forward, "Sums of `cols` values that lie `width` apart.";
    MaxInner, "max_inner", ["rows", "cols", "width"], Forward, "Maxima of such values with their places, or the places alone.";
    SoftmaxInner, "softmax_inner", ["rows", "cols", "width"], Both, "Softmax over such values.";
    LogSoftmaxInner, "log_softmax_inner", ["rows", "cols", "width"], Both, "Log-softmax over such values.";
    MaxRows, "max_rows", ["rows", "cols"], Forward, "Maxima of rows with their places.";
    LogSumExp, "logsumexp", ["rows", "cols"], Forward, "Logarithm of the sum of exponentials of rows.";
    VarMean, "var_mean", ["rows", "cols"], Forward, "Variance and mean of rows.";
    ScatterAdd, "scatter_add", ["v", "d", "n"], Forward, "`n` rows of `d` added one element at a time to a table of `v`.";
    ScatterReduce, "scatter_reduce", ["v", "d", "n"], Forward, "Elements of `n` rows that replace those of a table where they are larger or smaller.";
    IndexAdd, "index_add", ["v", "d", "n"], Forward, "Whole rows added to a table.";
    Scatter, "scatter", ["v", "d", "n"], Forward, "Elements written into a table.";
    IndexPut, "index_put", ["v", "d", "n"], Forward, "Rows written into a table.";
    IndexPutAdd, "index_put_add", ["v", "d", "n"], Forward, "Rows added to a table after sorting their places: gradients of indexing.";
    IndexSelect, "index_select", ["v", "d", "n"], Forward, "Rows picked from a table.";
    GatherDim, "gather_dim", ["v", "d", "n"], Forward, "Elements picked from a table, one index each.";
    GatherRows, "gather_rows", ["rows", "cols", "k"], Forward, "`k` elements picked from each row.";
    EmbeddingBag, "embedding_bag", ["v", "d", "n", "k"], Both, "`n` bags, each the sum of `k` rows of a table.";
    NonZero, "nonzero", ["n"], Forward, "Places of the flags that are set.";
    MaskedSelect, "masked_select", ["n"], Forward, "Values whose flag is set.";
    Unique, "unique", ["n"], Forward, "Distinct values.";
    BinCount, "bincount", ["n", "v"], Forward, "How often each of `v` numbers occurs.";
    SearchSorted, "searchsorted", ["n", "v"], Forward, "Where `n` values belong among `v` sorted ones.";
    RandPerm, "randperm", ["n"], Forward, "A random order.";
    Multinomial, "multinomial", ["rows", "cols"], Forward, "One draw from the weights of each row.";
    FftC2c, "fft_c2c", ["rows", "n"], Forward, "Fourier transforms of complex rows.";
    FftR2c, "fft_r2c", ["rows", "n"], Forward, "Fourier transforms of real rows.";
    FftC2r, "fft_c2r", ["rows", "n"], Forward, "Inverse transforms to real rows.";
    Fft2C2c, "fft2_c2c", ["rows", "h", "w"], Forward, "Fourier transforms of complex planes.";
    Fft2R2c, "fft2_r2c", ["rows", "h", "w"], Forward, "Fourier transforms of real planes.";
    GridSample, "grid_sample", ["b", "c", "area", "n"], Both, "`n` places of each map sampled from its `area`, bilinear.";
    GridSampleNearest, "grid_sample_nearest", ["b", "c", "area", "n"], Both, "The same from the nearest place.";
    Resize3d, "interpolate3d", ["rows", "area", "n"], Both, "Volumes resized from `area` to `n` places, trilinear.";
    Resize3dNearest, "interpolate3d_nearest", ["rows", "area", "n"], Both, "The same from the nearest place.";
    Unfold, "unfold", ["b", "c", "area", "k", "n"], Forward, "Windows of `k` places at `n` positions of each map copied out, image by image.";
    Fold, "fold", ["b", "c", "area", "k", "n"], Forward, "Windows added back into maps.";
    ReflectionPad, "reflection_pad", ["rows", "area", "n"], Both, "Maps of `area` grown to `n` places by reflection.";
    MaxPool3d, "maxpool3d", ["rows", "area", "k", "n"], Both, "Maxima over windows of volumes, with their places.";
    AvgPool3d, "avgpool3d", ["rows", "area", "k", "n"], Both, "Means over windows of volumes.";
    ResizeNearest, "interpolate_nearest", ["b", "c", "area", "n"], Both, "Maps resized from `area` to `n` places by the nearest one; measured backward.";
    ResizeBilinear, "interpolate_bilinear", ["b", "c", "area", "n"], Both, "The same, bilinear.";
    ResizeBilinearLast, "interpolate_bilinear_last", ["b", "c", "area", "n"], Both, "The same with channels last in memory.";
    ResizeBicubic, "interpolate_bicubic", ["b", "c", "area", "n"], Both, "The same, bicubic.";
    SdpaCross, "sdpa_cross", ["b", "h", "s", "n", "d"], Both, "Fused attention of `s` queries to `n` keys, as many heads for both.";
    SdpaMask, "sdpa_mask", ["b", "h", "s", "n", "d", "m"], Both, "The same with a mask of `m` matrices added.";
    Conv3d, "conv3d", ["b", "ci", "co", "area", "n", "k", "groups"], Gradients, "Convolutions over volumes of `area` places to `n`, with filters of `k`.";
    Conv3dLast, "conv3d_last", ["b", "ci", "co", "area", "n", "k", "groups"], Gradients, "The same with channels last in memory.";
    ConvTranspose3d, "conv_transpose3d", ["b", "ci", "co", "area", "n", "k", "groups"], Gradients, "Transposed convolutions over volumes.";
    BatchNormLine, "batchnorm_line", ["b", "c", "area"], Both, "Batch norm of rows (`area` 1) or lines with batch statistics.";
    BatchNormLineEval, "batchnorm_line_eval", ["b", "c", "area"], Both, "The same with stored statistics.";
    PRelu, "prelu", ["b", "c", "area"], Both, "A rectifier with a learned slope by channel.";
    CrossEntropy2d, "cross_entropy2d", ["b", "v", "area"], Both, "Cross-entropy at every place of a map.";
    CtcLoss, "ctc_loss", ["b", "s", "v", "l"], Both, "Alignment loss of `s` steps with targets of `l`.";
    CDist, "cdist", ["b", "m", "n", "d"], Forward, "Distances of all pairs of points.";
    WeightNorm, "weight_norm", ["rows", "cols"], Both, "Rows of a weight scaled to a length.";
    LstmCell, "lstm_cell", ["b", "hidden"], Both, "Gates of one LSTM step, without its products.";
    GruCell, "gru_cell", ["b", "hidden"], Both, "Gates of one GRU step, without its products.";
    Cholesky, "cholesky", ["rows", "n"], Forward, "Cholesky factors of matrices.";
    Solve, "solve", ["rows", "n", "k"], Forward, "Linear systems with `k` right-hand sides.";
    Inverse, "inv", ["rows", "n"], Forward, "Inverse matrices.";
    Qr, "qr", ["rows", "n"], Forward, "QR factors.";
    Eigh, "eigh", ["rows", "n"], Forward, "Eigenvalues and vectors of symmetric matrices.";
    Svd, "svd", ["rows", "n"], Forward, "Singular values and vectors.";
    SolveTriangular, "solve_triangular", ["rows", "n", "k"], Forward, "Triangular systems.";
    SgdFused, "sgd_fused", ["n", "parts"], Forward, "SGD with momentum in one kernel over `parts` tensors of `n` elements in all.";
    RmspropForeach, "rmsprop_foreach", ["n", "parts"], Forward, "RMSprop over lists of tensors.";
    AdagradForeach, "adagrad_foreach", ["n", "parts"], Forward, "Adagrad over lists of tensors.";
    AmsgradForeach, "amsgrad_foreach", ["n", "parts"], Forward, "Adam with running maxima over lists of tensors.";
    ForeachMul, "foreach_mul", ["n", "parts"], Forward, "Many tensors scaled in place.";
    ForeachNorm, "foreach_norm", ["n", "parts"], Forward, "Lengths of many tensors: clipping of gradients.";
    SdpaBias, "sdpa_bias", ["b", "h", "s", "n", "d", "m"], Both, "Fused attention with a mask of `m` matrices that gets a gradient.";
    GroupedMm, "grouped_mm", ["groups", "m", "n", "k"], Forward, "One product for each of `groups` groups of `m` rows in all, in one kernel: experts.";
    GroupedSums, "grouped_sums", ["groups", "m", "n", "k"], Forward, "The same with `groups` groups of `k` summed rows in all: gradients of experts' weights.";
}

/// Sizes that one operator has at most.
pub const SIZES: usize = 7;

/// An operator of the table with its sizes, in the order of its keys; 1 beyond them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Listed {
    /// Which operator.
    pub kind: ListedKind,
    /// Its sizes.
    pub sizes: [u64; SIZES],
}

/// Bytes of an index.
const INDEX: f64 = 8.0;

impl Listed {
    /// An operator with these sizes.
    pub fn new(kind: ListedKind, sizes: &[u64]) -> Self {
        let mut all = [1; SIZES];
        for (to, from) in all.iter_mut().zip(sizes) {
            *to = (*from).max(1);
        }
        Self { kind, sizes: all }
    }

    /// The sizes as numbers.
    pub fn numbers(&self) -> [f64; SIZES] {
        self.sizes.map(|n| n as f64)
    }

    /// Floating-point operations of its definition: one a value and pass, five for each stage of a transform, the textbook's count for solvers.
    pub fn flops(&self, pass: Pass) -> Flops {
        use ListedKind as K;
        let [a, b, c, d, f, g, h] = self.numbers();
        let forward = match self.kind {
            // Orders, copies and look-ups compute nothing.
            K::Sort
            | K::TopK
            | K::KthValue
            | K::Unique
            | K::NonZero
            | K::MaskedSelect
            | K::RandPerm
            | K::Scatter
            | K::IndexPut
            | K::IndexSelect
            | K::GatherDim
            | K::GatherRows
            | K::Unfold
            | K::ReflectionPad
            | K::SearchSorted
            | K::BinCount
            | K::GridSampleNearest
            | K::Resize3dNearest => 0.0,
            K::CumSum | K::SumInner | K::MaxInner | K::PRelu => a * b * c,
            K::CumMax | K::MaxRows | K::Multinomial => a * b,
            K::SoftmaxInner | K::LogSoftmaxInner | K::CrossEntropy2d => 5.0 * a * b * c,
            K::VarMean | K::WeightNorm | K::LogSumExp => 4.0 * a * b,
            K::ScatterAdd | K::ScatterReduce | K::IndexAdd | K::IndexPutAdd => b * c,
            K::EmbeddingBag => b * c * d,
            K::FftC2c => 5.0 * a * b * b.max(2.0).binary_log(),
            K::FftR2c | K::FftC2r => 2.5 * a * b * b.max(2.0).binary_log(),
            K::Fft2C2c => 5.0 * a * b * c * (b * c).max(2.0).binary_log(),
            K::Fft2R2c => 2.5 * a * b * c * (b * c).max(2.0).binary_log(),
            K::GridSample | K::ResizeBilinear | K::ResizeBilinearLast => 8.0 * a * b * d,
            K::Resize3d => 16.0 * a * c,
            K::ResizeNearest => a * b * d,
            K::ResizeBicubic => 35.0 * a * b * d,
            // Backward has five products instead of two.
            K::SdpaCross | K::SdpaMask | K::SdpaBias => {
                4.0 * a * b * c * d * f * if pass == Pass::Bwd { 2.5 / 1.5 } else { 1.0 }
            }
            K::Fold => a * b * d * f,
            K::MaxPool3d | K::AvgPool3d => a * c * d,
            K::CtcLoss => 6.0 * a * b * (2.0 * d + 1.0),
            K::CDist => 3.0 * a * b * c * d,
            K::LstmCell => 30.0 * a * b,
            K::GruCell => 25.0 * a * b,
            K::Cholesky => a * b * b * b / 3.0,
            K::Solve => a * (2.0 / 3.0 * b * b * b + 2.0 * b * b * c),
            K::Inverse => 2.0 * a * b * b * b,
            K::Qr => 8.0 / 3.0 * a * b * b * b,
            K::Eigh => 9.0 * a * b * b * b,
            K::Svd => 21.0 * a * b * b * b,
            K::SolveTriangular => a * b * b * c,
            K::Conv3d | K::Conv3dLast => 2.0 * a * b * c / h * f * g,
            K::ConvTranspose3d => 2.0 * a * b * c / h * d * g,
            K::BatchNormLine => 7.0 * a * b * c,
            K::BatchNormLineEval => 2.0 * a * b * c,
            K::ForeachMul => a,
            K::ForeachNorm => 2.0 * a,
            K::SgdFused => 4.0 * a,
            K::RmspropForeach | K::AdagradForeach => 7.0 * a,
            K::AmsgradForeach => 13.0 * a,
            K::GroupedMm | K::GroupedSums => 2.0 * b * c * d,
        };
        Flops(if pass == Pass::Bwd { 1.5 * forward } else { forward })
    }

    /// Every input read once, every result written once. Picked elements count, not the table that they are picked from.
    pub fn traffic(&self, pass: Pass, e: f64) -> Traffic {
        use ListedKind as K;
        let [a, b, c, d, f, g, h] = self.numbers();
        let backward = pass != Pass::Fwd;
        let passes = if backward { 2.0 } else { 1.0 };
        let (read, written) =
            match self.kind {
                K::Sort | K::CumMax => (a * b * e, a * b * (e + INDEX)),
                K::TopK => (a * b * e, a * c * (e + INDEX)),
                K::KthValue | K::MaxRows => (a * b * e, a * (e + INDEX)),
                K::VarMean | K::LogSumExp => (a * b * e, 2.0 * a * e),
                K::Multinomial => (a * b * e, a * INDEX),
                K::CumSum | K::Fft2R2c => (a * b * c * e, a * b * c * e),
                K::SumInner => (a * b * c * e, a * c * e),
                K::MaxInner => (a * b * c * e, a * c * (e + INDEX)),
                K::SoftmaxInner | K::LogSoftmaxInner | K::BatchNormLine | K::BatchNormLineEval => {
                    (passes * a * b * c * e, a * b * c * e)
                }
                K::PRelu => (passes * a * b * c * e, passes * a * b * c * e),
                K::CrossEntropy2d => (passes * a * b * c * e + a * c * INDEX, passes * a * b * c * e),
                // Rows of the table that are touched are read and written with what is added.
                K::ScatterAdd | K::ScatterReduce | K::IndexAdd | K::IndexPutAdd => {
                    let touched = c.min(a) * b * e;
                    (c * b * e + touched + c * INDEX, touched)
                }
                K::Scatter | K::IndexPut => (c * b * e + c * INDEX, c.min(a) * b * e),
                K::IndexSelect | K::GatherDim => (c.min(a) * b * e + c * INDEX, c * b * e),
                K::GatherRows => (a * c * (e + INDEX), a * c * e),
                K::EmbeddingBag if backward => (c * b * e + c * d * INDEX, a * b * e),
                K::EmbeddingBag => ((c * d).min(a) * b * e + c * d * INDEX, c * b * e),
                K::NonZero => (a, 0.5 * a * INDEX),
                K::MaskedSelect => (a * (1.0 + e), 0.5 * a * e),
                K::Unique | K::ForeachMul => (a * e, a * e),
                K::BinCount => (a * INDEX, b * INDEX),
                K::SearchSorted => (a * e + b * e, a * INDEX),
                K::RandPerm => (0.0, a * INDEX),
                K::FftC2c => (2.0 * a * b * e, 2.0 * a * b * e),
                K::FftR2c | K::FftC2r => (a * b * e, a * b * e),
                K::Fft2C2c => (2.0 * a * b * c * e, 2.0 * a * b * c * e),
                K::GridSample | K::GridSampleNearest => {
                    let (maps, results, grid) = (a * b * c * e, a * b * d * e, 2.0 * a * d * e);
                    if backward {
                        (maps + results + grid, maps + grid)
                    } else {
                        (maps.min(4.0 * results) + grid, results)
                    }
                }
                K::Resize3d | K::Resize3dNearest | K::ReflectionPad => {
                    if backward {
                        (a * c * e, a * b * e)
                    } else {
                        (a * b * e, a * c * e)
                    }
                }
                K::ResizeNearest | K::ResizeBilinear | K::ResizeBilinearLast | K::ResizeBicubic => {
                    if backward { (a * b * d * e, a * b * c * e) } else { (a * b * c * e, a * b * d * e) }
                }
                K::SdpaCross | K::SdpaMask | K::SdpaBias => {
                    let (queries, keys) = (a * b * c * f * e, a * b * d * f * e);
                    let mask = if self.kind == K::SdpaCross { 0.0 } else { g * c * d * e };
                    if backward {
                        // The mask's gradient is that of every head.
                        let learned = if self.kind == K::SdpaBias { a * b * c * d * e } else { 0.0 };
                        (3.0 * queries + 2.0 * keys + mask, queries + 2.0 * keys + learned)
                    } else {
                        (queries + 2.0 * keys + mask, queries)
                    }
                }
                K::Unfold => (a * b * c * e, a * b * d * f * e),
                K::Fold => (a * b * d * f * e, a * b * c * e),
                K::MaxPool3d | K::AvgPool3d => {
                    let results = a * d * if self.kind == K::MaxPool3d { e + INDEX } else { e };
                    if backward { (results, a * b * e) } else { (a * b * e, results) }
                }
                K::CtcLoss => {
                    let (scores, paths) = (a * b * c * e, a * b * (2.0 * d + 1.0) * e);
                    if backward { (scores + paths, scores + paths) } else { (scores.min(paths), paths) }
                }
                K::CDist => (a * (b + c) * d * e, a * b * c * e),
                K::WeightNorm => (passes * a * b * e, a * b * e),
                K::LstmCell => (9.0 * a * b * e, 5.0 * a * b * e),
                K::GruCell => (7.0 * a * b * e, 6.0 * a * b * e),
                K::Cholesky | K::Inverse => (a * b * b * e, a * b * b * e),
                K::Qr | K::Eigh | K::Svd => (a * b * b * e, 2.0 * a * b * b * e),
                K::Solve | K::SolveTriangular => (a * b * (b + c) * e, a * b * c * e),
                K::Conv3d | K::Conv3dLast | K::ConvTranspose3d => {
                    let (input, output, filter) = (a * b * d * e, a * c * f * e, b * c / h * g * e);
                    match pass {
                        Pass::Dgrad => (output + filter, input),
                        Pass::Wgrad => (output + input, filter),
                        _ => (input + filter, output),
                    }
                }
                K::ForeachNorm => (e * a, e * b),
                K::SgdFused | K::RmspropForeach | K::AdagradForeach => (3.0 * e * a, 2.0 * e * a),
                K::AmsgradForeach => (5.0 * e * a, 4.0 * e * a),
                K::GroupedMm => ((b * d + a * d * c) * e, b * c * e),
                K::GroupedSums => ((b + c) * d * e, a * b * c * e),
            };
        Traffic { read: Bytes(read), written: Bytes(written) }
    }

    /// The sizes as people write them.
    pub fn describe(&self) -> String {
        let sizes = self.kind.keys().iter().zip(self.sizes);
        sizes.map(|(key, size)| format!("{key} {size}")).collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hand_computed() {
        // 10 rows of 100 fp32 values sorted: 4000 B read, 4000 B of values and 8000 B of places written
        let sort = Listed::new(ListedKind::Sort, &[10, 100]);
        assert_eq!(sort.traffic(Pass::Fwd, 4.0).total().0, 16_000.0);
        // 8 rows of 1024 values: 2.5 * 8 * 1024 * 10
        assert_eq!(Listed::new(ListedKind::FftR2c, &[8, 1024]).flops(Pass::Fwd).0, 204_800.0);
    }

    #[test]
    fn every_kind_moves_bytes_and_grows() {
        for &kind in ListedKind::ALL {
            assert!(kind.keys().len() <= SIZES, "{}", kind.name());
            for pass in [Pass::Fwd, Pass::Bwd, Pass::Dgrad, Pass::Wgrad] {
                if !kind.phases().has(pass) {
                    continue;
                }
                let small = Listed::new(kind, &[4; SIZES]).traffic(pass, 4.0).total().0;
                let large = Listed::new(kind, &[8; SIZES]).traffic(pass, 4.0).total().0;
                assert!(small > 0.0 && large > small, "{}", kind.name());
            }
        }
    }
}
