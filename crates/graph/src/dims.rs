//! Short lists of sizes: the shape of a tensor and how its elements lie in memory.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::Deref;

/// Most dimensions a tensor may have.
pub const MAX_RANK: usize = 6;

/// Up to six sizes (or strides), kept in place so that copying a shape allocates nothing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(try_from = "Vec<u64>", into = "Vec<u64>")]
pub struct Dims {
    len: u8,
    sizes: [u64; MAX_RANK],
}

impl Dims {
    /// The first six of `sizes`; a shape of the graph never has more (the builder checks).
    pub fn new(sizes: &[u64]) -> Self {
        let len = sizes.len().min(MAX_RANK);
        let mut d = Self { len: len as u8, sizes: [0; MAX_RANK] };
        d.sizes[..len].copy_from_slice(&sizes[..len]);
        d
    }

    /// Product of the sizes; saturates instead of overflowing.
    pub fn numel(&self) -> u64 {
        self.iter().fold(1, |n, &s| n.saturating_mul(s))
    }

    /// The same sizes with one replaced.
    #[must_use]
    pub fn with(mut self, at: usize, size: u64) -> Self {
        if at < self.len() {
            self.sizes[at] = size;
        }
        self
    }

    /// Strides of a row-major tensor of this shape.
    #[must_use]
    pub fn contiguous_strides(&self) -> Self {
        let mut strides = *self;
        let mut step = 1_u64;
        for i in (0..self.len()).rev() {
            strides.sizes[i] = step;
            step = step.saturating_mul(self.sizes[i].max(1));
        }
        strides
    }

    /// Is a tensor of this shape and these strides row-major without gaps?
    pub fn is_contiguous(&self, strides: &Self) -> bool {
        let mut step = 1_u64;
        for i in (0..self.len()).rev() {
            if self[i] != 1 {
                if strides[i] != step {
                    return false;
                }
                step = step.saturating_mul(self[i]);
            }
        }
        true
    }

    /// Strides of a fresh tensor that keeps the order of dimensions of an old one, without gaps
    /// (PyTorch's preserve format).
    #[must_use]
    pub fn dense_like(&self, strides: &Self) -> Self {
        let n = self.len();
        let mut order: [usize; MAX_RANK] = [0, 1, 2, 3, 4, 5];
        // Broadcast dimensions (stride 0) go outermost in place; ties keep their order.
        order[..n].sort_by_key(|&i| std::cmp::Reverse(if strides[i] == 0 { u64::MAX } else { strides[i] }));
        let mut out = *self;
        let mut step = 1_u64;
        for &i in order[..n].iter().rev() {
            out.sizes[i] = step;
            step = step.saturating_mul(self.sizes[i].max(1));
        }
        out
    }

    /// The dimensions in another order.
    #[must_use]
    pub fn permuted(&self, order: &[usize]) -> Self {
        let mut out = *self;
        for (to, &from) in order.iter().enumerate().take(self.len()) {
            out.sizes[to] = self.get(from).copied().unwrap_or(1);
        }
        out
    }

    /// The strides that show a tensor of this shape and `strides` under `new` shape without a copy, or
    /// `None` if only a copy can (the rule of PyTorch's `computeStride`).
    pub fn view_strides(&self, strides: &Self, new: &Self) -> Option<Self> {
        if self.numel() != new.numel() {
            return None;
        }
        if self.numel() == 0 || self.is_empty() {
            return Some(new.contiguous_strides());
        }
        let mut out = *new;
        let mut v = new.len();
        let mut base = strides[self.len() - 1];
        let (mut old_n, mut new_n) = (1_u64, 1_u64);
        for i in (0..self.len()).rev() {
            old_n = old_n.saturating_mul(self[i]);
            let chunk_ends = i == 0 || (self[i - 1] != 1 && strides[i - 1] != old_n.saturating_mul(base));
            if chunk_ends {
                while v > 0 && (new_n < old_n || new[v - 1] == 1) {
                    out.sizes[v - 1] = new_n.saturating_mul(base);
                    new_n = new_n.saturating_mul(new[v - 1]);
                    v -= 1;
                }
                if new_n != old_n {
                    return None;
                }
                if i > 0 {
                    base = strides[i - 1];
                    old_n = 1;
                    new_n = 1;
                }
            }
        }
        (v == 0).then_some(out)
    }
}

impl Deref for Dims {
    type Target = [u64];
    fn deref(&self) -> &[u64] {
        &self.sizes[..self.len as usize]
    }
}

impl fmt::Debug for Dims {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl fmt::Display for Dims {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<String> = self.iter().map(u64::to_string).collect();
        write!(f, "[{}]", parts.join(", "))
    }
}

impl From<Dims> for Vec<u64> {
    fn from(d: Dims) -> Self {
        d.to_vec()
    }
}

impl TryFrom<Vec<u64>> for Dims {
    type Error = String;
    fn try_from(v: Vec<u64>) -> Result<Self, String> {
        if v.len() > MAX_RANK {
            return Err(format!("a tensor has {} dimensions, at most {MAX_RANK} are known", v.len()));
        }
        Ok(Self::new(&v))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn views_and_copies_as_in_pytorch() {
        let s = Dims::new(&[2, 3, 4]);
        let c = s.contiguous_strides();
        assert_eq!(&*c, &[12, 4, 1]);
        assert_eq!(s.view_strides(&c, &Dims::new(&[6, 4])).as_deref(), Some(&[4, 1][..]));
        // transposed to [3, 2, 4]: the first two dimensions cannot be merged
        let t = s.permuted(&[1, 0, 2]);
        let ts = c.permuted(&[1, 0, 2]);
        assert!(!t.is_contiguous(&ts));
        assert_eq!(t.view_strides(&ts, &Dims::new(&[6, 4])), None);
        // but the last one can be split
        assert_eq!(t.view_strides(&ts, &Dims::new(&[3, 2, 2, 2])).as_deref(), Some(&[4, 12, 2, 1][..]));
        assert_eq!(&*t.dense_like(&ts), &[4, 12, 1]);
    }

    #[test]
    fn huge_sizes_saturate() {
        assert_eq!(Dims::new(&[u64::MAX, 3]).numel(), u64::MAX);
    }
}
