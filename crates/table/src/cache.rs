//! What was made for one row is kept for the next ones: a GPU with changed figures, the operators of a job.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};

/// A bounded map; when it is full it starts again, which costs little more than the best choice of what to drop, since neighbouring
/// rows ask for the same things.
#[derive(Debug)]
pub(crate) struct Cache<K, V> {
    entries: Mutex<HashMap<K, Arc<V>>>,
    most: usize,
}

impl<K: Eq + Hash, V> Cache<K, V> {
    pub fn new(most: usize) -> Self {
        Self { entries: Mutex::new(HashMap::new()), most }
    }

    /// The kept value, or a new one. Two threads may make the same value at once: that is cheaper than waiting.
    pub fn get<E>(&self, key: K, make: impl FnOnce() -> Result<V, E>) -> Result<Arc<V>, E> {
        let entries = || self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = entries().get(&key) {
            return Ok(Arc::clone(found));
        }
        let made = Arc::new(make()?);
        let mut entries = entries();
        if entries.len() >= self.most {
            entries.clear();
        }
        entries.insert(key, Arc::clone(&made));
        Ok(made)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_made_once_and_their_number_is_bounded() {
        let cache: Cache<u32, u32> = Cache::new(2);
        let mut made = 0;
        for key in [1, 1, 2, 2, 3, 1] {
            let value = cache.get(key, || {
                made += 1;
                Ok::<u32, ()>(key * 10)
            });
            assert_eq!(*value.unwrap(), key * 10);
        }
        // 1, 2, then 3 empties it, then 1 again.
        assert_eq!(made, 4);
        assert!(cache.get(9, || Err("no")).is_err());
    }
}
