//! Recurrent layers as cuDNN runs them: the input's products for all steps at once, then step after step.
//!
//! ```text
//! t_in   = products of the inputs with their weights, over all steps, layers and directions
//!          (backward: gradients of the inputs and of both weights)
//! t_step = product of the state with its weights, one step
//! W      = gates*hidden*hidden                        weights of the state
//! chain  = step + grow*max(t_step - launch, 0) + state*batch*hidden + reuse*W
//! time   = t0 + load*layers*directions*W + input*t_in
//!          + seq * layers^(1 - overlap) * directions^(1 - both) * chain
//! ```
//!
//! Where `launch` is the launch share of the product's own form. The kernel for small states loads its weights
//! once (`load`) and passes over them every step (`reuse`). Layers and directions run side by side in part,
//! hence the exponents. The nine constants are fitted per number format, pass and algorithm.

use super::alignment;
use preflop_gpu::{Architecture, Gpu};
use preflop_learned::trees::{Features, MAX_FEATURES};
use preflop_ops::{Gemm, Layout, Pass, Rnn, RnnKind};
use preflop_units::Bytes;
use preflop_units::dtype::Dtype;
use preflop_units::math::Elementary as _;

/// The algorithm that PyTorch asks cuDNN for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Algorithm {
    /// Weights stay in registers over all steps.
    Persistent,
    /// One kernel for small states.
    Small,
    /// A product and a pointwise kernel per step.
    Standard,
}

/// PyTorch's rule (ATen/native/cudnn/RNN.cpp: `use_persist_common_heuristics`,
/// `use_persist_device_heuristics`, `use_rnn_persist_small_h`).
pub fn algorithm(op: &Rnn, pass: Pass, dtype: Dtype, gpu: &Gpu) -> Algorithm {
    let shape = op.layers == 1
        && !op.bidirectional
        && op.hidden <= 1024
        && op.hidden.is_multiple_of(128)
        && op.input.is_multiple_of(128);
    let b = op.batch;
    let device = match gpu.architecture {
        Architecture::Volta => {
            let batch = (b.is_multiple_of(16) && b != 80 && b != 112) || b == 8;
            let length = (op.seq >= 40 && b <= 128) || (op.seq >= 20 && b <= 96) || (op.seq >= 10 && b <= 32);
            batch && length
        }
        Architecture::Ampere | Architecture::Ada | Architecture::Hopper | Architecture::Blackwell => {
            let fits = b.is_multiple_of(8) && b <= 128;
            // Compute capability 8.6 and chips under 98 SMs are left out.
            let chip = gpu.sm_count >= 98 && gpu.compute_capability != "8.6";
            chip && fits
                && match op.kind {
                    RnnKind::Lstm => true,
                    RnnKind::Gru => false,
                    RnnKind::Tanh => op.hidden < 896 || b < 96,
                }
        }
        _ => false,
    };
    let small = match (op.kind, pass) {
        (RnnKind::Tanh, Pass::Fwd) => 384,
        (RnnKind::Tanh, _) => 256,
        (_, Pass::Fwd) => 192,
        _ => 128,
    };
    if dtype == Dtype::Fp16 && shape && device {
        Algorithm::Persistent
    } else if op.hidden <= small {
        Algorithm::Small
    } else {
        Algorithm::Standard
    }
}

/// Name of the constants and of the interval: pass, number format and algorithm.
pub fn class(op: &Rnn, pass: Pass, dtype: Dtype, gpu: &Gpu) -> String {
    let pass_name = if pass == Pass::Fwd { "fwd" } else { "bwd" };
    let format = match dtype {
        Dtype::Bf16 | Dtype::Fp16 | Dtype::Tf32 | Dtype::Fp32 => dtype.name(),
        _ => Dtype::Fp16.name(),
    };
    format!("rnn/{pass_name}/{format}/{}", algorithm_name(op, pass, dtype, gpu))
}

/// The algorithm in words.
pub fn algorithm_name(op: &Rnn, pass: Pass, dtype: Dtype, gpu: &Gpu) -> &'static str {
    match algorithm(op, pass, dtype, gpu) {
        Algorithm::Persistent => "persistent",
        Algorithm::Small => "small",
        Algorithm::Standard => "standard",
    }
}

