//! The Python package: built and installed as users do it, tested with the real PyTorch.

use crate::run::{cargo, program, succeed, works};
use anyhow::Context as _;
use std::path::{Path, PathBuf};

/// What the tests need; a new version of it makes a new environment.
const REQUIREMENTS: &str = "python/requirements-test.txt";
/// What the tests of tables and sweeps need: data frames and Ray, without PyTorch.
const TABLE_REQUIREMENTS: &str = "python/requirements-tables.txt";

/// Installs the package into an environment of its own and runs its tests, without those that need shared data.
pub fn test(root: &Path) -> anyhow::Result<()> {
    let lints =
        ["clippy", "-p", "preflop-py", "--features", "python", "--locked", "--quiet", "--", "-D", "warnings"];
    succeed(&mut cargo(root, &lints))?;
    let python = installed(root)?;
    // Compiling needs a process in which autograd has not yet run (docs/run-options.md).
    let compiled = "python/tests/test_compile.py";
    succeed(&mut pytest(root, &python, &[compiled]))?;
    let others = [
        "--ignore=python/tests/shared",
        "--ignore=python/tests/tables",
        "--ignore=python/tests/test_compile.py",
    ];
    succeed(&mut pytest(root, &python, &[&["python/tests"], &others[..]].concat()))?;
    crate::readme::python_block(root, &python)
}

/// Rows that are streamed to see that memory does not grow with them.
const STREAMED: &str = "10_000_000";

/// Tests tables and sweeps with pyarrow, polars, pandas, duckdb, Dask, Spark and a Ray cluster of three nodes on this machine; then measures
/// rates of tables against those of the library, and the memory of a long stream.
pub fn tables(root: &Path) -> anyhow::Result<()> {
    let own = root.join("target/venv-tables");
    if !works(&mut program(root, own.join("bin/python"), &["-c", "import pip"])) {
        succeed(&mut program(root, "python3", &["-m", "venv", "--clear", "target/venv-tables"]))?;
    }
    let pip = own.join("bin/pip");
    let quiet = ["install", "--quiet", "--disable-pip-version-check"];
    succeed(&mut program(root, &pip, &[&quiet[..], &["-r", TABLE_REQUIREMENTS]].concat()))?;
    succeed(&mut program(root, &pip, &[&quiet[..], &["."]].concat()))?;
    let python = own.join("bin/python");
    let mut tests = vec!["python/tests/tables"];
    if !works(&mut program(root, "java", &["-version"])) {
        println!("    Spark: NOT RUN (it needs Java 17 or newer, as `java`)");
        tests.push("--ignore=python/tests/tables/test_spark.py");
    }
    succeed(&mut pytest(root, &python, &tests))?;
    // As the wheel is built, so that the ratio is that of the code.
    succeed(&mut cargo(
        root,
        &["build", "--quiet", "--locked", "--profile", "wheel", "-p", "preflop-bench"],
    ))?;
    let library = root.join("target/wheel/preflop-tables").to_string_lossy().into_owned();
    succeed(&mut program(root, &python, &["python/bench/tables.py", &library]))?;
    succeed(&mut program(root, &python, &["python/bench/tables.py", "stream", STREAMED]))
}

/// Runs the tests that need shared data.
pub fn validate(root: &Path, shared: &Path) -> anyhow::Result<()> {
    let python = installed(root)?;
    succeed(pytest(root, &python, &["-s", "python/tests/shared"]).env("PREFLOP_SHARED", shared))
}

/// Prints how fast recording is.
pub fn bench(root: &Path) -> anyhow::Result<()> {
    succeed(&mut program(root, installed(root)?, &["python/bench/capture.py"]))
}

fn pytest(root: &Path, python: &Path, args: &[&str]) -> std::process::Command {
    let mut command = program(root, python, &["-m", "pytest", "-q", "-p", "no:cacheprovider"]);
    command.args(args);
    command
}

/// A Python with the package and everything the tests need.
///
/// PyTorch takes gigabytes and minutes, so it lives in the user's cache folder, once per version of the requirements; the
/// package lies in an environment of this working tree that looks into that one.
fn installed(root: &Path) -> anyhow::Result<PathBuf> {
    let libraries = libraries(root)?;
    let own = root.join("target/venv-python");
    if !works(&mut program(root, own.join("bin/python"), &["-c", "import pip"])) {
        succeed(&mut program(root, "python3", &["-m", "venv", "--clear", "target/venv-python"]))?;
    }
    let places = site_packages(root, &own)?;
    let other = site_packages(root, &libraries)?;
    std::fs::write(places.join("preflop-test-libraries.pth"), format!("{}\n", other.display()))
        .context("cannot write into the test environment")?;
    let pip = own.join("bin/pip");
    succeed(&mut program(root, &pip, &["install", "--quiet", "--disable-pip-version-check", "."]))?;
    Ok(own.join("bin/python"))
}

/// Where PyTorch and the rest are kept, for this version of the requirements.
fn library_folder(root: &Path) -> anyhow::Result<PathBuf> {
    let text =
        std::fs::read(root.join(REQUIREMENTS)).with_context(|| format!("cannot read {REQUIREMENTS}"))?;
    Ok(cache_folder()?.join(format!("python-{:016x}", fnv1a(&text))))
}

/// Are PyTorch and the rest there?
pub fn is_installed(root: &Path) -> bool {
    library_folder(root).is_ok_and(|folder| folder.join("complete").is_file())
}

/// The environment with PyTorch and the rest, made on first use.
fn libraries(root: &Path) -> anyhow::Result<PathBuf> {
    let folder = library_folder(root)?;
    let done = folder.join("complete");
    if done.is_file() {
        return Ok(folder);
    }
    println!("    installing PyTorch and others into {}", folder.display());
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let place = folder.to_string_lossy().into_owned();
    succeed(&mut program(root, "python3", &["-m", "venv", &place]))?;
    let args = ["install", "--quiet", "--disable-pip-version-check", "-r", REQUIREMENTS];
    succeed(&mut program(root, folder.join("bin/pip"), &args))?;
    std::fs::write(&done, "").context("cannot mark the environment as complete")?;
    Ok(folder)
}

/// `$XDG_CACHE_HOME/preflop` or `~/.cache/preflop`.
pub fn cache_folder() -> anyhow::Result<PathBuf> {
    let given = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|p| p.is_absolute());
    let home = || std::env::var_os("HOME").map(|h| PathBuf::from(h).join(".cache"));
    Ok(given.or_else(home).context("neither XDG_CACHE_HOME nor HOME is set")?.join("preflop"))
}

fn site_packages(root: &Path, environment: &Path) -> anyhow::Result<PathBuf> {
    let code = "import sysconfig; print(sysconfig.get_path('purelib'))";
    let said = crate::run::output_of(&mut program(root, environment.join("bin/python"), &["-c", code]))?;
    Ok(PathBuf::from(said.trim()))
}

/// FNV-1a, 64 bits (Fowler, Noll and Vo): enough to tell versions of one file apart.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
