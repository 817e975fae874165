//! [`Engine::ask`] for a browser: JSON in, JSON out, over the memory of a WebAssembly module.
//!
//! The page asks for room ([`preflop_room`]), writes its question there as UTF-8, calls [`preflop_ask`] and reads as many bytes as that
//! says from [`preflop_answer`]; with [`preflop_ask_about`] the bytes of a file follow the question's line. Four functions over numbers need no generated bindings, so that nothing but this module is
//! needed to run it, in a page or in Node.
//!
//! Architecture invariant: no unsafe block. Only the four exported names carry the attribute that the language calls
//! unsafe, because two symbols of one name would clash.

use preflop_api::{Engine, error_json};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The engine, made by the first question, and the bytes that go in and out.
struct Core {
    engine: Option<Engine>,
    question: Vec<u8>,
    answer: Vec<u8>,
}

static CORE: Mutex<Core> = Mutex::new(Core { engine: None, question: Vec::new(), answer: Vec::new() });

fn core() -> MutexGuard<'static, Core> {
    CORE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Core {
    /// Makes the engine, if it is not there yet; says whether it is.
    fn ready(&mut self) -> bool {
        if self.engine.is_none() {
            match Engine::new(None) {
                Ok(engine) => self.engine = Some(engine),
                Err(error) => self.answer = error.json().into_bytes(),
            }
        }
        self.engine.is_some()
    }

    fn ask_about(&mut self) {
        if !self.ready() {
            return;
        }
        // The room is given up with the file: it may be large.
        let mut question = std::mem::take(&mut self.question);
        let line = question.iter().position(|b| *b == b'\n').map_or(question.len(), |end| end + 1);
        let file = question.split_off(line);
        self.answer = match (&self.engine, std::str::from_utf8(&question)) {
            (Some(engine), Ok(question)) => engine.ask_about(question, file),
            _ => error_json("malformed", "a question must be UTF-8", None),
        }
        .into_bytes();
    }

    fn ask(&mut self) {
        if !self.ready() {
            return;
        }
        let answer = match (&self.engine, std::str::from_utf8(&self.question)) {
            (Some(engine), Ok(question)) => engine.ask(question),
            _ => error_json("malformed", "a question must be UTF-8", None),
        };
        self.answer = answer.into_bytes();
    }
}

/// Room for a question of that many bytes; the page writes it there.
#[allow(unsafe_code, reason = "exported names carry this attribute; there is no unsafe block")]
#[unsafe(no_mangle)]
pub extern "C" fn preflop_room(length: usize) -> *mut u8 {
    let mut core = core();
    core.question.clear();
    core.question.resize(length, b' ');
    core.question.as_mut_ptr()
}

/// Answers the question that was written; gives the length of the answer.
#[allow(unsafe_code, reason = "exported names carry this attribute; there is no unsafe block")]
#[unsafe(no_mangle)]
pub extern "C" fn preflop_ask() -> usize {
    let mut core = core();
    core.ask();
    core.answer.len()
}

/// Answers a question about a file: what was written is the question as one line, then the bytes of the file. Gives the
/// length of the answer.
#[allow(unsafe_code, reason = "exported names carry this attribute; there is no unsafe block")]
#[unsafe(no_mangle)]
pub extern "C" fn preflop_ask_about() -> usize {
    let mut core = core();
    core.ask_about();
    core.answer.len()
}

/// Where the last answer stands.
#[allow(unsafe_code, reason = "exported names carry this attribute; there is no unsafe block")]
#[unsafe(no_mangle)]
pub extern "C" fn preflop_answer() -> *const u8 {
    core().answer.as_ptr()
}