/// Number of constants.
pub const CONSTANTS: usize = 9;

/// Their names.
pub const NAMES: [&str; CONSTANTS] =
    ["t0_s", "step_s", "grow", "state_s", "input", "overlap", "both", "load_s", "reuse_s"];

/// Where fits start, and what is used without a fit.
pub const START: [f64; CONSTANTS] = [1e-5, 3e-6, 1.0, 1e-12, 1.0, 0.2, 0.2, 1e-13, 1e-14];

/// Where fits of the kernel for small states start: it keeps its weights and does no products.
pub const SMALL_START: [f64; CONSTANTS] = [5e-6, 4e-7, 0.1, 1e-12, 1.0, 0.05, 0.05, 5e-10, 2e-11];

/// Where the fit of an algorithm starts.
pub fn start(algorithm: Algorithm) -> &'static [f64; CONSTANTS] {
    if algorithm == Algorithm::Small { &SMALL_START } else { &START }
}

/// Launch share of one product, as its closed form has it.
const PRODUCT_LAUNCH_S: f64 = 2.2e-6;

/// The closed form's time and where it goes, in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Terms {
    /// Closed-form time.
    pub time: f64,
    /// Products of the inputs, all steps at once.
    pub input: f64,
    /// Steps in turn.
    pub chain: f64,
    /// Weights loaded before the first step.
    pub load: f64,
    /// Launch and set-up.
    pub launch: f64,
    /// The product of one step by its own form.
    pub step_product: f64,
}

/// No run is faster: FLOPs that the result needs at the datasheet peak; all bytes at the L2's rate; what the L2
/// cannot hold from before at the datasheet DRAM rate.
pub fn floor(op: &Rnn, pass: Pass, dtype: Dtype, gpu: &Gpu) -> f64 {
    let bytes = op.traffic(pass, dtype.size()).total();
    let beyond = (bytes - gpu.l2_size).max(Bytes::ZERO);
    (op.flops(pass) / gpu.peak(dtype)).max(bytes / gpu.l2).max(beyond / gpu.dram).0
}

/// The closed form. `product` gives the time of a matrix product in this format on this GPU; `constants` that
/// are fewer than [`CONSTANTS`] numbers are replaced by [`start`].
pub fn form(
    op: &Rnn,
    pass: Pass,
    dtype: Dtype,
    constants: &[f64],
    product: &dyn Fn(Gemm) -> f64,
    gpu: &Gpu,
) -> Terms {
    let (input, step) = products(op, pass, product);
    let c = constants.first_chunk().unwrap_or(start(algorithm(op, pass, dtype, gpu)));
    let mut t = chain(op, c, input, step);
    t.time = t.time.max(floor(op, pass, dtype, gpu));
    t
}

/// The closed form's time in seconds.
pub fn reference(
    op: &Rnn,
    pass: Pass,
    dtype: Dtype,
    constants: &[f64],
    product: &dyn Fn(Gemm) -> f64,
    gpu: &Gpu,
) -> f64 {
    form(op, pass, dtype, constants, product, gpu).time
}

/// Times of the inputs' products over all layers and directions, and of one step's product.
pub fn products(op: &Rnn, pass: Pass, product: &dyn Fn(Gemm) -> f64) -> (f64, f64) {
    let (rows, gates, h) = (op.batch * op.seq, op.kind.gates() * op.hidden, op.hidden);
    // Without inputs the library is told to skip their products.
    let layer = |inputs: u64| {
        let state = if pass == Pass::Fwd { 0.0 } else { product(Gemm::mm(gates, h, rows, Layout::Tn)) };
        let given = if inputs == 0 {
            0.0
        } else if pass == Pass::Fwd {
            product(Gemm::linear(rows, gates, inputs, false))
        } else {
            product(Gemm::mm(rows, inputs, gates, Layout::Nn))
                + product(Gemm::mm(gates, inputs, rows, Layout::Tn))
        };
        given + state
    };
    // All layers but the first have one shape.
    let mut input = layer(op.input);
    if op.layers > 1 {
        input += (op.layers - 1) as f64 * layer(op.layer_input(1));
    }
    let step = if pass == Pass::Fwd {
        product(Gemm::linear(op.batch, gates, h, false))
    } else {
        product(Gemm::mm(op.batch, h, gates, Layout::Nn))
    };
    (input * op.directions() as f64, step)
}

