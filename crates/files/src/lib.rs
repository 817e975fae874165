//! Files that appear whole or not at all.
//!
//! What is written goes to a temporary file in the target's folder, opened as a new one; when all of it is there and has reached
//! the disk, it takes the target's name in one step. A full disk, Ctrl-C, a crash or a lost machine leaves the old
//! file as it was. On Linux the temporary file has no name until then, so that nothing is left behind either; on
//! file systems that cannot do that, and on other systems, it is named `.NAME.preflop-XXXXXX` and removed when the
//! writing fails.
//!
//! Links are followed: what they point at is replaced, and the link stays. Devices, pipes and sockets are written to, never
//! replaced. A file that was there keeps its permissions.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

#[cfg(target_os = "linux")]
mod unnamed;

/// Links that are followed before they are taken for a circle.
const MAX_LINKS: usize = 40;

/// A file being written. Dropped without [`NewFile::commit`], it never was.
#[derive(Debug)]
pub struct NewFile {
    how: How,
    target: PathBuf,
}

#[derive(Debug)]
enum How {
    /// A device or a pipe.
    Through(File),
    /// Without a name yet.
    #[cfg(target_os = "linux")]
    Unnamed(File),
    /// Under another name.
    Named(tempfile::NamedTempFile),
}

impl NewFile {
    /// Starts a file that will be at `path`.
    pub fn create(path: &Path) -> io::Result<Self> {
        let target = followed(path)?;
        let old = match fs::metadata(&target) {
            Ok(old) => Some(old),
            Err(e) if e.kind() == io::ErrorKind::NotFound => None,
            Err(e) => return Err(e),
        };
        if old.as_ref().is_some_and(fs::Metadata::is_dir) {
            return Err(io::Error::new(io::ErrorKind::IsADirectory, "it is a folder"));
        }
        if old.as_ref().is_some_and(|m| !m.is_file()) {
            let file = OpenOptions::new().write(true).open(&target)?;
            return Ok(Self { how: How::Through(file), target });
        }
        if old.as_ref().is_some_and(|m| m.permissions().readonly()) {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, "it is read-only"));
        }
        let how = temporary(&target)?;
        let new = Self { how, target };
        if let Some(old) = old {
            new.file().set_permissions(old.permissions())?;
        }
        Ok(new)
    }

    /// The file itself, for writers that need more than [`Write`].
    pub fn file(&self) -> &File {
        match &self.how {
            How::Through(file) => file,
            #[cfg(target_os = "linux")]
            How::Unnamed(file) => file,
            How::Named(file) => file.as_file(),
        }
    }

    /// Gives it its name, once everything has reached the disk.
    pub fn commit(self) -> io::Result<()> {
        if let How::Through(mut file) = self.how {
            return file.flush();
        }
        self.file().sync_all()?;
        match self.how {
            How::Through(_) => Ok(()),
            #[cfg(target_os = "linux")]
            How::Unnamed(file) => unnamed::give_name(&file, &self.target),
            How::Named(file) => file.persist(&self.target).map(drop).map_err(|e| e.error),
        }
    }
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file().flush()
    }
}

/// Writes a whole file.
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = NewFile::create(path)?;
    file.write_all(bytes)?;
    file.commit()
}

/// Where a link leads in the end, also when nothing is there yet.
fn followed(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_path_buf();
    for _ in 0..MAX_LINKS {
        match fs::read_link(&path) {
            Ok(to) => path = path.parent().unwrap_or(Path::new("")).join(to),
            // No link, or nothing there.
            Err(_) => return Ok(path),
        }
    }
    Err(io::Error::other("its links go round in a circle"))
}

/// The folder of a path; a bare name is in the current one.
fn folder(target: &Path) -> &Path {
    target.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn temporary(target: &Path) -> io::Result<How> {
    #[cfg(target_os = "linux")]
    if let Some(file) = unnamed::create(folder(target))? {
        return Ok(How::Unnamed(file));
    }
    let mut prefix = std::ffi::OsString::from(".");
    prefix.push(target.file_name().unwrap_or_default());
    prefix.push(".preflop-");
    let mut builder = tempfile::Builder::new();
    builder.prefix(&prefix);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        // What any new file gets; the user's mask takes away from it.
        builder.permissions(fs::Permissions::from_mode(0o666));
    }
    Ok(How::Named(builder.tempfile_in(folder(target))?))
}
