//! The built pages are in the repository, so that Rust alone builds everything; this checks that they are what the
//! sources in web/ give.

use crate::run::{program, succeed};
use anyhow::Context as _;
use std::collections::BTreeMap;
use std::path::Path;

/// Configuration of a bundle and the folder that holds it.
const BUNDLES: [(&str, &str); 2] =
    [("vite.config.ts", "crates/cli/assets"), ("vite.app.config.ts", "crates/server/assets")];

/// Builds every bundle anew, elsewhere, and compares the files byte by byte.
pub fn check(root: &Path) -> anyhow::Result<()> {
    let web = root.join("web");
    succeed(&mut program(&web, "npx", &["tsc", "--noEmit"]))?;
    for (config, folder) in BUNDLES {
        let fresh = root.join("target/bundles").join(config);
        let out = fresh.to_string_lossy();
        let args =
            ["vite", "build", "--logLevel", "warn", "--config", config, "--outDir", &out, "--emptyOutDir"];
        succeed(&mut program(&web, "npx", &args))?;
        let (new, old) = (files(&fresh)?, files(&root.join(folder))?);
        let stale: Vec<&String> =
            new.keys().chain(old.keys()).filter(|name| new.get(*name) != old.get(*name)).collect();
        anyhow::ensure!(
            stale.is_empty(),
            "{folder} is stale ({}): run `npm run build` in web/ and commit what it writes",
            stale.into_iter().cloned().collect::<Vec<_>>().join(", ")
        );
        println!("    {folder} is what web/ gives");
    }
    Ok(())
}

fn files(folder: &Path) -> anyhow::Result<BTreeMap<String, Vec<u8>>> {
    let mut out = BTreeMap::new();
    for entry in std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        out.insert(name, std::fs::read(entry.path())?);
    }
    Ok(out)
}