/// The form from the products' times.
pub fn chain(op: &Rnn, constants: &[f64; CONSTANTS], input: f64, step_product: f64) -> Terms {
    let [t0, step, grow, state, input_share, overlap, both, load, reuse] = *constants;
    let (layers, directions) = (op.layers as f64, op.directions() as f64);
    let cells = op.batch as f64 * op.hidden as f64;
    let weights = op.kind.gates() as f64 * op.hidden as f64 * op.hidden as f64;
    let one = step + grow * (step_product - PRODUCT_LAUNCH_S).max(0.0) + state * cells + reuse * weights;
    let abreast = layers.power(1.0 - overlap.min(1.0)) * directions.power(1.0 - both.min(1.0));
    let chain = op.seq as f64 * abreast * one;
    let input = input_share * input;
    let load = load * layers * directions * weights;
    Terms { time: t0 + load + input + chain, input, chain, load, launch: t0, step_product }
}

/// The forest of a pass.
pub fn forest_name(pass: Pass) -> &'static str {
    if pass == Pass::Fwd { "rnn/fwd" } else { "rnn/bwd" }
}

/// Places of the feature vector that are filled.
pub const FEATURES: usize = 40;

fn log2(x: f64) -> f32 {
    (x.max(1e-30) as f32).binary_log()
}

/// Dimensionless features of the correction.
pub fn features(op: &Rnn, pass: Pass, dtype: Dtype, t: &Terms, gpu: &Gpu) -> Features {
    let mut x = [0.0f32; MAX_FEATURES];
    let mut at = 0;
    let mut push = |v: f32| {
        x[at] = v;
        at += 1;
    };
    let share = |v: f64| log2((v / t.time).max(1e-4));
    let (b, s, h) = (op.batch as f64, op.seq as f64, op.hidden as f64);
    let (layers, directions) = (op.layers as f64, op.directions() as f64);
    let e = dtype.size();
    let gates = op.kind.gates() as f64;
    push(log2(t.time * 1e6));
    push(share(t.input));
    push(share(t.chain));
    push(share(t.load));
    push(share(t.launch));
    push(log2(t.step_product * 1e6));
    push(log2(t.chain / s * 1e6));
    push(log2(b));
    push(log2(s));
    push(log2(op.input as f64));
    push(log2(h));
    push(layers as f32);
    push(directions as f32);
    push(op.kind.gates() as f32);
    push(match dtype {
        Dtype::Fp32 => 0.0,
        Dtype::Tf32 => 1.0,
        Dtype::Bf16 => 2.0,
        _ => 3.0,
    });
    push(match algorithm(op, pass, dtype, gpu) {
        Algorithm::Persistent => 0.0,
        Algorithm::Small => 1.0,
        Algorithm::Standard => 2.0,
    });
    push(f32::from(u8::from(pass != Pass::Fwd)));
    push(log2(s * layers * directions));
    push(log2(b * h));
    push(log2(b * s));
    push(log2(b * s * op.input as f64));
    push(log2(op.weights() * e / gpu.l2_size.0));
    push(log2(gates * h * h * e / gpu.l2_size.0));
    push(log2(gates * h * h * e / f64::from(gpu.sm_count) / gpu.shared_per_sm.0));
    push(log2(b * h / f64::from(gpu.sm_count)));
    push(log2(gates * h * h));
    push(log2(op.input as f64 / h));
    push(log2(alignment(op.hidden, 256) as f64));
    push(log2(alignment(op.input, 64) as f64));
    push(log2(alignment(op.batch, 16) as f64));
    push(f32::from(u8::from(op.batch == 1)));
    push(log2(op.flops(pass).0 / gpu.sustained_peak(dtype).0 / t.time));
    push(log2(gates * h / 64.0 / f64::from(gpu.sm_count)));
    debug_assert!(at <= FEATURES);
    x
}

