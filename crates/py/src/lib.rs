//! `preflop._core`: the program as a Python module.
//!
//! The program already is two functions: `run` is `preflop ...` in a terminal, `call` gives back what it would
//! print. Tables and sweeps, whose rows are too many for text, come and go as Arrow (`table.rs`). Everything that knows PyTorch is Python (`python/preflop`); everything that knows GPUs is in the core.

#[cfg(feature = "python")]
mod table;

#[cfg(feature = "python")]
#[pyo3::pymodule]
mod _core {
    #[pymodule_export]
    use super::table::{Sweep, predict_table};
    use pyo3::exceptions::{PyRuntimeError, PyValueError};
    use pyo3::prelude::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    /// Version of the package.
    #[pymodule_export]
    const VERSION: &str = env!("CARGO_PKG_VERSION");

    /// Runs the program with the arguments after its name and gives its exit status.
    #[pyfunction]
    #[allow(clippy::needless_pass_by_value)]
    fn run(py: Python<'_>, args: Vec<String>) -> PyResult<u8> {
        let args = std::iter::once("preflop".to_owned()).chain(args);
        py.detach(|| guarded(|| preflop_cli::run(args)))
    }

    /// What a command would print on standard output.
    ///
    /// Raises `ValueError(message, hint)` for bad input.
    #[pyfunction]
    #[allow(clippy::needless_pass_by_value)]
    fn call(py: Python<'_>, args: Vec<String>) -> PyResult<String> {
        let answer = py.detach(|| guarded(|| preflop_cli::call(args)))?;
        answer.map_err(|failure| PyValueError::new_err((failure.message, failure.hint)))
    }

    /// A fault of ours is an exception too, not the end of the interpreter.
    fn guarded<T>(work: impl FnOnce() -> T) -> PyResult<T> {
        catch_unwind(AssertUnwindSafe(work)).map_err(|panic| {
            let said = panic.downcast_ref::<String>().map(String::as_str);
            let said = said.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
            PyRuntimeError::new_err(format!("a fault in preflop: {said}"))
        })
    }
}
