//! A small random forest that says how likely each kernel family is.

use super::trees::Features;

/// Classes the forest tells apart.
pub const CLASSES: usize = 16;

/// One tree: nodes with feature, threshold and children; leaves with a distribution in 1/255.
#[derive(Debug, Clone, PartialEq, Default)]
struct Tree {
    /// Feature, threshold, left, right; a child with the top bit set is a leaf.
    nodes: Vec<(u16, f32, u16, u16)>,
    leaves: Vec<[u8; CLASSES]>,
}

/// A forest of such trees.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Chooser {
    trees: Vec<Tree>,
}

const LEAF: u16 = 0x8000;

impl Chooser {
    /// Adds a tree as its nodes and leaves.
    pub fn push(&mut self, nodes: Vec<(u16, f32, u16, u16)>, leaves: Vec<[u8; CLASSES]>) {
        self.trees.push(Tree { nodes, leaves });
    }

    /// Probability of each class.
    pub fn probabilities(&self, x: &Features) -> [f32; CLASSES] {
        let mut sum = [0.0f32; CLASSES];
        for tree in &self.trees {
            let mut at = if tree.nodes.is_empty() { LEAF } else { 0 };
            // Children always come after their parent, so the walk ends.
            while at & LEAF == 0 {
                let Some((feature, threshold, left, right)) = tree.nodes.get(usize::from(at)) else { break };
                let value = x[usize::from(*feature) % x.len()];
                let next = if value > *threshold { *right } else { *left };
                if next & LEAF == 0 && next <= at {
                    break;
                }
                at = next;
            }
            if let Some(leaf) = tree.leaves.get(usize::from(at & !LEAF)) {
                for (s, v) in sum.iter_mut().zip(leaf) {
                    *s += f32::from(*v);
                }
            }
        }
        let total: f32 = sum.iter().sum();
        if total > 0.0 {
            for s in &mut sum {
                *s /= total;
            }
        }
        sum
    }

    /// Bytes for a file.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = (self.trees.len() as u32).to_le_bytes().to_vec();
        for t in &self.trees {
            out.extend((t.nodes.len() as u32).to_le_bytes());
            out.extend((t.leaves.len() as u32).to_le_bytes());
            for (f, v, l, r) in &t.nodes {
                out.extend(f.to_le_bytes());
                out.extend(v.to_le_bytes());
                out.extend(l.to_le_bytes());
                out.extend(r.to_le_bytes());
            }
            for leaf in &t.leaves {
                out.extend(leaf);
            }
        }
        out
    }

    /// Reads it back; nothing if the bytes are damaged.
    pub fn from_bytes(bytes: &[u8]) -> Option<(Self, &[u8])> {
        fn word(b: &mut &[u8]) -> Option<usize> {
            let (head, tail) = b.split_at_checked(4)?;
            *b = tail;
            Some(u32::from_le_bytes(head.try_into().ok()?) as usize)
        }
        let mut rest = bytes;
        let count = word(&mut rest)?;
        let mut out = Self::default();
        for _ in 0..count {
            let (n, l) = (word(&mut rest)?, word(&mut rest)?);
            let (nodes, after) = rest.split_at_checked(n.checked_mul(10)?)?;
            let (leaves, after) = after.split_at_checked(l.checked_mul(CLASSES)?)?;
            let nodes = nodes
                .chunks_exact(10)
                .map(|b| {
                    (
                        u16::from_le_bytes([b[0], b[1]]),
                        f32::from_le_bytes([b[2], b[3], b[4], b[5]]),
                        u16::from_le_bytes([b[6], b[7]]),
                        u16::from_le_bytes([b[8], b[9]]),
                    )
                })
                .collect();
            let leaves = leaves.chunks_exact(CLASSES).filter_map(|b| b.try_into().ok()).collect();
            out.trees.push(Tree { nodes, leaves });
            rest = after;
        }
        Some((out, rest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::trees::MAX_FEATURES;

    #[test]
    fn chooses_and_round_trips() {
        let mut c = Chooser::default();
        let (mut a, mut b) = ([0; CLASSES], [0; CLASSES]);
        (a[3], b[5]) = (255, 255);
        c.push(vec![(2, 1.0, LEAF, LEAF | 1)], vec![a, b]);
        let mut x = [0.0; MAX_FEATURES];
        assert_eq!(c.probabilities(&x)[3], 1.0);
        x[2] = 2.0;
        assert_eq!(c.probabilities(&x)[5], 1.0);
        let bytes = c.to_bytes();
        assert_eq!(Chooser::from_bytes(&bytes).unwrap().0, c);
        assert!(Chooser::from_bytes(&bytes[..bytes.len() - 1]).is_none());
    }
}