#[cfg(test)]
mod tests {
    use super::*;
    use preflop_gpu::catalog;
    use proptest::prelude::*;

    fn lstm(batch: u64, input: u64, hidden: u64, layers: u64) -> Rnn {
        Rnn { kind: RnnKind::Lstm, batch, seq: 10, input, hidden, layers, bidirectional: false }
    }

    #[test]
    fn the_rule_of_the_library() {
        let gpu = catalog::find("h200").unwrap();
        let at = |op: &Rnn, pass, dtype| algorithm(op, pass, dtype, &gpu);
        assert_eq!(at(&lstm(64, 512, 1024, 1), Pass::Fwd, Dtype::Fp16), Algorithm::Persistent);
        assert_eq!(at(&lstm(63, 512, 1024, 1), Pass::Fwd, Dtype::Fp16), Algorithm::Standard);
        assert_eq!(at(&lstm(64, 512, 1024, 1), Pass::Fwd, Dtype::Bf16), Algorithm::Standard);
        assert_eq!(at(&lstm(64, 512, 1024, 2), Pass::Fwd, Dtype::Fp16), Algorithm::Standard);
        assert_eq!(at(&lstm(64, 512, 192, 2), Pass::Fwd, Dtype::Fp32), Algorithm::Small);
        assert_eq!(at(&lstm(64, 512, 192, 2), Pass::Bwd, Dtype::Fp32), Algorithm::Standard);
        let gru = Rnn { kind: RnnKind::Gru, ..lstm(64, 512, 1024, 1) };
        assert_eq!(at(&gru, Pass::Fwd, Dtype::Fp16), Algorithm::Standard);
        assert_eq!(class(&gru, Pass::Bwd, Dtype::Tf32, &gpu), "rnn/bwd/tf32/standard");
    }

    #[test]
    fn hand_computed_chain() {
        let op = Rnn { bidirectional: true, ..lstm(4, 32, 50, 4) };
        let c = [1e-5, 2e-6, 0.5, 1e-9, 2.0, 0.5, 1.0, 1e-10, 1e-10];
        let t = chain(&op, &c, 3e-6, 4.2e-6);
        // one step: 2 + 0.5*(4.2 - 2.2) + 200*0.001 + 10,000*0.0001 = 4.2 us; 10 steps x sqrt(4) layers x 1
        assert!((t.chain - 84e-6).abs() < 1e-12, "{}", t.chain);
        // 10 + 84 + 2*3 for the inputs + 8 x 10,000 weights x 0.0001 = 108 us
        assert!((t.time - 108e-6).abs() < 1e-12, "{}", t.time);
    }

    #[test]
    fn counts_the_products() {
        let op = Rnn { bidirectional: true, ..lstm(4, 32, 50, 3) };
        // each product costs its multiply-adds
        let macs = |g: Gemm| (g.m * g.n * g.k) as f64;
        // 40 rows x 200 gates x (32 + 2*100 inputs) x 2 directions; a step 4 x 200 x 50
        assert_eq!(products(&op, Pass::Fwd, &macs), (40.0 * 200.0 * 232.0 * 2.0, 40_000.0));
        // backward: inputs twice and the state's weights once, of three layers
        let bwd = 40.0 * 200.0 * (2.0 * 232.0 + 3.0 * 50.0) * 2.0;
        assert_eq!(products(&op, Pass::Bwd, &macs), (bwd, 40_000.0));
    }

    proptest! {
        #[test]
        fn never_faster_than_physics(
            (b, input, hidden, layers) in (1u64..300, 1u64..3000, 1u64..3000, 1u64..6), bwd: bool,
        ) {
            let gpu = catalog::find("h200").unwrap();
            let pass = if bwd { Pass::Bwd } else { Pass::Fwd };
            let op = lstm(b, input, hidden, layers);
            let t = reference(&op, pass, Dtype::Bf16, &START, &|_| 0.0, &gpu);
            prop_assert!(t.is_finite() && t >= floor(&op, pass, Dtype::Bf16, &gpu));
        }
    }
}
