//! Recurrent layers: by the form and trees of the measured GPU, and before Hopper by a chain of the library's standard steps.

use super::draft::{Draft, Question, Row, Sketch, Then};
use super::{Bound, TimeModel, plain_as_measured};
use crate::evidence::{Evidence, Library, Nearness};
use preflop_gpu::{Architecture, Gpu};
use preflop_kernels::rnn::{self, Algorithm};
use preflop_kernels::{Machine, gemm, kernels_of, rnn_older, traffic};
use preflop_ops::{Family, Gemm, OpCall, Pass, Rnn};
use preflop_units::Dtype;
use preflop_units::math::Elementary as _;

impl TimeModel {
    pub(super) fn rnn<'a>(&'a self, r: &Rnn, call: &OpCall, gpu: &'a Gpu) -> Sketch<'a> {
        // Libraries that launch step after step were asked for that algorithm, whatever a framework would ask for.
        let standard =
            self.stack.slow_steps || rnn::algorithm(r, call.pass, call.dtype, gpu) == Algorithm::Standard;
        if standard && !plain_as_measured(gpu) {
            return self.older_rnn(r, call, gpu);
        }
        let Evidence { reference, nearness } = self.references.nearest(Library::Own, None, gpu);
        let class = rnn::class(r, call.pass, call.dtype, gpu);
        let there = Machine::of(reference, call.dtype);
        let form = |g: &Gpu| {
            let machine = Machine::of(g, call.dtype).fitted_on(&there);
            let product = |p: Gemm| {
                let constants = self.tile_constants(call.dtype, gemm::class(&p, call.dtype), gpu);
                gemm::form(&p, call.dtype, &constants, &machine).time
            };
            rnn::form(r, call.pass, call.dtype, self.fitted.form(&class).unwrap_or_default(), &product, g)
        };
        let at = form(reference);
        let t = if nearness == Nearness::Here { at } else { form(gpu) };
        let forest = self.fitted.forest(rnn::forest_name(call.pass));
        let draft = Draft {
            reference: t.time,
            at: at.time,
            correction: 0.0,
            interval: self.interval(&class, Family::Rnn, gpu, nearness),
            bound: if t.input > t.chain { Bound::Compute } else { Bound::Latency },
            levels: traffic::streaming(call.traffic(), gpu),
            launches: launches(r, call.pass),
            abreast: abreast(r, call),
        };
        let x = rnn::features(r, call.pass, call.dtype, &at, reference);
        let question = self.question(forest, &Row(&x), || x);
        Sketch { draft, question, then: Then::trusted(Self::trust(gpu, nearness), 1.0) }
    }

    /// Step after step, with products as this GPU runs them. How the library strings them together is the software's: as it was when these boards were
    /// measured, or as on the measured GPU today, whose constants say what steps and products inside a layer take over single ones.
    fn older_rnn<'a>(&'a self, r: &Rnn, call: &OpCall, gpu: &'a Gpu) -> Sketch<'a> {
        let class = rnn::class(r, call.pass, call.dtype, gpu);
        let today: &[f64; rnn::CONSTANTS] =
            self.fitted.form(&class).and_then(|c| c.first_chunk()).unwrap_or(&rnn::START);
        let kernels = kernels_of(gpu);
        let figures = self.boards.recurrent(kernels, call.pass);
        // No library of today runs on Pascal.
        let pascal = kernels == Architecture::Pascal;
        let slow = self.stack.slow_steps || pascal;
        let [forward, backward] = self.stack.pascal_batch_32;
        let poor = match (pascal && r.batch == 32, call.pass) {
            (true, Pass::Fwd) => forward,
            (true, _) => backward,
            _ => 1.0,
        };
        let form = |g: &Gpu| {
            let product = |p: Gemm| self.product_time(&p, call.dtype, g);
            let (input, one) = rnn::products(r, call.pass, &product);
            if slow {
                let abreast = (r.layers * r.directions()) as f64;
                let chain = poor * abreast * rnn_older::chain(r, call.dtype, figures, g);
                return (figures[3] + input + chain, input, chain);
            }
            // Launches take longer at a lower clock.
            let latency = Machine::of(g, call.dtype).latency;
            let mut constants = *today;
            constants[0] *= latency;
            constants[1] *= latency;
            let t = rnn::chain(r, &constants, input, one);
            (t.time.max(rnn::floor(r, call.pass, call.dtype, g)), t.input, t.chain)
        };
        let (time, input, chain) = form(gpu);
        let Evidence { reference, .. } = self.references.nearest(Library::Plain, None, gpu);
        let draft = Draft {
            reference: time,
            at: form(reference).0,
            correction: 0.0,
            interval: self.fitted.unseen_interval("rnn", "rnn"),
            bound: if input > chain { Bound::Compute } else { Bound::Latency },
            levels: traffic::streaming(call.traffic(), gpu),
            launches: launches(r, call.pass),
            abreast: abreast(r, call),
        };
        Sketch { draft, question: Question::nobody(), then: Then::trusted(0.0, 1.0) }
    }
}

/// cuDNN spreads several layers or directions over several streams. Kernel sums of 26 runs of GNMT on an H200 over the times of its
/// layers: 1 + k log2(2 batch), since kernels of larger batches slow each other down.
fn abreast(r: &Rnn, call: &OpCall) -> f64 {
    if r.layers * r.directions() < 2 {
        return 1.0;
    }
    let [forward, backward] = match call.dtype {
        Dtype::Fp32 => [0.25, 0.26],
        Dtype::Tf32 => [0.08, 0.17],
        _ => [0.085, 0.135],
    };
    let k = if call.pass == Pass::Fwd { forward } else { backward };
    1.0 + k * (2.0 * r.batch as f64).binary_log()
}

/// Counted in 26 runs of nine layer-directions of 50 steps: 2.1 to 3.2 kernels a step forward, 3.4 backward.
fn launches(r: &Rnn, pass: Pass) -> f64 {
    let steps = (r.seq * r.layers * r.directions()) as f64;
    (steps * if pass == Pass::Fwd { 2.2 } else { 3.4 }).round()
}

#[cfg(test)]
mod tests {
    use super::*;
    use preflop_gpu::catalog;
    use preflop_ops::{Op, RnnKind};

    #[test]
    fn layers_before_hopper_stay_below_seven_tenths_of_the_fp32_peak() {
        // DeepBench's LSTMs on a V100 pass it from 2048 states and 64 sequences on, without products of inputs; with them nothing was measured.
        let model = TimeModel::embedded();
        for gpu in ["v100", "a100"].map(|name| catalog::find(name).unwrap()) {
            for (hidden, batch) in
                [256, 512, 1024, 2048].into_iter().flat_map(|h| [16, 64, 256].map(|b| (h, b)))
            {
                let layer = Rnn {
                    kind: RnnKind::Lstm,
                    batch,
                    seq: 50,
                    input: hidden,
                    hidden,
                    layers: 1,
                    bidirectional: false,
                };
                for pass in [Pass::Fwd, Pass::Bwd] {
                    let call = OpCall::new(Op::Rnn(layer), pass, Dtype::Fp32);
                    let share = call.flops() / gpu.peak(Dtype::Fp32) / model.predict(&call, &gpu).time;
                    assert!(share < 0.7, "{} {hidden} {batch} {pass:?}: {share}", gpu.name);
                }
            }
        }
    }
}
