//! Any text as a study of a sweep: rows that can be made and asked, or an error of one line.
#![no_main]

use libfuzzer_sys::fuzz_target;
use preflop_core::time::TimeModel;
use preflop_sweep::Study;
use preflop_table::{Built, Engine, Question};
use std::sync::LazyLock;

static ENGINE: LazyLock<Engine> =
    LazyLock::new(|| Engine::new(TimeModel::embedded(), Box::new(Built)).expect("the engine starts"));

fuzz_target!(|text: &str| {
    let one_line = |error: String| assert!(!error.contains('\n'), "{error}");
    let study = match Study::parse(text, "fuzz.toml") {
        Ok(study) => study,
        Err(error) => return one_line(error.to_string()),
    };
    if let Err(error) = study.check(&Built) {
        return one_line(error.to_string());
    }
    let rows = study.rows();
    for from in [0, rows / 2, rows.saturating_sub(2)] {
        match study.batch(from..rows.min(from + 2)) {
            Ok(batch) => match ENGINE.predict(&batch, &Question::default()) {
                Ok(answers) => assert_eq!(answers.num_rows(), batch.num_rows()),
                Err(error) => one_line(error.to_string()),
            },
            Err(error) => one_line(error.to_string()),
        }
    }
});
