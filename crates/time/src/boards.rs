//! Constants of the forms for boards before Hopper.

use crate::fitted::Fitted;
use preflop_gpu::Architecture;
use preflop_kernels::{plain_rivals, rnn_older, skinny, tensor_conv};
use preflop_ops::Pass;

/// What recurrent layers have constants for.
const RECURRENT: [(Architecture, Pass); 4] = [
    (Architecture::Pascal, Pass::Fwd),
    (Architecture::Pascal, Pass::Bwd),
    (Architecture::Volta, Pass::Fwd),
    (Architecture::Volta, Pass::Bwd),
];

fn place(generation: Architecture, pass: Pass) -> usize {
    match (generation, pass) {
        (Architecture::Pascal, Pass::Fwd) => 0,
        (Architecture::Pascal, _) => 1,
        (_, Pass::Fwd) => 2,
        _ => 3,
    }
}

/// The constants by form.
#[derive(Debug, Clone)]
pub struct Boards {
    /// Convolutions on tensor cores.
    pub tensor: tensor_conv::Figures,
    /// fp32 convolutions by FFT and columns, and gradients.
    pub rivals: plain_rivals::Figures,
    /// fp32 products with few rows or columns.
    pub skinny: skinny::Figures,
    /// Recurrent layers: Pascal forward and backward, later generations forward and backward.
    pub recurrent: [rnn_older::Figures; 4],
}

impl Boards {
    /// As they were fitted; what is missing starts where fits do.
    pub fn new(fitted: &Fitted) -> Self {
        Self {
            tensor: figures(fitted, tensor_conv::KEY, tensor_conv::START),
            rivals: figures(fitted, plain_rivals::KEY, plain_rivals::START),
            skinny: figures(fitted, skinny::KEY, skinny::START),
            recurrent: RECURRENT.map(|(generation, pass)| {
                figures(fitted, rnn_older::key(generation, pass), rnn_older::start(generation, pass))
            }),
        }
    }

    /// Constants of recurrent layers.
    pub fn recurrent(&self, generation: Architecture, pass: Pass) -> &rnn_older::Figures {
        &self.recurrent[place(generation, pass)]
    }

    /// The same with other constants of recurrent layers.
    pub fn set_recurrent(&mut self, generation: Architecture, pass: Pass, figures: rnn_older::Figures) {
        self.recurrent[place(generation, pass)] = figures;
    }

    /// All constants by the keys of the file.
    pub fn forms(&self) -> Vec<(&'static str, Vec<f64>)> {
        let mut out = vec![
            (tensor_conv::KEY, self.tensor.to_vec()),
            (plain_rivals::KEY, self.rivals.to_vec()),
            (skinny::KEY, self.skinny.to_vec()),
        ];
        out.extend(
            RECURRENT.iter().zip(&self.recurrent).map(|((g, p), f)| (rnn_older::key(*g, *p), f.to_vec())),
        );
        out
    }
}

fn figures<const N: usize>(fitted: &Fitted, key: &str, start: [f64; N]) -> [f64; N] {
    fitted.form(key).and_then(|f| f.try_into().ok()).unwrap_or(start)
}
