//! What `cargo xtask fuzz` was asked for.

use anyhow::Context as _;
use std::path::PathBuf;

/// Targets and bounds of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Names; all of them where none is named.
    pub targets: Vec<String>,
    /// Length of one slice. Without the bounds below every target gets one.
    pub seconds: u64,
    /// Slices that run beside each other.
    pub jobs: usize,
    /// Go on until so many executions were made over all targets.
    pub executions: Option<u64>,
    /// Go on until so many seconds have passed.
    pub wall: Option<u64>,
    /// Where the built targets are, on a machine that cannot build them.
    pub programs: Option<PathBuf>,
    /// Build them and say where they are.
    pub build_only: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            targets: Vec::new(),
            seconds: 60,
            jobs: 1,
            executions: None,
            wall: None,
            programs: None,
            build_only: false,
        }
    }
}

impl Options {
    /// Reads `[SECONDS] [--jobs N] [--executions N] [--wall SECONDS] [--programs FOLDER] [TARGET...]`, or `build`.
    pub fn parse(words: &[&str]) -> anyhow::Result<Self> {
        let mut options = Self::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().with_context(|| format!("`{word}` needs a value"));
            match *word {
                "build" => options.build_only = true,
                "--jobs" => options.jobs = usize::try_from(count(value()?)?)?,
                "--executions" => options.executions = Some(count(value()?)?),
                "--wall" => options.wall = Some(count(value()?)?),
                "--programs" => options.programs = Some(std::path::absolute(value()?)?),
                flag if flag.starts_with('-') => anyhow::bail!(
                    "unknown option `{flag}`; there are --jobs, --executions, --wall and --programs"
                ),
                seconds if seconds.starts_with(|c: char| c.is_ascii_digit()) => {
                    options.seconds = count(seconds)?;
                }
                target => options.targets.push(target.to_owned()),
            }
        }
        Ok(options)
    }
}

fn count(text: &str) -> anyhow::Result<u64> {
    let number = text.parse().ok().filter(|n| *n > 0);
    number.with_context(|| format!("`{text}` is not a whole number above 0"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_and_targets_come_in_any_order() {
        let options = Options::parse(&["redact", "30", "--jobs", "16", "--executions", "100000000"]).unwrap();
        assert_eq!(options.targets, ["redact"]);
        assert_eq!((options.seconds, options.jobs, options.executions), (30, 16, Some(100_000_000)));
        assert_eq!(Options::parse(&[]).unwrap(), Options::default());
        for bad in [&["0"][..], &["--jobs"], &["--jobs", "many"], &["--threads", "2"]] {
            assert!(Options::parse(bad).is_err(), "{bad:?}");
        }
    }
}
