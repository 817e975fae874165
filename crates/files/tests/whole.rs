//! A file is there whole or as it was before, whatever happens to its writer.
#![allow(clippy::unwrap_used)]

use preflop_files::{NewFile, write};
use std::fs;
use std::io::Write as _;
use std::path::Path;

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|e| e.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

#[test]
fn a_new_file_appears_when_it_is_whole() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.txt");
    let mut file = NewFile::create(&path).unwrap();
    file.write_all(b"half").unwrap();
    assert!(!path.exists());
    file.commit().unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"half");
    assert_eq!(names(folder.path()), ["a.txt"]);
}

#[test]
fn a_writer_that_gives_up_leaves_the_old_file_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.txt");
    write(&path, b"old").unwrap();
    let mut file = NewFile::create(&path).unwrap();
    file.write_all(b"new").unwrap();
    drop(file);
    assert_eq!(fs::read(&path).unwrap(), b"old");
    assert_eq!(names(folder.path()), ["a.txt"]);
    write(&path, b"newer").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"newer");
    assert_eq!(names(folder.path()), ["a.txt"]);
}

#[test]
fn folders_and_missing_folders_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    assert!(write(folder.path(), b"x").is_err());
    assert!(write(&folder.path().join("no/such/a.txt"), b"x").is_err());
}

#[cfg(unix)]
mod unix {
    use super::*;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    #[test]
    fn links_stay_links_and_permissions_stay() {
        let folder = tempfile::tempdir().unwrap();
        let (real, link) = (folder.path().join("real.txt"), folder.path().join("link.txt"));
        write(&real, b"old").unwrap();
        fs::set_permissions(&real, fs::Permissions::from_mode(0o640)).unwrap();
        symlink("real.txt", &link).unwrap();
        write(&link, b"new").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read(&real).unwrap(), b"new");
        assert_eq!(fs::metadata(&real).unwrap().permissions().mode() & 0o777, 0o640);
        // A link to nothing makes what it points at; a circle is told.
        symlink("later.txt", folder.path().join("dangling")).unwrap();
        write(&folder.path().join("dangling"), b"x").unwrap();
        assert_eq!(fs::read(folder.path().join("later.txt")).unwrap(), b"x");
        symlink("loop", folder.path().join("loop")).unwrap();
        assert!(write(&folder.path().join("loop"), b"x").is_err());
    }

    #[test]
    fn a_device_is_written_to() {
        write(Path::new("/dev/null"), b"x").unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
        if Path::new("/dev/full").exists() {
            assert!(write(Path::new("/dev/full"), b"x").is_err());
        }
    }
}
