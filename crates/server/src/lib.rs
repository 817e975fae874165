//! The web page and the JSON API over HTTP.
//!
//! A request passes from outside to inside: `connection` (sockets, limits on connections and slow clients) ->
//! `guard` (host, origin, token) -> `routes` -> `limits` (how many work and wait) -> the engine of `preflop-api`. The
//! page's files are embedded (`assets`); recordings are streamed to a temporary file (`upload`).
//!
//! Architecture invariant: nothing is computed here. Handlers read a body, ask the engine and write the answer.

mod answers;
mod assets;
mod config;
mod connection;
mod folder;
mod guard;
mod limits;
mod reply;
mod routes;
mod sessions;
mod upload;

// A panic must end one answer, not the server.
#[cfg(panic = "abort")]
compile_error!(
    "the server needs `panic = \"unwind\"`: with `abort`, one failing request would end all of them"
);

pub use assets::application;
pub use config::{Config, Limits, ServeError, random_token};
pub use connection::Server;
