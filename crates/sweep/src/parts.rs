//! Parts of a sweep on disk: each a Parquet file that appears whole or not at all.

use crate::error::StudyError;
use preflop_files::NewFile;
use preflop_table::format::{Assembler, Format, errors_of};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};

/// What the parts of a folder belong to. Parts of another study, of other files that it names or of another version are never mixed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    /// Version of the program.
    pub version: String,
    /// Checksum of the study and of the files that it names.
    pub study: String,
    /// Rows in all.
    pub rows: u64,
    /// Rows of a part.
    pub part_rows: u64,
}

impl About {
    /// How many parts there are.
    pub fn parts(&self) -> u64 {
        self.rows.div_ceil(self.part_rows.max(1))
    }
}

/// Says what the parts belong to. Readers of partitioned Parquet skip files that begin so.
const ABOUT: &str = "_preflop.json";

/// A folder of parts.
#[derive(Debug, Clone)]
pub struct Parts {
    folder: PathBuf,
    about: About,
}

impl Parts {
    /// The folder of parts beside a file that is to be written.
    pub fn beside(target: &Path) -> PathBuf {
        let mut name = target.file_name().unwrap_or_default().to_os_string();
        name.push(".parts");
        target.with_file_name(name)
    }

    /// Opens a folder, or makes it. Parts of something else are an error, or thrown away with `restart`.
    pub fn open(folder: &Path, about: About, restart: bool) -> Result<Self, StudyError> {
        let parts = Self { folder: folder.to_path_buf(), about };
        let path = folder.join(ABOUT);
        if restart {
            parts.clear()?;
        }
        match fs::read(&path) {
            Ok(bytes) => {
                let there: Option<About> = serde_json::from_slice(&bytes).ok();
                let what = match there {
                    Some(there) if there == parts.about => None,
                    Some(there) if there.version != parts.about.version => {
                        Some(format!("version {}", there.version))
                    }
                    Some(there) if there.rows != parts.about.rows => Some(format!("{} rows", there.rows)),
                    _ => Some("another study, or a file that it names has changed".to_string()),
                };
                if let Some(what) = what {
                    return Err(StudyError::Other { folder: folder.to_path_buf(), what });
                }
            }
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                fs::create_dir_all(folder).map_err(StudyError::io("write", folder))?;
                let stranger = fs::read_dir(folder).map_err(StudyError::io("read", folder))?.next().is_some();
                if stranger {
                    let what = "it is not empty, and does not say what it holds".to_string();
                    return Err(StudyError::Other { folder: folder.to_path_buf(), what });
                }
                let bytes = serde_json::to_vec_pretty(&parts.about).unwrap_or_default();
                preflop_files::write(&path, &bytes).map_err(StudyError::io("write", &path))?;
            }
            Err(e) => return Err(StudyError::io("read", &path)(e)),
        }
        Ok(parts)
    }

    /// The file of a part.
    pub fn path(&self, part: u64) -> PathBuf {
        self.folder.join(format!("part-{part:08}.parquet"))
    }

    /// Is the part there?
    pub fn has(&self, part: u64) -> bool {
        self.path(part).is_file()
    }

    /// Keeps a part.
    pub fn keep(&self, part: u64, bytes: &[u8]) -> Result<(), StudyError> {
        let path = self.path(part);
        preflop_files::write(&path, bytes).map_err(StudyError::io("write", &path))
    }

    /// The parts that are not there yet.
    pub fn missing(&self) -> Vec<u64> {
        (0..self.about.parts()).filter(|part| !self.has(*part)).collect()
    }

    /// Rows that could not be predicted.
    pub fn failed(&self) -> Result<u64, StudyError> {
        (0..self.about.parts()).try_fold(0, |sum, part| Ok(sum + errors_of(&self.path(part))?.1))
    }

    /// Writes the file of all parts, and removes them.
    pub fn assemble(&self, target: &Path, format: Format) -> Result<(), StudyError> {
        let out = NewFile::create(target).map_err(StudyError::io("write", target))?;
        let mut assembler = Assembler::new(std::io::BufWriter::with_capacity(1 << 16, out), format);
        for part in 0..self.about.parts() {
            assembler.add(&self.path(part))?;
        }
        if let Some(out) = assembler.finish()? {
            let out = out.into_inner().map_err(|e| StudyError::io("write", target)(e.into_error()))?;
            out.commit().map_err(StudyError::io("write", target))?;
        }
        self.clear()
    }

    /// Removes what is ours, and the folder if nothing else is in it.
    fn clear(&self) -> Result<(), StudyError> {
        let entries = match fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(e) => return Err(StudyError::io("read", &self.folder)(e)),
        };
        for entry in entries {
            let path = entry.map_err(StudyError::io("read", &self.folder))?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if name == ABOUT || name.starts_with("part-") && name.ends_with(".parquet") {
                fs::remove_file(&path).map_err(StudyError::io("write", &path))?;
            }
        }
        // A folder with something else in it stays.
        let _ = fs::remove_dir(&self.folder);
        Ok(())
    }
}
