//! What the tests need beside Rust: said at their start, with how to get it, what stays untested without it, and how much
//! room it takes.

use crate::python;
use crate::run::{cargo, program, succeed, works};
use anyhow::Context as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Something that a step needs.
struct Need {
    what: &'static str,
    /// The step that is left out without it; empty if it installs itself.
    step: &'static str,
    /// How to get it.
    get: &'static str,
    there: bool,
}

/// What is there, found out once.
pub struct Needs {
    all: Vec<Need>,
}

impl Needs {
    /// Looks around.
    pub fn find(root: &Path) -> Self {
        let venv = works(&mut program(root, "python3", &["-c", "import venv, ensurepip"]));
        Self {
            all: vec![
                Need {
                    what: "rustfmt and clippy",
                    step: "",
                    get: "rustup component add rustfmt clippy (done by the set-up step)",
                    there: works(&mut cargo(root, &["clippy", "--version"])),
                },
                Need {
                    what: "Python 3.10 or newer with venv",
                    step: "Python",
                    get: "apt install python3-venv, or python.org",
                    there: venv,
                },
                Need {
                    what: "Node.js 20 or newer with npm",
                    step: "browser",
                    get: "apt install npm, or nodejs.org",
                    there: works(&mut program(root, "npm", &["--version"])),
                },
                Need {
                    what: "Chromium",
                    step: "browser",
                    get: "apt install chromium, or npx playwright install chromium (no root needed)",
                    there: chromium().is_some() || can_install(root),
                },
                Need {
                    what: "zsh",
                    step: "completion in zsh",
                    get: "apt install zsh",
                    there: works(&mut program(root, "zsh", &["--version"])),
                },
                Need {
                    what: "fish",
                    step: "completion in fish",
                    get: "apt install fish",
                    there: works(&mut program(root, "fish", &["--version"])),
                },
                Need {
                    what: "a C++ compiler",
                    step: "fuzz targets",
                    get: "apt install g++",
                    there: works(&mut program(root, "c++", &["--version"])),
                },
                Need {
                    what: "the database of advisories",
                    step: "advisories",
                    get: "cargo deny fetch db, where github.com can be reached",
                    there: has_advisories(root),
                },
            ],
        }
    }

    /// Says what is missing, and what will be downloaded before it is.
    pub fn tell(&self, root: &Path) {
        for need in self.all.iter().filter(|n| !n.there) {
            let without = if need.step.is_empty() {
                String::new()
            } else {
                format!("; without it the step `{}` is NOT RUN", need.step)
            };
            println!("    missing: {} ({}){without}", need.what, need.get);
        }
        if !has_deny(root) {
            println!("    cargo-deny (some minutes) will be built into {}", shown(tools_folder()));
        }
        if self.allow("Python") && !python::is_installed(root) {
            println!(
                "    PyTorch and its libraries (5.8 GB, some minutes) will be installed into {}",
                shown(python::cache_folder())
            );
        }
    }

    /// Is everything there that this step needs?
    pub fn allow(&self, step: &str) -> bool {
        self.all.iter().all(|n| n.step != step || n.there)
    }

    /// Steps that cannot run here.
    pub fn left_out(&self) -> Vec<&'static str> {
        let mut steps: Vec<&str> =
            self.all.iter().filter(|n| !n.there && !n.step.is_empty()).map(|n| n.step).collect();
        steps.dedup();
        steps
    }
}

fn shown(folder: anyhow::Result<PathBuf>) -> String {
    folder.map_or_else(|_| "the cache folder".to_string(), |f| f.display().to_string())
}

/// Where tools lie that the tests build for themselves.
fn tools_folder() -> anyhow::Result<PathBuf> {
    Ok(python::cache_folder()?.join("tools"))
}

/// `cargo deny` with arguments: the user's, or the one that [`install_deny`] has built.
pub fn deny(root: &Path, args: &[&str]) -> Command {
    let mut deny = cargo(root, &["deny"]);
    deny.args(args);
    let built = tools_folder().map(|tools| tools.join("bin")).unwrap_or_default();
    let path = std::env::var_os("PATH").unwrap_or_default();
    if let Ok(path) = std::env::join_paths(std::env::split_paths(&path).chain([built])) {
        deny.env("PATH", path);
    }
    deny
}

fn has_deny(root: &Path) -> bool {
    works(&mut deny(root, &["--version"]))
}

/// Builds cargo-deny where there is none, in a folder of its own; without optimisation, which takes a third of the time.
pub fn install_deny(root: &Path) -> anyhow::Result<()> {
    if has_deny(root) {
        return Ok(());
    }
    let tools = tools_folder()?;
    let mut install = cargo(root, &["install", "--locked", "--debug", "--quiet", "--root"]);
    succeed(install.arg(&tools).arg("cargo-deny").env("CARGO_TARGET_DIR", tools.join("target")))?;
    std::fs::remove_dir_all(tools.join("target")).context("cannot clean up after the build of cargo-deny")
}

/// Fetches what is known to be wrong with packages; a copy that was fetched before does too.
fn has_advisories(root: &Path) -> bool {
    let fetched = works(&mut deny(root, &["fetch", "db"]));
    fetched || works(&mut deny(root, &["--offline", "check", "advisories"]))
}

/// A Chromium: the system's, or the one that Playwright keeps in the user's cache.
pub fn chromium() -> Option<PathBuf> {
    let system =
        ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"].map(PathBuf::from);
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let kept =
        std::fs::read_dir(home.join(".cache/ms-playwright")).into_iter().flatten().filter_map(Result::ok);
    let playwright = kept
        .filter(|e| e.file_name().to_string_lossy().starts_with("chromium-"))
        .flat_map(|e| ["chrome-linux64/chrome", "chrome-linux/chrome"].map(|c| e.path().join(c)));
    system.into_iter().chain(playwright).find(|path| path.exists())
}

/// May Debian's packages be installed here?
pub fn can_install(root: &Path) -> bool {
    let root_user = crate::run::output_of(&mut program(root, "id", &["-u"])).is_ok_and(|id| id.trim() == "0");
    root_user && works(&mut program(root, "apt-get", &["--version"]))
}
