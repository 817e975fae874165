//! Splits a JSON document of any size into the elements of its event array, holding one element at a time.

use crate::ImportError;
use crate::error::short;
use crate::open::read_error;
use memchr::memchr2;
use std::io::Read;

/// Size of one read.
const CHUNK: usize = 1 << 18;
/// The longest element we hold: no recorder writes longer ones, and a broken quote must not eat the memory.
const LONGEST_ELEMENT: usize = 64 << 20;

/// Elements between two looks at the limits.
pub const PAUSE_EVERY: u64 = 4096;

/// What a reader of events does with what the splitter finds.
pub trait Handler {
    /// Is this top-level array the list of events?
    fn is_events(&self, key: &str) -> bool;
    /// Should this top-level value be handed over whole?
    fn wants(&self, key: &str) -> bool;
    /// A top-level value that is wanted.
    fn field(&mut self, key: &str, value: &[u8]);
    /// A top-level value that was skipped unread.
    fn skipped(&mut self, key: &str);
    /// One element of the event array `key`, at this byte. An error is a syntax error, described.
    fn element(&mut self, key: &str, element: &[u8]) -> Result<(), String>;
    /// A pause after some thousand elements, to look at limits.
    fn pause(&mut self) -> Result<(), ImportError> {
        Ok(())
    }
    /// The end; an error says why it is no profile.
    fn finish(&mut self) -> Result<(), String>;
}

/// Reads a whole document.
pub fn read(reader: impl Read, name: &str, handler: &mut impl Handler) -> Result<(), ImportError> {
    let mut stream = Stream::new(reader, name);
    stream.skip_bom()?;
    match stream.peek()? {
        Some(b'[') => stream.events("", handler)?,
        Some(b'{') => stream.object(handler)?,
        _ => return Err(stream.malformed("expected `{` or `[`")),
    }
    if stream.peek()?.is_some() {
        return Err(stream.malformed("there is more after the end of the document"));
    }
    handler.finish().map_err(|what| ImportError::NotAProfile { file: name.to_string(), what })
}

struct Stream<'a, R> {
    reader: R,
    name: &'a str,
    buffer: Vec<u8>,
    /// Next byte to look at.
    at: usize,
    /// Bytes of the document before the buffer.
    before: u64,
    ended: bool,
}

impl<'a, R: Read> Stream<'a, R> {
    fn new(reader: R, name: &'a str) -> Self {
        Self { reader, name, buffer: Vec::with_capacity(2 * CHUNK), at: 0, before: 0, ended: false }
    }

    fn offset(&self) -> u64 {
        self.before + self.at as u64
    }

    fn malformed(&self, detail: &str) -> ImportError {
        ImportError::Malformed {
            file: self.name.to_string(),
            offset: self.offset(),
            detail: detail.to_string(),
        }
    }

    fn truncated(&self, what: &str) -> ImportError {
        ImportError::Truncated {
            file: self.name.to_string(),
            what: format!("it ends after {} bytes {what}", self.before + self.buffer.len() as u64),
        }
    }

