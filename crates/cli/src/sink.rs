//! Where answers go: standard output, or a buffer when another program calls a command as a function. Once a file went to
//! standard output (`-o -`), what else there is to say goes to standard error.

use std::cell::{Cell, RefCell};
use std::io::{self, StderrLock, StdoutLock, Write};

thread_local! {
    /// The buffer of the call that is under way in this thread.
    static BUFFER: RefCell<Option<Vec<u8>>> = const { RefCell::new(None) };
    /// Does standard output hold a file?
    static TAKEN: Cell<bool> = const { Cell::new(false) };
}

/// From now on standard output holds a file.
pub fn taken() {
    TAKEN.set(true);
}

/// Does standard output hold a file?
pub fn is_taken() -> bool {
    TAKEN.get()
}

/// Standard output or the buffer.
#[derive(Debug)]
pub enum Sink {
    /// Standard output.
    Stdout(StdoutLock<'static>),
    /// Standard error.
    Stderr(StderrLock<'static>),
    /// The buffer of [`collect`].
    Buffer,
}

impl Sink {
    /// The buffer inside [`collect`], else standard output unless it is taken.
    pub fn current() -> Self {
        match (is_taken(), BUFFER.with_borrow(Option::is_some)) {
            (true, _) => Self::Stderr(io::stderr().lock()),
            (false, true) => Self::Buffer,
            (false, false) => Self::Stdout(io::stdout().lock()),
        }
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Stdout(out) => out.write(bytes),
            Self::Stderr(out) => out.write(bytes),
            Self::Buffer => {
                BUFFER.with_borrow_mut(|buffer| buffer.get_or_insert_default().extend_from_slice(bytes));
                Ok(bytes.len())
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Stdout(out) => out.flush(),
            Self::Stderr(out) => out.flush(),
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
            TAKEN.set(false);
        }
    }
    BUFFER.set(Some(Vec::new()));
    let end = End;
    let result = work();
    let bytes = BUFFER.take().unwrap_or_default();
    drop(end);
    (result, bytes)
}
