//! Answers kept for the next time they are asked for. The same question always has the same answer.

use axum::body::Bytes;
use preflop_api::Kind;
use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

type Key = (Kind, Bytes);

#[derive(Debug, Default)]
struct Kept {
    by_question: HashMap<Key, Bytes>,
    order: VecDeque<Key>,
    bytes: usize,
}

/// Answers by question, the oldest dropped when they take too much room.
#[derive(Debug)]
pub struct Answers {
    kept: Mutex<Kept>,
    most_bytes: usize,
}

/// What an entry takes beside its texts: two keys and their places.
const ENTRY_BYTES: usize = 256;

impl Answers {
    /// Keeps at most so many bytes.
    pub fn new(most_bytes: usize) -> Self {
        Self { kept: Mutex::default(), most_bytes }
    }

    /// A kept answer.
    pub fn get(&self, kind: Kind, question: &Bytes) -> Option<Bytes> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.by_question.get(&(kind, question.clone())).cloned()
    }

    /// Keeps an answer.
    pub fn keep(&self, kind: Kind, question: &Bytes, answer: &Bytes) {
        let size = question.len() + answer.len() + ENTRY_BYTES;
        if size > self.most_bytes / 8 {
            return;
        }
        // The key owns its bytes: a slice of a network buffer would keep all of it alive.
        let key = (kind, Bytes::copy_from_slice(question));
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.by_question.insert(key.clone(), answer.clone()).is_some() {
            return;
        }
        kept.order.push_back(key);
        kept.bytes += size;
        while kept.bytes > self.most_bytes {
            let Some(oldest) = kept.order.pop_front() else { break };
            if let Some(answer) = kept.by_question.remove(&oldest) {
                kept.bytes -= oldest.1.len() + answer.len() + ENTRY_BYTES;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_go_first_and_room_is_bounded() {
        let answers = Answers::new(100_000);
        let body = |i: usize| Bytes::from(format!("{i:04}"));
        for i in 0..1000 {
            answers.keep(Kind::Predict, &body(i), &Bytes::from(vec![b'x'; 1000]));
            answers.keep(Kind::Predict, &body(i), &Bytes::from(vec![b'x'; 1000]));
        }
        assert!(answers.get(Kind::Predict, &body(0)).is_none());
        assert!(answers.get(Kind::Predict, &body(999)).is_some());
        assert!(answers.get(Kind::Layer, &body(999)).is_none());
        let kept = answers.kept.lock().unwrap();
        assert_eq!(kept.by_question.len(), kept.order.len());
        // 1260 bytes each: 79 of them.
        assert_eq!(kept.order.len(), 79);
        assert!(kept.bytes <= 100_000);
    }

    #[test]
    fn huge_answers_are_not_kept() {
        let answers = Answers::new(1000);
        answers.keep(Kind::Predict, &Bytes::from_static(b"q"), &Bytes::from(vec![0; 900]));
        assert!(answers.get(Kind::Predict, &Bytes::from_static(b"q")).is_none());
    }
}
