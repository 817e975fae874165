//! Questions and answers as JSON: what the web page, scripts and other programs ask of Preflop.
//!
//! [`Engine::ask`] is the whole interface: a question goes in as JSON, an answer or an error comes out as JSON. The
//! server puts it behind HTTP; compiled for a browser it can stand behind the page itself. [`document`] describes
//! every question as an OpenAPI document.
//!
//! Architecture invariant: this crate translates between JSON and the core and does no I/O. What needs files or
//! much time comes from the shell: recordings as a [`Profile`](preflop_core::profile::Profile), the scoreboard as a
//! function.

mod about;
mod advise;
pub mod catalogue;
mod choice;
pub mod cluster;
mod compare;
mod delta;
pub mod design;
mod document;
mod engine;
mod error;
mod explore;
mod generate;
mod job;
mod layer;
mod lines;
mod model_file;
pub mod predict;
mod profile;
pub mod question;
mod roofline;
mod schema;
mod types;
mod view;

pub use document::document;
pub use engine::{Engine, Kind};
pub use error::{ApiError, error_json};
pub use model_file::KEPT_BYTES as KEPT_MODEL_BYTES;
pub use profile::ProfileOptions;
pub use types::{python, typescript};
pub use view::PageView;
