//! Where a sweep goes: one file, with its parts beside it until all are there, or a folder whose files are the parts.

use crate::error::StudyError;
use crate::parts::{About, Parts};
use preflop_table::format::Format;
use std::path::{Path, PathBuf};

/// The file or folder that is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// One file.
    File {
        /// Its path.
        path: PathBuf,
        /// How it is written.
        format: Format,
    },
    /// Partitioned Parquet: one file for each part.
    Folder(PathBuf),
}

impl Target {
    /// A name that ends in `/`, or an existing folder, is partitioned Parquet; else the ending or `format` says what is written.
    pub fn of(path: &str, format: Option<Format>) -> Result<Self, StudyError> {
        if path.ends_with(['/', '\\']) || Path::new(path).is_dir() {
            if let Some(other) = format.filter(|f| *f != Format::Parquet) {
                let problem = format!("a folder is partitioned Parquet, not {}", other.name());
                return Err(StudyError::File { file: path.to_string(), problem });
            }
            return Ok(Self::Folder(PathBuf::from(path)));
        }
        let folder = Path::new(path).parent().filter(|p| !p.as_os_str().is_empty());
        if let Some(folder) = folder.filter(|f| !f.is_dir()) {
            let problem = format!("the folder `{}` does not exist", folder.display());
            return Err(StudyError::File { file: path.to_string(), problem });
        }
        let format = match format {
            Some(format) => format,
            None => Format::of_path(path)?,
        };
        Ok(Self::File { path: PathBuf::from(path), format })
    }

    /// Opens its parts.
    pub fn parts(&self, about: &About, restart: bool) -> Result<Parts, StudyError> {
        let folder = match self {
            Self::File { path, .. } => Parts::beside(path),
            Self::Folder(path) => path.clone(),
        };
        Parts::open(&folder, about.clone(), restart)
    }

    /// Puts the parts together where one file is asked for; gives how many rows could not be predicted.
    pub fn finish(&self, parts: &Parts) -> Result<u64, StudyError> {
        let failed = parts.failed()?;
        if let Self::File { path, format } = self {
            parts.assemble(path, *format)?;
        }
        Ok(failed)
    }
}
