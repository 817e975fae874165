//! Any bytes as a table (Parquet, Arrow, CSV, JSON Lines): an answer for every row, or an error of one line.
#![no_main]

use libfuzzer_sys::fuzz_target;
use preflop_core::time::TimeModel;
use preflop_table::{Built, Engine, Question, format};
use std::io::{Seek as _, Write as _};
use std::sync::LazyLock;

static ENGINE: LazyLock<Engine> =
    LazyLock::new(|| Engine::new(TimeModel::embedded(), Box::new(Built)).expect("the engine starts"));

fuzz_target!(|bytes: &[u8]| {
    let one_line = |error: String| assert!(!error.contains('\n'), "{error}");
    let mut file = tempfile::tempfile().expect("a temporary file");
    file.write_all(bytes).and_then(|()| file.rewind()).expect("it can be written");
    let table = match format::open(file, "fuzz") {
        Ok(table) => table,
        Err(error) => return one_line(error.to_string()),
    };
    for batch in table.take(4) {
        let batch = match batch {
            Ok(batch) => batch.slice(0, batch.num_rows().min(16)),
            Err(_) => return,
        };
        match ENGINE.predict(&batch, &Question::default()) {
            Ok(answers) => assert_eq!(answers.num_rows(), batch.num_rows()),
            Err(error) => return one_line(error.to_string()),
        }
    }
});
