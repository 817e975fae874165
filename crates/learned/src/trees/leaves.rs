//! A forest by its leaves: which of them a row reaches, and the same trees with other values.

use super::{DEPTH, Features, Forest, LEAF_UNIT, LEAVES, Many, in_order};

impl Forest {
    /// Leaves that the trees of any forest have at most; each has a place below this.
    pub const LEAVES: usize = LEAVES;

    /// The place of the leaf that `x` reaches in each tree.
    pub fn reached(&self, x: &Features) -> Vec<u8> {
        let x = x.map(in_order);
        let trees = self.trees.features.iter().zip(self.trees.thresholds.iter());
        let leaf = |(features, thresholds): (&super::Nodes, &super::Thresholds)| {
            let mut at = 1;
            for _ in 0..DEPTH {
                let above = u32::from_le_bytes(thresholds[at]) < x[usize::from(features[at])];
                at = 2 * at + usize::from(above);
            }
            (at - LEAVES) as u8
        };
        trees.map(leaf).collect()
    }

    /// The values of each tree's leaves, in steps of [`Forest::step`].
    pub fn leaves(&self) -> Vec<[i16; Self::LEAVES]> {
        self.trees.values.iter().map(|values| values.map(i16::from_le_bytes)).collect()
    }

    /// What the values of leaves are multiples of.
    pub fn step() -> f32 {
        LEAF_UNIT
    }

    /// The same trees with other leaves.
    #[must_use]
    pub fn with_leaves(mut self, leaves: &[[i16; Self::LEAVES]]) -> Self {
        for (own, new) in self.trees.values.to_mut().iter_mut().zip(leaves) {
            *own = new.map(i16::to_le_bytes);
        }
        self.many = Many::default();
        self
    }
}