    /// Reads more, dropping what lies before `keep`. False at the end of the file.
    fn fill(&mut self, keep: usize) -> Result<bool, ImportError> {
        self.buffer.drain(..keep);
        self.before += keep as u64;
        self.at -= keep;
        if self.ended {
            return Ok(false);
        }
        let old = self.buffer.len();
        self.buffer.resize(old + CHUNK, 0);
        let mut filled = old;
        // A few small reads of an unpacker make one chunk.
        while filled < old + CHUNK / 2 {
            match self.reader.read(&mut self.buffer[filled..]) {
                Ok(0) => {
                    self.ended = true;
                    break;
                }
                Ok(n) => filled += n,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) => return Err(read_error(e, self.name, self.before + filled as u64)),
            }
        }
        self.buffer.truncate(filled);
        Ok(filled > old)
    }

    fn skip_bom(&mut self) -> Result<(), ImportError> {
        self.fill(0)?;
        if self.buffer.starts_with(b"\xef\xbb\xbf") {
            self.at = 3;
        }
        Ok(())
    }

    /// The next byte that is not white space, not taken.
    fn peek(&mut self) -> Result<Option<u8>, ImportError> {
        loop {
            while let Some(&b) = self.buffer.get(self.at) {
                if !matches!(b, b' ' | b'\n' | b'\r' | b'\t') {
                    return Ok(Some(b));
                }
                self.at += 1;
            }
            if !self.fill(self.at)? {
                return Ok(None);
            }
        }
    }

    fn expect(&mut self, wanted: u8, what: &str) -> Result<(), ImportError> {
        match self.peek()? {
            Some(b) if b == wanted => {
                self.at += 1;
                Ok(())
            }
            Some(_) => Err(self.malformed(&format!("expected `{}` {what}", wanted as char))),
            None => Err(self.truncated(&format!("where `{}` {what} should stand", wanted as char))),
        }
    }

    fn object(&mut self, handler: &mut impl Handler) -> Result<(), ImportError> {
        self.expect(b'{', "at the start")?;
        if self.peek()? == Some(b'}') {
            self.at += 1;
            return Ok(());
        }
        loop {
            if self.peek()?.is_some_and(|b| b != b'"') {
                return Err(self.malformed("expected a key in quotes"));
            }
            let (start, end) = self.value("in a key", true)?;
            let key: String = match serde_json::from_slice(&self.buffer[start..end]) {
                Ok(key) => key,
                Err(_) => String::from_utf8_lossy(&self.buffer[start..end]).trim_matches('"').to_string(),
            };
            self.expect(b':', "after a key")?;
            let next = self.peek()?;
            if handler.is_events(&key) && next == Some(b'[') {
                self.events(&key, handler)?;
            } else if handler.wants(&key) {
                let (start, end) = self.value(&format!("in `{}`", short(&key)), true)?;
                handler.field(&key, &self.buffer[start..end]);
            } else {
                self.value(&format!("in `{}`", short(&key)), false)?;
                handler.skipped(&key);
            }
            match self.peek()? {
                Some(b',') => self.at += 1,
                Some(b'}') => {
                    self.at += 1;
                    return Ok(());
                }
                Some(_) => return Err(self.malformed("expected `,` or `}` after a value")),
                None => return Err(self.truncated("before the closing `}`")),
            }
        }
    }

    fn events(&mut self, key: &str, handler: &mut impl Handler) -> Result<(), ImportError> {
        self.expect(b'[', "at the start of the events")?;
        if self.peek()? == Some(b']') {
            self.at += 1;
            return Ok(());
        }
        let mut number = 0_u64;
        loop {
            number += 1;
            self.peek()?;
            let (start, end) = match self.value("in an event", true) {
                Err(ImportError::Truncated { file, .. }) => {
                    let what = format!("it ends in event {number}");
                    return Err(ImportError::Truncated { file, what });
                }
                other => other?,
            };
            if let Err(detail) = handler.element(key, &self.buffer[start..end]) {
                self.at = start;
                return Err(self.malformed(&format!("event {number}: {}", short(&detail))));
            }
            if number.is_multiple_of(PAUSE_EVERY) {
                handler.pause()?;
            }
            match self.peek()? {
                Some(b',') => self.at += 1,
                Some(b']') => {
                    self.at += 1;
                    return Ok(());
                }
                Some(_) => return Err(self.malformed(&format!("expected `,` or `]` after event {number}"))),
                None => return Err(self.truncated(&format!("after event {number}"))),
            }
        }
    }

    /// Takes the value at hand; its place in the buffer if `hold`, otherwise it is let go while it passes by.
    ///
    /// Only brackets and quotes are looked at: the element's own reader finds other mistakes.
    fn value(&mut self, place: &str, hold: bool) -> Result<(usize, usize), ImportError> {
        let mut start = self.at;
        let mut depth = 0_usize;
        let mut in_string = false;
        let mut i = self.at;
        let mut first = true;
        loop {
            if i >= self.buffer.len() {
                if hold && i - start > LONGEST_ELEMENT {
                    self.at = start;
                    return Err(self.malformed(&format!("a value {place} is longer than 64 MiB")));
                }
                let keep = if hold { start } else { i.min(self.buffer.len()) };
                self.at = self.at.max(keep);
                let more = self.fill(keep)?;
                start = start.saturating_sub(keep);
                i -= keep;
                if more {
                    continue;
                }
                // A bare number may end with the file.
                if depth == 0 && !in_string && !first {
                    self.at = i;
                    return Ok((start, i));
                }
                return Err(self.truncated(place));
            }
            if in_string {
                match memchr2(b'"', b'\\', &self.buffer[i..]) {
                    None => i = self.buffer.len(),
                    Some(n) if self.buffer[i + n] == b'"' => {
                        i += n + 1;
                        in_string = false;
                        if depth == 0 {
                            self.at = i;
                            return Ok((start, i));
                        }
                    }
                    // A pair of a backslash and what it escapes.
                    Some(n) => i += n + 2,
                }
                continue;
            }
            match self.buffer[i] {
                b'"' => in_string = true,
                b'{' | b'[' => depth += 1,
                b'}' | b']' if depth > 0 => {
                    depth -= 1;
                    if depth == 0 {
                        self.at = i + 1;
                        return Ok((start, i + 1));
                    }
                }
                b',' | b'}' | b']' | b' ' | b'\n' | b'\r' | b'\t' | b':' if depth == 0 => {
                    if first {
                        self.at = i;
                        return Err(self.malformed(&format!("a value is missing {place}")));
                    }
                    self.at = i;
                    return Ok((start, i));
                }
                _ => {}
            }
            first = false;
            i += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Default)]
    struct Collect {
        elements: Vec<String>,
        fields: Vec<(String, String)>,
        skipped: Vec<String>,
    }

    impl Handler for Collect {
        fn is_events(&self, key: &str) -> bool {
            key == "traceEvents"
        }
        fn wants(&self, key: &str) -> bool {
            key == "want"
        }
        fn field(&mut self, key: &str, value: &[u8]) {
            self.fields.push((key.to_string(), String::from_utf8_lossy(value).into_owned()));
        }
        fn skipped(&mut self, key: &str) {
            self.skipped.push(key.to_string());
        }
        fn element(&mut self, _key: &str, element: &[u8]) -> Result<(), String> {
            self.elements.push(String::from_utf8_lossy(element).into_owned());
            Ok(())
        }
        fn finish(&mut self) -> Result<(), String> {
            Ok(())
        }
    }

    /// Gives a few bytes at a time.
    struct Slow<'a>(&'a [u8], usize);

    impl Read for Slow<'_> {
        fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
            let n = self.1.min(self.0.len()).min(out.len());
            out[..n].copy_from_slice(&self.0[..n]);
            self.0 = &self.0[n..];
            Ok(n)
        }
    }

    fn split(text: &str) -> Result<Collect, ImportError> {
        let mut c = Collect::default();
        read(text.as_bytes(), "t", &mut c).map(|()| c)
    }

    #[test]
    fn elements_fields_and_the_rest() {
        let c = split(r#" {"secret": {"a": "]}\""}, "want": [1, {"x": 2}], "traceEvents": [ {"a": "}{\\"} , [1], 3 ], "n": 1} "#)
            .unwrap();
        assert_eq!(c.elements, vec![r#"{"a": "}{\\"}"#, "[1]", "3"]);
        assert_eq!(c.fields, vec![("want".to_string(), r#"[1, {"x": 2}]"#.to_string())]);
        assert_eq!(c.skipped, vec!["secret", "n"]);
    }

    #[test]
    fn mistakes_are_named() {
        for (text, message) in [
            (
                r#"{"traceEvents": [{"a": 1}, {"a""#,
                "`t` is cut off: it ends in event 2; record or copy it again",
            ),
            (
                r#"{"traceEvents": [{"a": 1} {"#,
                "`t` is malformed at byte 26: expected `,` or `]` after event 1",
            ),
            (r#"{"traceEvents": [,]}"#, "`t` is malformed at byte 17: a value is missing in an event"),
            (r#"{"a": 1} x"#, "`t` is malformed at byte 9: there is more after the end of the document"),
            (r"{a: 1}", "`t` is malformed at byte 1: expected a key in quotes"),
            (
                r#"{"a": 1"#,
                "`t` is cut off: it ends after 7 bytes before the closing `}`; record or copy it again",
            ),
        ] {
            assert_eq!(split(text).err().map(|e| e.to_string()).as_deref(), Some(message), "{text}");
        }
    }

    proptest! {
        /// Any cut of a document is an error, whatever the sizes of the reads; the whole is not.
        #[test]
        fn every_cut_is_noticed(cut in 0_usize..200, step in 1_usize..7) {
            let text = r#"{"deviceProperties": [{"id": 0}], "traceEvents": [{"ph": "X", "name": "a\"b", "args": {"g": [1, 2]}}, {"ph": "M"}], "metadata": {"t": "x"}}"#;
            let bytes = &text.as_bytes()[..cut.min(text.len())];
            let mut c = Collect::default();
            let result = read(Slow(bytes, step), "t", &mut c);
            prop_assert_eq!(result.is_ok(), bytes.len() == text.len());
        }
    }
}
