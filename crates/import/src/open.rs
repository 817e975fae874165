//! Opens a recording: unpacks .gz and .zst by their first bytes, tells JSON, CSV and SQLite apart.

use crate::ImportError;
use crate::control::{Control, Stoppable};
use flate2::read::MultiGzDecoder;
use std::fs::File;
use std::io::{self, BufReader, Cursor, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes looked at to tell the kind.
const HEAD: usize = 4096;

/// A recording, opened.
pub struct Source {
    /// File name without its folder.
    pub name: String,
    /// What it holds.
    pub content: Content,
}

/// What a file holds.
#[cfg_attr(not(feature = "nsys"), allow(dead_code, reason = "only that feature reads databases"))]
pub enum Content {
    /// Kineto or Chakra.
    Json(Box<dyn Read>),
    /// Nsight Compute.
    Csv(Box<dyn Read>),
    /// nvprof.
    Nvprof(Box<dyn Read>),
    /// rocprofv3.
    Rocprof(Box<dyn Read>),
    /// VTune: the host alone.
    Vtune(Box<dyn Read>),
    /// Nsight Systems.
    Sqlite(Database),
}

/// An SQLite file on disk, or unpacked in memory.
#[cfg_attr(not(feature = "nsys"), allow(dead_code, reason = "only that feature reads databases"))]
pub enum Database {
    /// On disk.
    Path(PathBuf),
    /// To be unpacked into memory.
    Stream(Box<dyn Read>),
}

/// How the bytes are packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packing {
    Plain,
    Gzip,
    Zstd,
}

/// The packing that the first bytes tell.
pub fn packing(head: &[u8]) -> Packing {
    match head {
        [0x1f, 0x8b, ..] => Packing::Gzip,
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Packing::Zstd,
        _ => Packing::Plain,
    }
}

/// File name without its folder: folders may hold a person's name.
pub fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

/// A reader that fails once it has given more than its limit: packed files may unpack to anything.
struct Limited<R> {
    inner: R,
    limit: u64,
    left: u64,
}

impl<R: Read> Read for Limited<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buffer)?;
        self.left = self
            .left
            .checked_sub(n as u64)
            .ok_or_else(|| io::Error::new(io::ErrorKind::FileTooLarge, (self.limit >> 20).to_string()))?;
        Ok(n)
    }
}

/// Opens a file that may unpack to at most `limit` bytes.
pub fn open(path: &Path, control: &Control) -> Result<Source, ImportError> {
    let name = file_name(path);
    let shown = path.display().to_string();
    let open_error = |source| ImportError::Open { file: shown.clone(), source };
    if path.is_dir() {
        return Err(open_error(io::Error::new(io::ErrorKind::IsADirectory, "it is a directory")));
    }
    let mut file = File::open(path).map_err(open_error)?;
    let head = read_head(&mut file, &name)?;
    if packing(&head) == Packing::Plain && is_sqlite(&head) {
        let length = file.metadata().map_err(|e| read_error(e, &name, 0))?.len();
        whole_database(&head, length, &name)?;
        return Ok(Source { name, content: Content::Sqlite(Database::Path(path.to_path_buf())) });
    }
    unpacked(Box::new(Cursor::new(head).chain(file)), name, control)
}

/// Opens bytes in memory.
pub fn from_bytes(bytes: &[u8], name: &str, control: &Control) -> Result<Source, ImportError> {
    unpacked(Box::new(Cursor::new(bytes.to_vec())), name.to_string(), control)
}

/// A database tells in its head how many pages it has: one that was cut has fewer, and SQLite would read it without a word
/// until it meets the first missing one.
pub fn whole_database(head: &[u8], length: u64, name: &str) -> Result<(), ImportError> {
    let number = |at: usize| head.get(at..at + 4).map_or(0, |b| u32::from_be_bytes([b[0], b[1], b[2], b[3]]));
    let page = match head.get(16..18) {
        // 65536 does not fit into two bytes.
        Some([0, 1]) => 65536,
        Some(&[a, b]) => u64::from(u16::from_be_bytes([a, b])),
        _ => 0,
    };
    // The count is valid where the change counter beside it is the one of the last writer.
    let pages = if number(24) == number(92) { u64::from(number(28)) } else { 0 };
    if page < 512 || length < page || length < pages * page {
        let what = format!("it has {length} bytes of the {} that its head tells", pages * page);
        return Err(ImportError::Truncated { file: name.to_string(), what });
    }
    Ok(())
}

