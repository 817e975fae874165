//! A writer that is killed at any moment leaves the old file or the new one, and nothing else.
#![cfg(unix)]
#![allow(clippy::unwrap_used)]

use preflop_files::NewFile;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const KILLS: u64 = 200;
const PIECES: usize = 64;
const PIECE: usize = 64 << 10;
/// Names the file that a child is to write.
const TARGET: &str = "PREFLOP_TEST_TARGET";
const LETTER: &str = "PREFLOP_TEST_LETTER";

fn content(letter: u8) -> Vec<u8> {
    vec![letter; PIECES * PIECE]
}

/// What the child does: this test, started again with a target, writes it over and over.
#[test]
fn the_writer() {
    let Some(target) = std::env::var_os(TARGET) else { return };
    let letter = std::env::var(LETTER).unwrap().as_bytes()[0];
    loop {
        let mut file = NewFile::create(Path::new(&target)).unwrap();
        for _ in 0..PIECES {
            file.write_all(&vec![letter; PIECE]).unwrap();
        }
        file.commit().unwrap();
    }
}

#[test]
fn killed_at_two_hundred_moments() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("answer.csv");
    std::fs::write(&target, content(b'a')).unwrap();
    let mut random = 88_172_645_463_325_252_u64;
    let mut left = 0;
    for kill in 0..KILLS {
        let letter = [b'b' + (kill % 20) as u8];
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["the_writer", "--exact"])
            .env(TARGET, &target)
            .env(LETTER, String::from_utf8_lossy(&letter).as_ref())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        // xorshift: any moment of the first fiftieth of a second.
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        std::thread::sleep(Duration::from_micros(2000 + random % 18_000));
        child.kill().unwrap();
        child.wait().unwrap();
        let found = std::fs::read(&target).unwrap();
        assert_eq!(found.len(), PIECES * PIECE, "half a file after kill {kill}");
        assert!(found.iter().all(|b| *b == found[0]), "a mixed file after kill {kill}");
        left = std::fs::read_dir(folder.path()).unwrap().count() - 1;
    }
    // A kill between giving a name and moving it can leave that name; on file systems without unnamed files, each kill can.
    println!("{KILLS} kills left {left} temporary files");
    if cfg!(target_os = "linux") {
        assert!(left <= 4, "{left} temporary files");
    }
}
