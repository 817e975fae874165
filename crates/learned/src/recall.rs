//! What trees and choosers answered, kept for the next time they are asked the same: in bounded room, the older giving way.
//!
//! What was learned is evaluated on the GPU of the measurements, whatever GPU is asked for. So questions that are all different still
//! ask the trees the same: another GPU, another optimizer, a layer that two networks share.

use crate::trees::Features;
use foldhash::quality::FixedState;
use std::fmt;
use std::hash::{BuildHasher as _, Hash, Hasher as _};
use std::sync::{Mutex, PoisonError};

/// Answers among which the place of a new one is chosen.
const WAYS: usize = 4;
/// Parts that are locked on their own.
const SHARDS: usize = 64;
/// Seeds of the two halves of a fingerprint: the first digits of pi and of e.
const SEEDS: [u64; 2] = [0x3243_f6a8_885a_308d, 0x2b7e_1516_28ae_d2a6];

/// A row of features and who is asked, in 128 bits: two different ones share them once in 10^38.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asked(u128);

impl Asked {
    /// The row `x`, asked of whoever has this number.
    pub fn new(whom: usize, x: &Features) -> Self {
        let [high, low] = SEEDS.map(|seed| {
            let mut hasher = FixedState::with_seed(seed).build_hasher();
            hasher.write_usize(whom);
            for [a, b] in x.as_chunks::<2>().0 {
                hasher.write_u64(u64::from(a.to_bits()) << 32 | u64::from(b.to_bits()));
            }
            u128::from(hasher.finish())
        });
        Self(high << 64 | low)
    }

    /// Anything else that can be asked.
    pub fn of(question: &impl Hash) -> Self {
        let [high, low] = SEEDS.map(|seed| u128::from(FixedState::with_seed(seed).hash_one(question)));
        Self(high << 64 | low)
    }
}

/// Answers with what was asked, the newest first.
type Set<T> = [Option<(Asked, T)>; WAYS];

/// Answers by what was asked.
pub struct Recall<T> {
    shards: Vec<Mutex<Vec<Set<T>>>>,
}

impl<T: Copy> Recall<T> {
    /// Room for so many answers, taken at once.
    pub fn new(most: usize) -> Self {
        let sets = (most / WAYS / SHARDS).max(1);
        Self { shards: (0..SHARDS).map(|_| Mutex::new(vec![[None; WAYS]; sets])).collect() }
    }

    /// Looks at the answers among which one to this question would be.
    fn among<A>(&self, asked: Asked, look: impl FnOnce(&mut Set<T>) -> A) -> Option<A> {
        let shard = self.shards.get(asked.0 as usize % SHARDS)?;
        let mut sets = shard.lock().unwrap_or_else(PoisonError::into_inner);
        let place = (asked.0 >> 64) as usize % sets.len();
        sets.get_mut(place).map(look)
    }

    /// What was answered, if it is still known.
    pub fn get(&self, asked: Asked) -> Option<T> {
        let known =
            |set: &mut Set<T>| set.iter().flatten().find(|(a, _)| *a == asked).map(|(_, answer)| *answer);
        self.among(asked, known)?
    }

    /// Keeps an answer; the oldest of its set gives way.
    pub fn keep(&self, asked: Asked, answer: T) {
        self.among(asked, |set| {
            set.rotate_right(1);
            set[0] = Some((asked, answer));
        });
    }
}

impl<T: Copy> Clone for Recall<T> {
    /// A copy has the same room and knows nothing: whoever is asked may be numbered anew.
    fn clone(&self) -> Self {
        let sets = self.shards.first().map_or(1, |s| s.lock().unwrap_or_else(PoisonError::into_inner).len());
        Self::new(sets * WAYS * SHARDS)
    }
}

impl<T> fmt::Debug for Recall<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recall").field("shards", &self.shards.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trees::MAX_FEATURES;

    fn row(i: usize) -> Features {
        let mut x = [0.0; MAX_FEATURES];
        x[i % MAX_FEATURES] = 1.0 + i as f32;
        x
    }

    #[test]
    fn an_answer_is_known_until_newer_ones_take_its_room() {
        let recall = Recall::new(1024);
        recall.keep(Asked::new(1, &row(0)), 0.5);
        assert_eq!(recall.get(Asked::new(1, &row(0))), Some(0.5));
        assert_eq!(recall.get(Asked::new(2, &row(0))), None, "somebody else was not asked");
        assert_eq!(recall.get(Asked::new(1, &row(1))), None);
        for i in 1..20_000 {
            recall.keep(Asked::new(1, &row(i)), i as f32);
        }
        assert_eq!(recall.get(Asked::new(1, &row(0))), None);
        assert_eq!(recall.get(Asked::new(1, &row(19_999))), Some(19_999.0));
        let known = (0..20_000).filter(|i| recall.get(Asked::new(1, &row(*i))).is_some()).count();
        assert!((900..=1024).contains(&known), "{known}");
        assert_eq!(recall.clone().get(Asked::new(1, &row(19_999))), None, "a copy knows nothing");
    }
}
