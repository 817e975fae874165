//! What a server is told before it starts.

use std::net::IpAddr;
use std::time::Duration;

/// How much the server takes upon itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a question.
    pub question_bytes: usize,
    /// Bytes of an uploaded recording.
    pub upload_bytes: u64,
    /// Bytes that an uploaded recording may unpack to.
    pub unpacked_bytes: u64,
    /// Memory that all recordings being read and explained may take together.
    pub recording_bytes: u64,
    /// Open connections; more wait in the system's queue.
    pub connections: usize,
    /// Questions that are worked on at once.
    pub at_work: usize,
    /// Questions that wait for their turn; more are sent away.
    pub waiting: usize,
    /// Recordings that are received or explained at once.
    pub uploads: usize,
    /// Time for the head of a request, and between two of them.
    pub head: Duration,
    /// Time for the body of a question.
    pub body: Duration,
    /// Time in which at least some bytes of an upload must arrive, and in which a client must take some of an answer.
    pub stall: Duration,
    /// Time for an upload as a whole.
    pub upload: Duration,
    /// Time for an answer.
    pub answer: Duration,
    /// Time for requests under way when the server is told to stop.
    pub shutdown: Duration,
    /// Bytes of answers that are kept for the next time they are asked for.
    pub kept_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        Self {
            question_bytes: 1 << 20,
            upload_bytes: 512 << 20,
            unpacked_bytes: 1 << 30,
            recording_bytes: 300 << 20,
            connections: 1024,
            at_work: cores,
            waiting: 256,
            uploads: 2,
            head: Duration::from_secs(15),
            body: Duration::from_secs(10),
            stall: Duration::from_secs(20),
            upload: Duration::from_secs(600),
            answer: Duration::from_secs(60),
            shutdown: Duration::from_secs(3),
            kept_bytes: 64 << 20,
        }
    }
}

/// Where and for whom the server listens.
#[derive(Debug, Clone)]
pub struct Config {
    /// Address to listen on.
    pub host: IpAddr,
    /// Port; 0 takes a free one.
    pub port: u16,
    /// Listen on an address that others can reach.
    pub allow_remote: bool,
    /// What clients must show. Without it on an address that others can reach, one is made.
    pub token: Option<String>,
    /// Limits.
    pub limits: Limits,
}

/// Why there is no server.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// An address that others can reach needs a word.
    #[error("`{host}` can be reached by others")]
    Remote {
        /// The address.
        host: IpAddr,
    },
    /// A token that can be guessed.
    #[error("the token must have at least {least} characters, all of them letters, digits, `-`, `_` or `.`")]
    Token {
        /// Fewest characters.
        least: usize,
    },
    /// The address cannot be had.
    #[error("cannot listen on {address}: {source}")]
    Bind {
        /// Address and port.
        address: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// The system gave no random bytes.
    #[error("cannot make a token: {detail}")]
    Random {
        /// What the system said.
        detail: String,
    },
    /// No folder for uploads.
    #[error("cannot make a folder for uploads: {source}")]
    Folder {
        /// What the system said.
        source: std::io::Error,
    },
    /// Reading or writing failed in general.
    #[error("the server stopped: {source}")]
    Io {
        /// What the system said.
        source: std::io::Error,
    },
}

/// Fewest characters of a token.
const LEAST_TOKEN: usize = 12;

/// Bytes of a made token: 192 bits.
const TOKEN_BYTES: usize = 24;

/// A new token.
pub fn random_token() -> Result<String, ServeError> {
    let mut bytes = [0u8; TOKEN_BYTES];
    getrandom::fill(&mut bytes).map_err(|e| ServeError::Random { detail: e.to_string() })?;
    Ok(hexadecimal(&bytes))
}

/// Two digits for each byte.
pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    const DIGITS: [char; 16] =
        ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f'];
    bytes.iter().flat_map(|b| [DIGITS[usize::from(b >> 4)], DIGITS[usize::from(b & 15)]]).collect()
}

impl Config {
    /// The token that clients must show, checked or made; `None` where only this machine can ask.
    pub(crate) fn checked_token(&self) -> Result<Option<String>, ServeError> {
        if !self.host.is_loopback() && !self.allow_remote {
            return Err(ServeError::Remote { host: self.host });
        }
        match &self.token {
            Some(token) => {
                let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
                if token.len() < LEAST_TOKEN || !token.chars().all(plain) {
                    return Err(ServeError::Token { least: LEAST_TOKEN });
                }
                Ok(Some(token.clone()))
            }
            None if self.host.is_loopback() => Ok(None),
            None => random_token().map(Some),
        }
    }
}
