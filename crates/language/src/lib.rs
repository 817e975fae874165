//! Language models in the words of the people who run them: tokens a second, model FLOPs utilisation, prefill and decode, time to the first
//! token, goodput, dollars per million tokens.
//!
//! [`words`] reads them off any iteration; [`generate`] asks for prefill and decode steps of one model over batches; [`traffic`] lets
//! requests arrive, queue and share steps; [`served`] is what an inference server's own kernels make of the same model.

pub mod generate;
pub mod served;
pub mod traffic;
pub mod words;

pub use words::Words;
