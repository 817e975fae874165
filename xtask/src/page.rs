//! `cargo xtask page`: the core as a WebAssembly module, packed, and the one-file page around it.

use crate::run::{cargo, output_of, program, succeed};
use anyhow::Context as _;
use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::Write as _;
use std::path::{Path, PathBuf};

const TARGET: &str = "wasm32-unknown-unknown";
/// Most bytes of a page: what can be sent by mail and opened at once.
pub const MOST_BYTES: u64 = 8_000_000;

/// The variable that tells the command line's build where the packed core is (`crates/cli/build.rs`).
pub const CORE: &str = "PREFLOP_PAGE_CORE";

/// Builds the core for the browser and packs it; gives the packed file. One that was built elsewhere is taken where [`CORE`] names it: it is
/// the same for every platform.
pub fn core(root: &Path) -> anyhow::Result<PathBuf> {
    if let Some(given) = std::env::var_os(CORE).map(|path| root.join(path)) {
        anyhow::ensure!(given.is_file(), "`{CORE}` names {}, which is no file", given.display());
        return Ok(given);
    }
    succeed(&mut program(root, "rustup", &["target", "add", TARGET]))?;
    no_bindings(root)?;
    let folder = root.join("target/page");
    let folder_name = folder.to_string_lossy();
    let args =
        ["build", "--locked", "--quiet", "--profile", "page", "--target", TARGET, "-p", "preflop-page"];
    succeed(&mut cargo(root, &[&args[..], &["--target-dir", &folder_name]].concat()))?;
    let module = folder.join(TARGET).join("page/preflop_page.wasm");
    let module = std::fs::read(&module).with_context(|| format!("cannot read {}", module.display()))?;
    let mut packed = GzEncoder::new(Vec::new(), Compression::best());
    packed.write_all(&module)?;
    let packed = packed.finish()?;
    println!("    the core has {} kB, {} kB packed", module.len() / 1000, packed.len() / 1000);
    let path = folder.join("core.wasm.gz");
    // An unchanged file keeps its time, so that the command line is not built again.
    if std::fs::read(&path).ok().as_ref() != Some(&packed) {
        std::fs::write(&path, packed).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(path)
}

/// Generated bindings would make the module ask for imports that only their own script gives.
fn no_bindings(root: &Path) -> anyhow::Result<()> {
    let args =
        ["tree", "--locked", "--target", TARGET, "-p", "preflop-page", "-e", "normal", "--prefix", "none"];
    let tree = output_of(&mut cargo(root, &args))?;
    let found = tree.lines().find(|line| line.starts_with("wasm-bindgen"));
    anyhow::ensure!(found.is_none(), "the core pulls in {}", found.unwrap_or_default());
    Ok(())
}

/// Writes the page with the released program.
pub fn run(root: &Path, file: &str) -> anyhow::Result<()> {
    let core = core(root)?;
    let args = ["run", "--release", "--quiet", "--locked", "-p", "preflop", "--", "page", "-o", file];
    succeed(cargo(root, &args).env(CORE, core))?;
    let bytes = std::fs::metadata(root.join(file))?.len();
    anyhow::ensure!(bytes <= MOST_BYTES, "{file} has {bytes} bytes, more than {MOST_BYTES}");
    Ok(())
}
