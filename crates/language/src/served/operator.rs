//! Single operators as a server runs them.

use super::UNSEEN;
use super::attention::{Prompt, Token};
use super::constants::Constants;
use super::forms::Shape;
use super::products::{Operands, Product};
use preflop_core::dtype::Dtype;
use preflop_core::gpu::Gpu;
use preflop_core::ops::{Gemm, GemmKind, Op, OpCall, Pass};
use preflop_core::time::OpPrediction;
use preflop_core::units::Seconds;

/// 90 % of a server's kernels lie between these shares of the prediction on a generation whose kernels were measured; elsewhere between [`UNSEEN`].
const SEEN: [f64; 2] = [0.75, 1.35];

/// The kernel of a server that does the work of an operator: attention in forward, over prompts that see themselves or of one new token, and products in fp8 and fp4.
fn kernel(call: &OpCall) -> Option<(&'static str, Shape)> {
    let a = match &call.op {
        Op::Attention(a) => a,
        Op::Gemm(g) => return product(g, call).map(|p| (p.operands.kind(), Shape::Product(p))),
        _ => return None,
    };
    if call.pass != Pass::Fwd || !matches!(call.dtype, Dtype::Bf16 | Dtype::Fp16 | Dtype::Fp8) {
        return None;
    }
    let (batch, heads, kv_heads, head_dim) =
        (a.batch as f64, a.heads as f64, a.kv_heads as f64, a.head_dim as f64);
    if a.q_len == 1 {
        let (context, kv_bytes) = (a.kv_len as f64, call.dtype.size());
        // One operator by itself is measured again and again.
        let dtype = call.dtype;
        let token = Token { batch, context, heads, kv_heads, head_dim, kv_bytes, dtype, warm: true };
        return Some(("token", Shape::Token(token)));
    }
    let whole = a.causal && a.q_len == a.kv_len;
    let (tokens, dtype) = (a.q_len as f64, call.dtype);
    whole.then_some(("prompt", Shape::Prompt(Prompt { batch, tokens, heads, kv_heads, head_dim, dtype })))
}

/// A product in fp8 (with a scale for each row) or in nvfp4, with the quantising of its activations.
fn product(g: &Gemm, call: &OpCall) -> Option<Product> {
    let operands = match call.dtype {
        Dtype::Fp8 => Operands::Fp8,
        Dtype::Fp4 => Operands::Nvfp4,
        _ => return None,
    };
    let served = g.kind != GemmKind::Bmm && call.pass == Pass::Fwd;
    served.then_some(Product {
        m: g.m as f64,
        n: g.n as f64,
        k: g.k as f64,
        operands,
        sets: Product::PUBLISHED,
    })
}

impl Constants {
    /// A prediction for PyTorch's kernels as one for a server's: other times where its kernels are known, as it was elsewhere.
    pub fn serve(&self, call: &OpCall, eager: OpPrediction, gpu: &Gpu) -> OpPrediction {
        let Some((kind, shape)) = kernel(call) else { return eager };
        let seconds = self.seconds(kind, &shape, gpu);
        let seen = self.measured(kind, gpu);
        let [low, high] = if seen { SEEN } else { UNSEEN };
        OpPrediction {
            time: Seconds(seconds),
            low: Seconds(seconds * low),
            high: Seconds(seconds * high),
            ..eager
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use preflop_core::gpu::catalog;
    use preflop_core::ops::Attention;
    use preflop_core::time::TimeModel;

    #[test]
    fn attention_is_the_servers_and_the_rest_stays() {
        let (model, constants) = (TimeModel::embedded(), Constants::embedded());
        let gpu = catalog::find("h200").unwrap();
        let attention = |q_len, kv_len| {
            let a = Attention {
                batch: 4,
                heads: 32,
                kv_heads: 8,
                q_len,
                kv_len,
                head_dim: 128,
                causal: q_len > 1,
                dropout: false,
            };
            OpCall::fwd(Op::Attention(a), Dtype::Bf16)
        };
        for call in [attention(1, 4096), attention(2048, 2048)] {
            let eager = model.predict(&call, &gpu);
            let served = constants.serve(&call, eager, &gpu);
            assert!(served.time != eager.time && served.low < served.time && served.time < served.high);
        }
        let product = OpCall::fwd(Op::Gemm(Gemm::linear(64, 4096, 4096, false)), Dtype::Fp8);
        let eager = model.predict(&product, &gpu);
        assert!(constants.serve(&product, eager, &gpu).time > eager.time, "it quantises first");
        // Queries in the middle of a prompt are not known.
        let chunk = attention(512, 4096);
        let eager = model.predict(&chunk, &gpu);
        assert_eq!(constants.serve(&chunk, eager, &gpu), eager);
    }
}