fn is_sqlite(head: &[u8]) -> bool {
    head.starts_with(b"SQLite format 3\0")
}

/// Fills a buffer of at most [`HEAD`] bytes.
fn read_head(reader: &mut impl Read, name: &str) -> Result<Vec<u8>, ImportError> {
    let mut head = Vec::with_capacity(HEAD);
    reader.take(HEAD as u64).read_to_end(&mut head).map_err(|e| read_error(e, name, 0))?;
    Ok(head)
}

/// An I/O error as ours: a packed stream that ends early is a cut-off file.
pub fn read_error(source: io::Error, name: &str, offset: u64) -> ImportError {
    let file = name.to_string();
    match source.kind() {
        io::ErrorKind::UnexpectedEof => {
            ImportError::Truncated { file, what: format!("the packed data ends after {offset} bytes") }
        }
        io::ErrorKind::ConnectionAborted => ImportError::Stopped { file },
        io::ErrorKind::FileTooLarge => {
            ImportError::TooLarge { file, limit_mib: source.to_string().parse().unwrap_or_default() }
        }
        io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput | io::ErrorKind::Other => {
            ImportError::Malformed { file, offset, detail: format!("bad packed data: {source}") }
        }
        _ => ImportError::Read { file, offset, source },
    }
}

fn unpacked(mut reader: Box<dyn Read>, name: String, control: &Control) -> Result<Source, ImportError> {
    let limit = control.unpacked;
    let head = read_head(&mut reader, &name)?;
    if head.is_empty() {
        return Err(ImportError::Empty { file: name });
    }
    let packing = packing(&head);
    let whole: Box<dyn Read> = Box::new(Cursor::new(head).chain(reader));
    let mut plain: Box<dyn Read> = match packing {
        Packing::Plain => whole,
        Packing::Gzip => Box::new(MultiGzDecoder::new(BufReader::with_capacity(1 << 16, whole))),
        Packing::Zstd => {
            let decoder = ruzstd::decoding::StreamingDecoder::new(BufReader::with_capacity(1 << 16, whole))
                .map_err(|e| ImportError::Malformed {
                file: name.clone(),
                offset: 0,
                detail: format!("bad zstd data: {e}"),
            })?;
            Box::new(decoder)
        }
    };
    if limit < u64::MAX {
        plain = Box::new(Limited { inner: plain, limit, left: limit });
    }
    plain = Box::new(Stoppable { inner: plain, stop: Arc::clone(&control.stop) });
    let head = read_head(&mut plain, &name)?;
    let first = head.iter().copied().find(|b| !b.is_ascii_whitespace() && !b"\xef\xbb\xbf".contains(b));
    let text = String::from_utf8_lossy(&head).into_owned();
    let header = text.lines().find(|l| !crate::ncu::is_talk(l)).unwrap_or_default();
    let is_csv = looks_like_ncu(header);
    let rest: Box<dyn Read> = Box::new(Cursor::new(head.clone()).chain(plain));
    let content = match first {
        None => return Err(ImportError::Empty { file: name }),
        Some(_) if is_sqlite(&head) => {
            // The reader goes on where it is counted what it takes.
            Content::Sqlite(Database::Stream(rest))
        }
        Some(b'{') if text.contains(crate::rocprof::MARK) => Content::Rocprof(rest),
        Some(b'{' | b'[') => Content::Json(rest),
        Some(_) if crate::vtune::is_summary(&text) => Content::Vtune(rest),
        Some(_) if crate::nvprof::is_header(header) => Content::Nvprof(rest),
        Some(_) if is_csv => Content::Csv(rest),
        Some(b) => {
            let shown =
                if b.is_ascii_graphic() { format!("`{}`", b as char) } else { format!("byte 0x{b:02x}") };
            let what = format!("it starts with {shown}");
            return Err(ImportError::NotAProfile { file: name, what });
        }
    };
    Ok(Source { name, content })
}

/// An Nsight Compute CSV starts with its header, after lines of the tool's own talk.
fn looks_like_ncu(header: &str) -> bool {
    header.trim_start_matches('\u{feff}').trim_start_matches('"').starts_with("ID")
        && header.contains("Kernel Name")
}
