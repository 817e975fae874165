//! The folder of uploads: only its owner can look inside, and what servers that died left behind is removed at the start.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// A folder of one server; removed with it.
#[derive(Debug)]
pub struct Uploads {
    folder: tempfile::TempDir,
    /// Held as long as the server lives: others see by it that the folder is in use.
    _lock: File,
}

const LOCK: &str = "in-use";
const PREFIX: &str = "preflop-uploads-";

impl Uploads {
    /// A new folder in the system's folder for temporary files.
    pub fn new() -> io::Result<Self> {
        Self::inside(&std::env::temp_dir())
    }

    fn inside(place: &Path) -> io::Result<Self> {
        clean(place);
        // Made for its owner alone, under a name that nobody can have taken before.
        let mut builder = tempfile::Builder::new();
        builder.prefix(PREFIX);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            builder.permissions(fs::Permissions::from_mode(0o700));
        }
        let folder = builder.tempdir_in(place)?;
        let lock = File::create_new(folder.path().join(LOCK))?;
        lock.lock()?;
        Ok(Self { folder, _lock: lock })
    }

    /// A place for one recording.
    pub fn place(&self) -> io::Result<tempfile::TempDir> {
        tempfile::Builder::new().prefix("recording-").tempdir_in(self.folder.path())
    }
}

/// Removes folders whose server is gone. What belongs to others cannot be opened, and stays.
fn clean(place: &Path) {
    let Ok(entries) = fs::read_dir(place) else { return };
    for entry in entries.filter_map(Result::ok) {
        let is_ours = entry.file_name().to_string_lossy().starts_with(PREFIX);
        if is_ours && entry.file_type().is_ok_and(|t| t.is_dir()) && is_left(&entry.path()) {
            // Somebody else may be removing it too.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn is_left(folder: &Path) -> bool {
    let lock: PathBuf = folder.join(LOCK);
    File::open(lock).is_ok_and(|lock| lock.try_lock().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_dead_server_left_is_removed_and_the_others_stay() {
        let place = tempfile::tempdir().unwrap();
        let alive = Uploads::inside(place.path()).unwrap();
        let recording = alive.place().unwrap();
        let dead = place.path().join("preflop-uploads-dead");
        fs::create_dir(&dead).unwrap();
        File::create_new(dead.join(LOCK)).unwrap();
        fs::create_dir(dead.join("recording-1")).unwrap();
        let other = place.path().join("something-else");
        fs::create_dir(&other).unwrap();
        let next = Uploads::inside(place.path()).unwrap();
        assert!(!dead.exists() && recording.path().exists() && other.exists());
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            let mode = fs::metadata(next.folder.path()).unwrap().permissions().mode();
            assert_eq!(mode & 0o077, 0, "{mode:o}");
        }
    }
}
