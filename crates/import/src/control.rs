//! What a reader is allowed: memory, shared with the other readers of a server, and to go on at all.

use crate::ImportError;
use preflop_core::profile::Profile;
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Names that differ in one recording. Those of the longest ones are some ten thousands; beyond this, names hold numbers or
/// addresses, and grouping by them says nothing.
const MAX_NAMES: usize = 1_000_000;
/// Memory that one recording may take where the caller names no limit. A trace of 1 GB with nothing but kernels and launches takes some 100 MB, one of the shortest events that there can be four times that.
const MOST_BYTES: u64 = 4 << 30;

/// Memory that several readers share.
#[derive(Debug)]
pub struct Pool {
    limit: u64,
    used: AtomicU64,
}

impl Pool {
    /// A pool of so many bytes.
    pub fn new(limit: u64) -> Arc<Self> {
        Arc::new(Self { limit, used: AtomicU64::new(0) })
    }

    /// Bytes in use.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }
}

/// What one reader has taken from a pool; given back when it is dropped.
#[derive(Debug)]
pub struct Taken {
    pool: Arc<Pool>,
    bytes: u64,
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.give_back();
    }
}

impl Taken {
    /// Takes nothing yet.
    fn new(pool: Arc<Pool>) -> Self {
        Self { pool, bytes: 0 }
    }

    fn give_back(&mut self) {
        self.pool.used.fetch_sub(std::mem::take(&mut self.bytes), Ordering::Relaxed);
    }

    /// Takes so many bytes in all.
    fn grow_to(&mut self, bytes: u64, file: &str) -> Result<(), ImportError> {
        let more = bytes.saturating_sub(self.bytes);
        if more == 0 {
            return Ok(());
        }
        let used = self.pool.used.fetch_add(more, Ordering::Relaxed) + more;
        self.bytes += more;
        if used > self.pool.limit {
            let (file, limit_mib) = (file.to_string(), self.pool.limit >> 20);
            let alone = self.bytes > self.pool.limit;
            // Given back at once: of two that grow side by side one is refused, not both.
            self.give_back();
            return Err(if alone {
                ImportError::Memory { file, limit_mib }
            } else {
                ImportError::Busy { file, limit_mib }
            });
        }
        Ok(())
    }
}

/// How a recording is to be read.
#[derive(Debug, Clone)]
pub struct Control {
    /// Bytes that it may unpack to.
    pub unpacked: u64,
    /// Where its memory comes from.
    pub pool: Arc<Pool>,
    /// Set to end reading.
    pub stop: Arc<AtomicBool>,
}

impl Default for Control {
    /// Without limits, but those of sense.
    fn default() -> Self {
        Self { unpacked: u64::MAX, pool: Pool::new(MOST_BYTES), stop: Arc::default() }
    }
}

/// Watches one reader.
#[derive(Debug)]
pub(crate) struct Meter {
    control: Control,
    taken: Taken,
    file: String,
    /// Bytes held beside the profile: a table, a database.
    beside: u64,
}

impl Meter {
    pub fn new(control: &Control, file: &str) -> Self {
        let taken = Taken::new(Arc::clone(&control.pool));
        Self { control: control.clone(), taken, file: file.to_string(), beside: 0 }
    }

    /// Looks at what a profile has grown to. Called every few thousand records.
    pub fn check(&mut self, profile: &Profile) -> Result<(), ImportError> {
        self.check_with(profile, 0)
    }

    /// The same, with records that are not part of the profile yet.
    pub fn check_with(&mut self, profile: &Profile, more: u64) -> Result<(), ImportError> {
        if self.control.stop.load(Ordering::Relaxed) {
            return Err(ImportError::Stopped { file: self.file.clone() });
        }
        if profile.names.len() > MAX_NAMES {
            return Err(ImportError::Names { file: self.file.clone(), most: MAX_NAMES });
        }
        let bytes = profile.explained_bytes() as u64 + more + self.beside;
        self.taken.grow_to(bytes, &self.file)
    }

    /// Reads all that is left, counting it.
    pub fn read_all(&mut self, reader: &mut dyn Read) -> Result<Vec<u8>, ImportError> {
        const STEP: u64 = 1 << 20;
        let mut bytes = Vec::new();
        loop {
            let before = bytes.len();
            if self.control.stop.load(Ordering::Relaxed) {
                return Err(ImportError::Stopped { file: self.file.clone() });
            }
            reader
                .take(STEP)
                .read_to_end(&mut bytes)
                .map_err(|e| crate::open::read_error(e, &self.file, before as u64))?;
            if bytes.len() == before {
                return Ok(bytes);
            }
            self.beside = bytes.capacity() as u64;
            self.taken.grow_to(self.beside, &self.file)?;
        }
    }

    /// A flag that ends long work of others.
    #[cfg(feature = "nsys")]
    pub fn stop(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.control.stop)
    }

    /// Keeps what was taken for as long as the profile lives.
    pub fn into_taken(self) -> Taken {
        self.taken
    }
}

/// A reader that ends when it is told to.
pub(crate) struct Stoppable<R> {
    pub inner: R,
    pub stop: Arc<AtomicBool>,
}

impl<R: Read> Read for Stoppable<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(io::Error::from(io::ErrorKind::ConnectionAborted));
        }
        self.inner.read(buffer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_readers_share_a_pool_and_give_back() {
        let pool = Pool::new(100 << 20);
        let mut first = Taken::new(Arc::clone(&pool));
        let mut second = Taken::new(Arc::clone(&pool));
        first.grow_to(60 << 20, "a").unwrap();
        assert!(matches!(second.grow_to(60 << 20, "b"), Err(ImportError::Busy { limit_mib: 100, .. })));
        assert_eq!(pool.used(), 60 << 20, "the one that is refused is out of the way of the other");
        first.grow_to(90 << 20, "a").unwrap();
        drop(second);
        assert_eq!(pool.used(), 90 << 20);
        assert!(matches!(first.grow_to(101 << 20, "a"), Err(ImportError::Memory { .. })));
        drop(first);
        assert_eq!(pool.used(), 0);
    }
}
