//! Puts the core for the browser into the program, where it was built before: `PREFLOP_PAGE_CORE` names the packed module that
//! `cargo xtask page` writes. Without it the program is the same but for `preflop page` and `preflop report --live`.
#![allow(clippy::print_stdout)]

fn main() {
    println!("cargo::rustc-check-cfg=cfg(page_core)");
    println!("cargo::rerun-if-env-changed=PREFLOP_PAGE_CORE");
    println!("cargo::rerun-if-changed=build.rs");
    let Some(core) = std::env::var_os("PREFLOP_PAGE_CORE").filter(|path| !path.is_empty()) else { return };
    let core = std::path::PathBuf::from(core);
    println!("cargo::rerun-if-changed={}", core.display());
    println!("cargo::rustc-env=PREFLOP_PAGE_CORE={}", core.display());
    println!("cargo::rustc-cfg=page_core");
}
