//! The container image: the program that needs no system, alone.

use super::{QUESTION, check_answer, version};
use crate::run::{output_of, program, succeed, works};
use anyhow::Context as _;
use std::path::Path;

/// What builds images here.
pub enum Builder {
    /// docker or podman, whose engine runs.
    Engine(&'static str),
    /// buildah, which needs none.
    Buildah,
}

/// A program that can build images here.
pub fn builder(root: &Path) -> Option<Builder> {
    let runs = |name: &&str| works(&mut program(root, name, &["info", "--format", "{{.ID}}{{.Host}}"]));
    let engine = ["docker", "podman"].into_iter().find(runs).map(Builder::Engine);
    engine.or_else(|| works(&mut program(root, "buildah", &["info"])).then_some(Builder::Buildah))
}

/// The image of the program in `dist/preflop`, asked once and saved as an archive that `docker load` reads.
pub fn build(root: &Path, dist: &Path, builder: &Builder) -> anyhow::Result<()> {
    let (image, archive) =
        (format!("preflop:{}", version(root)?), format!("preflop-{}-image.tar", version(root)?));
    let file = root.join("Containerfile").to_string_lossy().into_owned();
    let _ = std::fs::remove_file(dist.join(&archive));
    // The first stage of the file is the program alone, which is built already.
    let build = ["--file", &file, "--target", "program", "--tag", &image, "preflop"];
    let said = match builder {
        Builder::Engine(name) => {
            let run = |args: &[&str]| succeed(&mut program(dist, name, args));
            run(&[&["build", "--quiet"], &build[..]].concat())?;
            let said =
                output_of(&mut program(dist, name, &[&["run", "--rm", &image], &QUESTION[..]].concat()))?;
            run(&["save", "--output", &archive, &image])?;
            said
        }
        Builder::Buildah => {
            let run = |args: &[&str]| output_of(&mut program(dist, "buildah", args));
            run(&[&["bud", "--quiet", "--isolation", "chroot"], &build[..]].concat())?;
            // It runs commands, not entry points: that of the image is read off it.
            let about: serde_json::Value =
                serde_json::from_str(&run(&["inspect", "--type", "image", &image])?)?;
            let entry = about["OCIv1"]["config"]["Entrypoint"].as_array();
            let entry: Vec<&str> = entry.into_iter().flatten().filter_map(|word| word.as_str()).collect();
            anyhow::ensure!(!entry.is_empty(), "the image has no entry point");
            let container = run(&["from", &image])?;
            let mut command = vec!["run", "--isolation", "chroot", container.trim(), "--"];
            command.extend(entry.iter().copied().chain(QUESTION));
            let said = run(&command);
            run(&["rm", container.trim()])?;
            run(&["push", "--quiet", &image, &format!("docker-archive:{archive}:{image}")])?;
            said?
        }
    };
    check_answer(&said).context("the image gives no prediction")?;
    println!("    {archive}: {} kB", std::fs::metadata(dist.join(&archive))?.len() / 1000);
    Ok(())
}
