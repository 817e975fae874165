//! Text on its way to a terminal: control characters that a file brought along are left out, and of escape sequences only
//! those for colour pass, which the tool writes itself.

use std::io::{self, Write};

/// Longest sequence for colour.
const LONGEST_COLOUR: usize = 24;

/// Lets text, line ends, tabs and colours through.
#[derive(Debug)]
pub struct Clean<W> {
    inner: W,
    /// The beginning of something that may have to go, from the last write.
    held: Vec<u8>,
}

/// What the bytes at hand begin with.
enum Next {
    /// So many bytes pass.
    Pass(usize),
    /// So many go.
    Drop(usize),
    /// More bytes are needed to tell.
    Unknown,
}

fn look(bytes: &[u8]) -> Next {
    match bytes {
        [0x1b, b'[', rest @ ..] => {
            let end = rest.iter().position(|b| !(b.is_ascii_digit() || *b == b';'));
            match end.map(|e| (e, rest[e])) {
                Some((e, b'm')) => Next::Pass(e + 3),
                None if rest.len() < LONGEST_COLOUR => Next::Unknown,
                _ => Next::Drop(1),
            }
        }
        // U+202A to U+202E and U+2066 to U+2069 turn text round; U+0080 to U+009F are the other controls.
        [] | [0x1b | 0xc2 | 0xe2] | [0xe2, 0x80 | 0x81] => Next::Unknown,
        [0..=0x1f | 0x7f, ..] => Next::Drop(1),
        [0xc2, 0x80..=0x9f, ..] => Next::Drop(2),
        [0xe2, 0x80, 0xaa..=0xae, ..] | [0xe2, 0x81, 0xa6..=0xa9, ..] => Next::Drop(3),
        _ => Next::Pass(1),
    }
}

/// How many bytes say nothing special.
fn plain(bytes: &[u8]) -> usize {
    let special = |b: &u8| matches!(b, 0..=0x1f | 0x7f | 0xc2 | 0xe2) && !matches!(b, b'\n' | b'\t');
    bytes.iter().position(special).unwrap_or(bytes.len())
}

impl<W: Write> Clean<W> {
    /// Around a writer.
    pub fn new(inner: W) -> Self {
        Self { inner, held: Vec::new() }
    }

    /// The writer.
    pub fn get_ref(&self) -> &W {
        &self.inner
    }

    fn pass(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let n = plain(bytes);
            self.inner.write_all(&bytes[..n])?;
            bytes = &bytes[n..];
            match look(bytes) {
                Next::Pass(n) => {
                    self.inner.write_all(&bytes[..n])?;
                    bytes = &bytes[n..];
                }
                Next::Drop(n) => bytes = &bytes[n..],
                Next::Unknown => {
                    self.held = bytes.to_vec();
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}

impl<W: Write> Write for Clean<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.held.is_empty() {
            self.pass(bytes)?;
        } else {
            let mut all = std::mem::take(&mut self.held);
            all.extend_from_slice(bytes);
            self.pass(&all)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clean(parts: &[&str]) -> String {
        let mut out = Clean::new(Vec::new());
        for part in parts {
            out.write_all(part.as_bytes()).unwrap();
        }
        String::from_utf8(out.inner).unwrap()
    }

    #[test]
    fn text_and_colours_pass_and_nothing_else() {
        for text in ["a\tb\n\u{e9}\u{2588} \u{201c}x\u{201d}", "\u{1b}[1mbold\u{1b}[0m \u{1b}[38;5;9mred"] {
            assert_eq!(clean(&[text]), text);
        }
        // The title of the window, a cleared screen, a cursor, a bell, turned text.
        let evil = "\u{1b}]0;evil\u{7}x\u{1b}[2Jy\u{1b}[1;1Hz\r\u{202e}w\u{9b}31m\u{8}";
        assert_eq!(clean(&[evil]), "]0;evilx[2Jy[1;1Hzw31m");
        assert_eq!(clean(&["\u{1b}", "[2", "Jx", "\u{1b}[", "1m"]), "[2Jx\u{1b}[1m");
    }
}
