//! Low-rank adapters (Hu et al. 2021, arXiv:2106.09685): the model's own parameters are frozen, and beside each linear layer of a decoder two narrow ones are trained.
//!
//! ```text
//! y = x W^T + s (dropout(x) A^T) B^T        A: rank x in, B: out x rank
//! ```
//!
//! Packed (QLoRA, Dettmers et al. 2023, arXiv:2305.14314): those layers' own weights are kept in 4 bits (NF4 with scales quantised once more) and widened before each product.

use super::error::ModelError;
use super::graph::{Binary, Graph, GraphOp, Node, Parameter, TensorInfo, Unary};
use super::{Content, Dims};

/// Names of the layers that get adapters: the projections of attention and of the feed-forward layer.
const LAYERS: [&str; 11] = [
    "q_proj",
    "k_proj",
    "v_proj",
    "o_proj",
    "out_proj",
    "gate_proj",
    "up_proj",
    "down_proj",
    "qkv_proj",
    "gate_up_proj",
    "fc1",
];

/// Widest adapter that is accepted.
pub const MAX_RANK: u64 = 4096;

impl Graph {
    /// The same model with all parameters frozen and adapters of this rank beside its linear layers.
    pub fn with_adapters(self, rank: u64) -> Result<Self, ModelError> {
        self.adapted(rank, false)
    }

    /// As [`Self::with_adapters`], with the weights of those layers in 4 bits.
    pub fn with_packed_adapters(self, rank: u64) -> Result<Self, ModelError> {
        self.adapted(rank, true)
    }

    fn adapted(mut self, rank: u64, packed: bool) -> Result<Self, ModelError> {
        if rank == 0 || rank > MAX_RANK {
            return Err(ModelError::Size { what: "lora", value: rank, limit: MAX_RANK });
        }
        if self.fixed.is_some() {
            return Err(self.no_adapters("it is a recorded iteration"));
        }
        for p in &mut self.parameters {
            p.frozen = true;
        }
        let mut nodes = Vec::with_capacity(self.nodes.len() * 2);
        // Where a node stood before, and where it stands now.
        let mut moved = Vec::with_capacity(self.nodes.len());
        let mut added = false;
        for node in std::mem::take(&mut self.nodes) {
            let wanted = node.op == GraphOp::Linear
                && LAYERS.iter().any(|l| node.name.rsplit('.').next() == Some(*l))
                && !node.parameters.is_empty();
            if wanted {
                added = true;
                self.parameters[node.parameters[0] as usize].packed = packed;
                self.adapt(node, rank, &mut nodes);
            } else {
                nodes.push(node);
            }
            moved.push(nodes.len() as u32 - 1);
        }
        self.nodes = nodes;
        for (_, node) in &mut self.held {
            *node = moved.get(*node as usize).copied().unwrap_or(*node);
        }
        if !added {
            return Err(self.no_adapters("it has no projections by the names that adapters take"));
        }
        Ok(self)
    }

    fn no_adapters(&self, problem: &str) -> ModelError {
        ModelError::Config { field: "lora".to_owned(), problem: format!("`{}`: {problem}", self.name) }
    }

    fn tensor(&mut self, shape: Dims) -> u32 {
        self.tensors.push(TensorInfo { shape, content: Content::Float });
        self.tensors.len() as u32 - 1
    }

    fn adapt(&mut self, mut node: Node, rank: u64, nodes: &mut Vec<Node>) {
        let (x, out) = (node.inputs[0], node.outputs[0]);
        let (wide, given) = (self.tensors[out as usize].shape, self.tensors[x as usize].shape);
        let weight = self.parameters[node.parameters[0] as usize].shape;
        let narrow = given.with(given.len() - 1, rank);
        let [base, dropped, a, b, scaled] = [wide, given, narrow, wide, wide].map(|shape| self.tensor(shape));
        let mut parameter = |part: &str, shape: [u64; 2]| {
            let name = format!("{}.lora_{part}.weight", node.name);
            self.parameters.push(Parameter { name, shape: Dims::new(&shape), frozen: false, packed: false });
            self.parameters.len() as u32 - 1
        };
        let (pa, pb) = (parameter("A", [rank, weight[1]]), parameter("B", [weight[0], rank]));
        let call = |part: &str, op: GraphOp, inputs: &[u32], parameters: &[u32], output: u32| Node {
            name: format!("{}.{part}", node.name),
            op,
            inputs: inputs.to_vec(),
            parameters: parameters.to_vec(),
            outputs: vec![output],
            when: node.when,
            modules: 1,
        };
        let beside = [
            call("lora_dropout", GraphOp::Dropout, &[x], &[], dropped),
            call("lora_A", GraphOp::Linear, &[dropped], &[pa], a),
            call("lora_B", GraphOp::Linear, &[a], &[pb], b),
            call("lora_scale", GraphOp::Unary { kind: Unary::MulScalar, inplace: false }, &[b], &[], scaled),
            call(
                "lora_add",
                GraphOp::Binary { kind: Binary::Add, inplace: false },
                &[base, scaled],
                &[],
                out,
            ),
        ];
        node.outputs[0] = base;
        nodes.push(node);
        nodes.extend(beside);
    }
}

#[cfg(test)]
mod tests {
    use crate::zoo;

    #[test]
    fn adapters_of_a_llama_are_counted_by_hand() {
        let graph = zoo::build("llama-3-8b", Some(1), Some(128)).unwrap().with_adapters(16).unwrap();
        let trained: u64 = graph.parameters.iter().filter(|p| !p.frozen).map(|p| p.shape.numel()).sum();
        // 32 layers of rank 16 times in + out of q, k, v, o, gate, up, down
        let per_layer = (4096 + 4096) * 2 + (4096 + 1024) * 2 + (4096 + 14_336) * 3;
        assert_eq!(trained, 32 * 16 * per_layer);
        crate::check(&graph).unwrap();
    }

    #[test]
    fn projections_are_packed_and_the_rest_is_not() {
        let graph = zoo::build("llama-3-8b", Some(1), Some(128)).unwrap().with_packed_adapters(16).unwrap();
        let packed: u64 = graph.parameters.iter().filter(|p| p.packed).map(|p| p.shape.numel()).sum();
        // q, o; k, v; gate, up, down of 32 layers
        assert_eq!(packed, 32 * (2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14_336));
        assert!(graph.parameters.iter().all(|p| !p.packed || p.frozen));
    }

    #[test]
    fn models_without_projections_are_refused() {
        assert!(zoo::build("resnet50", Some(1), None).unwrap().with_adapters(16).is_err());
        assert!(zoo::build("llama-1b", Some(1), Some(8)).unwrap().with_adapters(0).is_err());
    }
}
