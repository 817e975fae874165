//! Protocol Buffers as they lie in a file, read with limits: no length is trusted before it is held against what is left,
//! nothing is kept but what the caller asks for, and the rest is stepped over without being read.
//!
//! Nothing here recurses: how deep messages nest is decided by who reads them.

use std::io::{BufReader, Read, Seek, SeekFrom};

/// What a name, a path or a short text may have at most; longer ones are no names.
pub const MAX_TEXT: u64 = 64 << 10;
/// Memory that all that is kept of one file may take. The graphs of the largest networks take a tenth of it.
pub const MAX_KEPT: u64 = 128 << 20;

/// What is wrong with a file, without its name.
#[derive(Debug, thiserror::Error)]
#[error("{what} at byte {at}")]
pub struct WireError {
    /// Where.
    at: u64,
    /// What.
    what: String,
}

/// How a field is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wire {
    /// A whole number.
    Varint,
    /// Eight bytes.
    Fixed64,
    /// So many bytes: a text, a message, a list of numbers.
    Bytes(u64),
    /// Four bytes.
    Fixed32,
}

/// A field's number and how it is written; what it holds comes next.
#[derive(Debug, Clone, Copy)]
pub struct Field {
    pub number: u64,
    pub wire: Wire,
}

/// A file of fields.
#[derive(Debug)]
pub struct Fields<R> {
    reader: BufReader<R>,
    /// Bytes read or stepped over.
    at: u64,
    length: u64,
    kept: u64,
}

impl<R: Read + Seek> Fields<R> {
    /// Starts at the beginning of the file.
    pub fn new(mut file: R) -> Result<Self, WireError> {
        let failed = |e: std::io::Error| WireError { at: 0, what: format!("cannot be read ({e})") };
        let length = file.seek(SeekFrom::End(0)).map_err(failed)?;
        file.seek(SeekFrom::Start(0)).map_err(failed)?;
        Ok(Self { reader: BufReader::with_capacity(1 << 16, file), at: 0, length, kept: 0 })
    }

    /// Length of the file: where the outermost message ends.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Where a message of so many bytes that begins here ends.
    pub fn end_of(&self, bytes: u64) -> u64 {
        self.at + bytes
    }

    fn wrong(&self, what: impl Into<String>) -> WireError {
        WireError { at: self.at, what: what.into() }
    }

    /// Counts memory that the caller keeps.
    pub fn keep(&mut self, bytes: usize) -> Result<(), WireError> {
        self.kept = self.kept.saturating_add(bytes as u64);
        if self.kept > MAX_KEPT {
            return Err(self.wrong(format!("its graph takes more than {} MiB", MAX_KEPT >> 20)));
        }
        Ok(())
    }

    fn exact(&mut self, out: &mut [u8]) -> Result<(), WireError> {
        self.reader.read_exact(out).map_err(|e| self.wrong(format!("it ends inside a field ({e})")))?;
        self.at += out.len() as u64;
        Ok(())
    }

