//! Recurrent layers as one library call: LSTM, GRU, plain tanh.

use super::{Pass, Traffic};
use preflop_units::Flops;
use serde::{Deserialize, Serialize};

/// Which cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RnnKind {
    /// Four gates.
    Lstm,
    /// Three gates.
    Gru,
    /// One gate.
    Tanh,
}

impl RnnKind {
    /// Gates of the cell.
    pub fn gates(self) -> u64 {
        match self {
            Self::Lstm => 4,
            Self::Gru => 3,
            Self::Tanh => 1,
        }
    }

    /// The name used in operator files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Lstm => "lstm",
            Self::Gru => "gru",
            Self::Tanh => "rnn",
        }
    }
}

/// A stack of recurrent layers over a sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Rnn {
    /// Cell.
    pub kind: RnnKind,
    /// Sequences.
    pub batch: u64,
    /// Time steps.
    pub seq: u64,
    /// Features of the input.
    pub input: u64,
    /// Features of the state.
    pub hidden: u64,
    /// Layers.
    pub layers: u64,
    /// Run in both directions?
    pub bidirectional: bool,
}

impl Rnn {
    /// 1, or 2 when bidirectional.
    pub fn directions(&self) -> u64 {
        if self.bidirectional { 2 } else { 1 }
    }

    /// Input features of layer `l`.
    pub fn layer_input(&self, l: u64) -> u64 {
        if l == 0 { self.input } else { self.hidden * self.directions() }
    }

    /// Weights of all layers, both bias vectors included.
    pub fn weights(&self) -> f64 {
        let (g, h, d) = (self.kind.gates() as f64, self.hidden as f64, self.directions() as f64);
        (0..self.layers.min(1024)).map(|l| d * g * h * (self.layer_input(l) as f64 + h + 2.0)).sum()
    }

    /// The matrix products of input and state; backward does twice as much.
    pub fn flops(&self, pass: Pass) -> Flops {
        let (g, h, d) = (self.kind.gates() as f64, self.hidden as f64, self.directions() as f64);
        let macs: f64 =
            (0..self.layers.min(1024)).map(|l| d * g * h * (self.layer_input(l) as f64 + h)).sum();
        let fwd = 2.0 * self.batch as f64 * self.seq as f64 * macs;
        Flops(if pass == Pass::Fwd { fwd } else { 2.0 * fwd })
    }

    /// Sequence in and out and the weights once; backward about twice that.
    pub fn traffic(&self, pass: Pass, e: f64) -> Traffic {
        let steps = self.batch as f64 * self.seq as f64;
        let x = steps * self.input as f64;
        let y = steps * self.hidden as f64 * self.directions() as f64;
        if pass == Pass::Fwd {
            Traffic::elements(x + self.weights(), y * self.layers as f64, e)
        } else {
            Traffic::elements(x + 2.0 * y * self.layers as f64 + self.weights(), x + self.weights(), e)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lstm_weights_and_flops() {
        let l = Rnn {
            kind: RnnKind::Lstm,
            batch: 3,
            seq: 5,
            input: 10,
            hidden: 20,
            layers: 2,
            bidirectional: true,
        };
        // layer 0: 2*4*20*(10+20+2) = 5,120; layer 1: 2*4*20*(40+20+2) = 9,920
        assert_eq!(l.weights(), 15_040.0);
        // 2*15 * (2*4*20*30 + 2*4*20*60) = 30 * 14,400
        assert_eq!(l.flops(Pass::Fwd).0, 432_000.0);
    }
}
