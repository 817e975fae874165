//! Finds and opens shared libraries.

use super::DriverError;
use libloading::Library;
use std::path::{Path, PathBuf};

/// Opens the first of these that opens. The library is never closed again: drivers leave threads behind.
pub fn open_first(candidates: &[PathBuf]) -> Result<&'static Library, String> {
    let mut first = None;
    for path in candidates {
        // SAFETY: opening runs the library's initialisers. These are the driver's and CUDA's own libraries, by
        // their fixed names or from where the user pointed; they are made to be loaded into any process.
        match unsafe { Library::new(path) } {
            Ok(library) => return Ok(Box::leak(Box::new(library))),
            Err(error) => {
                first.get_or_insert_with(|| match std::error::Error::source(&error) {
                    Some(reason) => reason.to_string(),
                    None => error.to_string(),
                });
            }
        }
    }
    Err(first.unwrap_or_else(|| "no place to look in".to_string()))
}

/// A function of a library, as the type `F` says it is.
///
/// # Safety
/// `F` must be the function pointer type of `symbol` as the library's headers declare it.
pub unsafe fn function<F: Copy>(
    library: &'static Library,
    name: &str,
    symbol: &str,
) -> Result<F, DriverError> {
    // SAFETY: the caller vouches for the type.
    let found = unsafe { library.get::<F>(symbol.as_bytes()) };
    found
        .map(|f| *f)
        .map_err(|_| DriverError::Symbol { library: name.to_string(), symbol: symbol.to_string() })
}

/// Where a CUDA library may be: where the user says, beside known installations, where the loader looks.
pub fn places(names: &[String], hint: Option<&Path>) -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = Vec::new();
    let mut out = Vec::new();
    if let Some(hint) = hint {
        if hint.is_file() {
            folders.extend(hint.parent().map(Path::to_path_buf));
        } else {
            folders.extend([hint.to_path_buf(), hint.join("lib64"), hint.join("lib"), hint.join("bin")]);
        }
    }
    for variable in ["CUDA_PATH", "CUDA_HOME"] {
        if let Some(root) = std::env::var_os(variable) {
            let root = PathBuf::from(root);
            folders.extend([root.join("lib64"), root.join("bin"), root.join("bin").join("x64")]);
        }
    }
    folders.push(PathBuf::from("/usr/local/cuda/lib64"));
    let mut environments: Vec<PathBuf> =
        ["VIRTUAL_ENV", "CONDA_PREFIX"].iter().filter_map(std::env::var_os).map(PathBuf::from).collect();
    environments.extend(python_prefix());
    for root in environments {
        folders.extend(wheels(&root));
    }
    out.extend(folders.iter().flat_map(|f| names.iter().map(move |n| f.join(n))).filter(|p| p.is_file()));
    // The loader's own search comes first unless the user pointed somewhere.
    let bare = names.iter().map(PathBuf::from);
    if hint.is_some() {
        out.extend(bare);
        out
    } else {
        bare.chain(out).collect()
    }
}

/// The installation that the `python3` of the search path belongs to. A link is not followed: a virtual environment's
/// Python is a link, and its packages are beside the link.
fn python_prefix() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let folder = std::env::split_paths(&path).find(|p| p.join("python3").is_file())?;
    folder.parent().map(Path::to_path_buf)
}

/// Folders of CUDA libraries that pip put below a Python installation.
fn wheels(root: &Path) -> Vec<PathBuf> {
    let children = |folder: PathBuf| -> Vec<PathBuf> {
        let entries = std::fs::read_dir(folder).into_iter().flatten();
        let mut all: Vec<PathBuf> = entries.filter_map(|e| e.ok().map(|e| e.path())).collect();
        all.sort();
        all.reverse();
        all
    };
    children(root.join("lib"))
        .into_iter()
        .filter(|p| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with("python")))
        .flat_map(|python| {
            ["site-packages", "dist-packages"].map(|packages| python.join(packages).join("nvidia"))
        })
        .flat_map(children)
        .map(|package| package.join("lib"))
        .filter(|p| p.is_dir())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_not_there_is_an_error() {
        let error = open_first(&[PathBuf::from("libpreflop-does-not-exist.so")]).unwrap_err();
        assert!(error.contains("libpreflop-does-not-exist.so"), "{error}");
        assert!(open_first(&[]).is_err());
    }

    #[test]
    fn the_users_place_comes_first() {
        let here = std::env::current_exe().unwrap();
        let name = here.file_name().unwrap().to_string_lossy().to_string();
        let found = places(std::slice::from_ref(&name), here.parent());
        assert_eq!(found.first(), Some(&here));
        let unhinted = places(std::slice::from_ref(&name), None);
        assert_eq!(unhinted.first(), Some(&PathBuf::from(name)));
    }
}
