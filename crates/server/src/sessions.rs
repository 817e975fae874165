//! Who has shown the token: the printed address holds a code that works once, and gives the browser a session.

use crate::config::{ServeError, random_token};
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use subtle::ConstantTimeEq as _;

/// Sessions at once; the oldest goes first.
const MOST: usize = 64;
/// How long a session lasts.
const LIFETIME: Duration = Duration::from_secs(12 * 3600);
/// How long the code in the printed address works.
const CODE_LIFETIME: Duration = Duration::from_secs(30 * 60);

/// The token, the code that is left, and the sessions that are open.
#[derive(Debug)]
pub struct Sessions {
    token: String,
    code: Mutex<Option<(String, Instant)>>,
    open: Mutex<VecDeque<(String, Instant)>>,
}

/// Compares in a time that does not tell how much was right.
fn same(shown: &str, right: &str) -> bool {
    shown.as_bytes().ct_eq(right.as_bytes()).into()
}

impl Sessions {
    /// For this token.
    pub fn new(token: String) -> Result<Self, ServeError> {
        let code = (random_token()?, Instant::now());
        Ok(Self { token, code: Mutex::new(Some(code)), open: Mutex::default() })
    }

    /// The token.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// The code that is left.
    pub fn code(&self) -> Option<String> {
        let code = self.code.lock().unwrap_or_else(PoisonError::into_inner);
        code.as_ref().map(|(code, _)| code.clone())
    }

    /// Is this the token?
    pub fn is_token(&self, shown: &str) -> bool {
        same(shown, &self.token)
    }

    /// A session for the code, which does not work again.
    pub fn exchange(&self, shown: &str) -> Option<String> {
        let mut code = self.code.lock().unwrap_or_else(PoisonError::into_inner);
        let right = code.as_ref().is_some_and(|(c, made)| same(shown, c) && made.elapsed() < CODE_LIFETIME);
        if !right {
            return None;
        }
        *code = None;
        self.start()
    }

    /// A new session.
    pub fn start(&self) -> Option<String> {
        let session = random_token().ok()?;
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.push_back((session.clone(), Instant::now()));
        while open.len() > MOST {
            open.pop_front();
        }
        Some(session)
    }

    /// Is this session open?
    pub fn is_open(&self, shown: &str) -> bool {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|(_, since)| since.elapsed() < LIFETIME);
        open.iter().any(|(session, _)| same(shown, session))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_works_once() {
        let sessions = Sessions::new("correct-horse-battery".into()).unwrap();
        let code = sessions.code().unwrap();
        assert!(sessions.exchange("wrong").is_none());
        let session = sessions.exchange(&code).unwrap();
        assert!(sessions.exchange(&code).is_none() && sessions.code().is_none());
        assert!(sessions.is_open(&session) && !sessions.is_open(&code) && !sessions.is_open(""));
        for _ in 0..MOST {
            sessions.start().unwrap();
        }
        assert!(!sessions.is_open(&session), "the oldest went");
    }
}
