//! Any bytes as an ONNX file: a program that becomes a graph, or an error of one line.
#![no_main]

use libfuzzer_sys::fuzz_target;
use preflop_import::exported::{Bindings, read_onnx};
use std::io::Cursor;

fuzz_target!(|bytes: &[u8]| {
    let sizes = Bindings { batch: None, seq: None, dims: [("batch".to_owned(), 2)].into() };
    for sizes in [Bindings::default(), sizes] {
        match read_onnx(Cursor::new(bytes), "fuzz.onnx", "fuzz", &sizes) {
            Ok(program) => drop(program.into_graph()),
            Err(error) => assert!(!error.to_string().contains('\u{0}') || !bytes.is_empty()),
        }
    }
});
