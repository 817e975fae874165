//! Linux: files without a name (`O_TMPFILE`), which the system drops by itself when their writer ends.

use super::folder;
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};

/// A file without a name in this folder; `None` where the file system has no such files.
pub fn create(folder: &Path) -> io::Result<Option<File>> {
    // Naming it later goes through /proc.
    if !Path::new("/proc/self/fd").exists() {
        return Ok(None);
    }
    let mode = Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::WGRP | Mode::ROTH | Mode::WOTH;
    match rustix::fs::open(folder, OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC, mode) {
        Ok(file) => Ok(Some(File::from(file))),
        // Old kernels take it for a folder to be opened.
        Err(Errno::OPNOTSUPP | Errno::INVAL | Errno::ISDIR) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

/// Gives the file the target's name, in one step also where something has it.
pub fn give_name(file: &File, target: &Path) -> io::Result<()> {
    let source = format!("/proc/self/fd/{}", file.as_raw_fd());
    let link = |to: &Path| rustix::fs::linkat(CWD, source.as_str(), CWD, to, AtFlags::SYMLINK_FOLLOW);
    match link(target) {
        Err(Errno::EXIST) => {}
        done => return done.map_err(io::Error::from),
    }
    // A name cannot be given over another: it takes a free one first, for an instant.
    let place = free_name(target, &link)?;
    fs::rename(&place, target).inspect_err(|_| {
        // The first error is the one to tell.
        let _ = fs::remove_file(&place);
    })
}

fn free_name(target: &Path, link: &impl Fn(&Path) -> Result<(), Errno>) -> io::Result<PathBuf> {
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    for attempt in 0..1000 {
        let place = folder(target).join(format!(".{name}.preflop-{}-{attempt}", std::process::id()));
        match link(&place) {
            Ok(()) => return Ok(place),
            Err(Errno::EXIST) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Err(io::Error::from(io::ErrorKind::AlreadyExists))
}