    /// A whole number of at most ten bytes, all of them before `end`.
    pub fn varint(&mut self, end: u64) -> Result<u64, WireError> {
        let mut value = 0_u64;
        for shift in (0..70).step_by(7) {
            if self.at >= end {
                return Err(self.wrong("a number runs past the end of its message"));
            }
            let mut byte = [0];
            self.exact(&mut byte)?;
            let bits = u64::from(byte[0] & 0x7f);
            // The tenth byte has room for one bit.
            if shift == 63 && bits > 1 {
                break;
            }
            value |= bits << shift;
            if byte[0] & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(self.wrong("a number has more than 64 bits"))
    }

    /// The next field of a message that ends at `end`; `None` at its end.
    pub fn next(&mut self, end: u64) -> Result<Option<Field>, WireError> {
        if self.at >= end {
            return Ok(None);
        }
        let key = self.varint(end)?;
        let number = key >> 3;
        if number == 0 {
            return Err(self.wrong("a field has no number"));
        }
        let left = |fields: &Self| end - fields.at.min(end);
        let wire = match key & 7 {
            0 => Wire::Varint,
            1 if left(self) >= 8 => Wire::Fixed64,
            5 if left(self) >= 4 => Wire::Fixed32,
            2 => {
                let bytes = self.varint(end)?;
                if bytes > left(self) {
                    return Err(self.wrong(format!(
                        "a field of {bytes} bytes does not fit into the {} that are left",
                        left(self)
                    )));
                }
                Wire::Bytes(bytes)
            }
            1 | 5 => return Err(self.wrong("a number runs past the end of its message")),
            other => return Err(self.wrong(format!("a field is written in an unknown way ({other})"))),
        };
        Ok(Some(Field { number, wire }))
    }

    /// Steps over what a field holds.
    pub fn skip(&mut self, field: Field, end: u64) -> Result<(), WireError> {
        match field.wire {
            Wire::Varint => self.varint(end).map(drop),
            Wire::Fixed64 => self.step(8),
            Wire::Fixed32 => self.step(4),
            Wire::Bytes(bytes) => self.step(bytes),
        }
    }

    fn step(&mut self, bytes: u64) -> Result<(), WireError> {
        let failed = |at| move |e| WireError { at, what: format!("cannot be read ({e})") };
        match i64::try_from(bytes) {
            Ok(step) => self.reader.seek_relative(step).map_err(failed(self.at))?,
            Err(_) => return Err(self.wrong("a field is too long")),
        }
        self.at += bytes;
        Ok(())
    }

    /// A number; 0 where the field holds something else.
    pub fn whole(&mut self, field: Field, end: u64) -> Result<Option<i64>, WireError> {
        if field.wire == Wire::Varint {
            return Ok(Some(self.varint(end)?.cast_signed()));
        }
        self.skip(field, end).map(|()| None)
    }

    /// Bytes, if there are at most so many; longer ones are stepped over.
    pub fn bytes(&mut self, field: Field, end: u64, most: u64) -> Result<Option<Vec<u8>>, WireError> {
        match field.wire {
            Wire::Bytes(n) if n <= most => {
                self.keep(n as usize)?;
                let mut out = vec![0; n as usize];
                self.exact(&mut out)?;
                Ok(Some(out))
            }
            _ => self.skip(field, end).map(|()| None),
        }
    }

    /// A name. One that is too long to be a name is an error, as names tell tensors apart.
    pub fn text(&mut self, field: Field, end: u64) -> Result<Option<String>, WireError> {
        if let Wire::Bytes(n) = field.wire
            && n > MAX_TEXT
        {
            return Err(self.wrong(format!("a name has {n} bytes; {MAX_TEXT} are allowed")));
        }
        let bytes = self.bytes(field, end, MAX_TEXT)?;
        Ok(bytes.map(|b| String::from_utf8_lossy(&b).into_owned()))
    }

    /// Numbers of a list, one by one or packed; what comes after `most` of them is stepped over.
    pub fn wholes(
        &mut self,
        field: Field,
        end: u64,
        most: usize,
        out: &mut Vec<i64>,
    ) -> Result<(), WireError> {
        match field.wire {
            Wire::Varint => {
                let value = self.varint(end)?.cast_signed();
                if out.len() < most {
                    self.keep(size_of::<i64>())?;
                    out.push(value);
                }
                Ok(())
            }
            Wire::Bytes(bytes) => {
                let list = self.end_of(bytes);
                while self.at < list {
                    if out.len() >= most {
                        return self.step(list - self.at);
                    }
                    let value = self.varint(list)?.cast_signed();
                    self.keep(size_of::<i64>())?;
                    out.push(value);
                }
                Ok(())
            }
            _ => self.skip(field, end),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::Cursor;

    fn walk(bytes: &[u8]) -> Result<Vec<u64>, WireError> {
        let mut fields = Fields::new(Cursor::new(bytes))?;
        let end = fields.length();
        let mut numbers = Vec::new();
        while let Some(field) = fields.next(end)? {
            numbers.push(field.number);
            fields.skip(field, end)?;
        }
        Ok(numbers)
    }

    #[test]
    fn fields_are_told_apart_and_stepped_over() {
        // 1: varint 300; 2: three bytes; 3: eight bytes; 4: four bytes.
        let bytes = b"\x08\xac\x02\x12\x03abc\x19\0\0\0\0\0\0\0\0\x25\0\0\0\0";
        assert_eq!(walk(bytes).unwrap(), [1, 2, 3, 4]);
    }

    #[test]
    fn a_packed_list_stops_at_the_number_asked_for() {
        // Field 1: the numbers 1, 2, 3; then field 2.
        let mut fields = Fields::new(Cursor::new(b"\x0a\x03\x01\x02\x03\x10\x07")).unwrap();
        let mut out = Vec::new();
        let field = fields.next(7).unwrap().unwrap();
        fields.wholes(field, 7, 2, &mut out).unwrap();
        assert_eq!(out, [1, 2]);
        let field = fields.next(7).unwrap().unwrap();
        assert_eq!(fields.whole(field, 7).unwrap(), Some(7));
    }

    #[test]
    fn lengths_are_never_trusted() {
        for (bytes, message) in [
            (&[0xff; 11][..], "a number has more than 64 bits at byte 10"),
            (
                b"\x12\x80\x80\x80\x80\x80\x80\x80\x80\x40abc",
                "a field of 4611686018427387904 bytes does not fit",
            ),
            (
                b"\x12\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01abc",
                "a field of 9223372036854775808 bytes does not fit",
            ),
            (b"\x09abc", "a number runs past the end of its message"),
            (b"\x0b", "a field is written in an unknown way (3)"),
            (b"\x02\x00", "a field has no number"),
        ] {
            let said = walk(bytes).unwrap_err().to_string();
            assert!(said.starts_with(message), "{said}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_end(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = walk(&bytes);
        }
    }
}
