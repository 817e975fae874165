//! Names held once: a trace repeats a few thousand kernel, operator and shape texts millions of times.

use preflop_units::names::one_line;
use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash as _, Hasher as _};

/// A name of a [`Names`] table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct NameId(u32);

impl NameId {
    /// The empty name, which every table holds.
    pub const EMPTY: Self = Self(0);

    /// Is it the empty name?
    pub fn is_empty(self) -> bool {
        self == Self::EMPTY
    }
}

/// A table of names. The index holds hashes instead of a second copy of the texts.
#[derive(Debug, Clone)]
pub struct Names {
    texts: Vec<Box<str>>,
    index: HashMap<u64, u32>,
    text_bytes: usize,
}

impl Default for Names {
    fn default() -> Self {
        Self::new()
    }
}

impl PartialEq for Names {
    fn eq(&self, other: &Self) -> bool {
        self.texts == other.texts
    }
}

fn hash(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

impl Names {
    /// A table with the empty name in it.
    pub fn new() -> Self {
        let mut names = Self { texts: Vec::new(), index: HashMap::new(), text_bytes: 0 };
        names.add("");
        names
    }

    /// The number of this text, new or known. Two texts with one hash take neighbouring slots.
    pub fn add(&mut self, text: &str) -> NameId {
        let mut slot = hash(text);
        loop {
            match self.index.get(&slot) {
                Some(&id) if *self.texts[id as usize] == *text => return NameId(id),
                Some(_) => slot = slot.wrapping_add(1),
                None => {
                    let id = self.texts.len() as u32;
                    self.texts.push(text.into());
                    self.text_bytes += text.len();
                    self.index.insert(slot, id);
                    return NameId(id);
                }
            }
        }
    }

    /// Makes control characters spaces: names come from files and go to terminals. Nothing is added any more.
    pub fn make_visible(&mut self) {
        for text in self.texts.iter_mut().filter(|t| t.chars().any(char::is_control)) {
            *text = one_line(text).into_boxed_str();
        }
    }

    /// The text of a name.
    pub fn text(&self, id: NameId) -> &str {
        self.texts.get(id.0 as usize).map_or("", |t| t)
    }

    /// Names held.
    pub fn len(&self) -> usize {
        self.texts.len()
    }

    /// Memory that the table takes, about.
    pub fn memory_bytes(&self) -> usize {
        // A slot of the index is a hash, a number and a byte of control, and an eighth of the slots is free.
        let slot = 20;
        self.text_bytes + self.texts.capacity() * size_of::<Box<str>>() + self.index.capacity() * slot
    }

    /// Only the empty name?
    pub fn is_empty(&self) -> bool {
        self.texts.len() <= 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_has_one_number() {
        let mut names = Names::new();
        let a = names.add("aten::mm");
        let b = names.add("aten::add");
        assert_ne!(a, b);
        assert_eq!(names.add("aten::mm"), a);
        assert_eq!(names.text(a), "aten::mm");
        assert!(names.add("").is_empty());
        assert_eq!(names.len(), 3);
    }
}
