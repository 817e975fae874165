//! Where answers go: standard output, or a buffer when another program calls a command as a function.

use std::cell::RefCell;
use std::io::{self, StdoutLock, Write};

thread_local! {
    /// The buffer of the call that is under way in this thread.
    static BUFFER: RefCell<Option<Vec<u8>>> = const { RefCell::new(None) };
}

/// Standard output or the buffer.
#[derive(Debug)]
pub enum Sink {
    /// Standard output.
    Stdout(StdoutLock<'static>),
    /// The buffer of [`collect`].
    Buffer,
}

impl Sink {
    /// The buffer inside [`collect`], else standard output.
    pub fn current() -> Self {
        let collecting = BUFFER.with_borrow(Option::is_some);
        if collecting { Self::Buffer } else { Self::Stdout(io::stdout().lock()) }
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Stdout(out) => out.write(bytes),
            Self::Buffer => {
                BUFFER.with_borrow_mut(|buffer| buffer.get_or_insert_default().extend_from_slice(bytes));
                Ok(bytes.len())
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Stdout(out) => out.flush(),
            Self::Buffer => Ok(()),
        }
    }
}

/// Runs `work` with its answers collected, and gives both.
pub fn collect<T>(work: impl FnOnce() -> T) -> (T, Vec<u8>) {
    /// Ends the collection even when `work` panics.
    struct End;
    impl Drop for End {
        fn drop(&mut self) {
            BUFFER.set(None);
        }
    }
    BUFFER.set(Some(Vec::new()));
    let end = End;
    let result = work();
    let bytes = BUFFER.take().unwrap_or_default();
    drop(end);
    (result, bytes)
}
