//! One slice of time for one target, and what may not happen in it: a crash, a hang, too much memory.

use super::{MEMORY_MIB, fuzzer};
use anyhow::Context as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Milliseconds for one input; what takes longer is a hang.
const LONGEST_MS: u64 = 1000;
/// A busy machine can stop any program for a while: the quickest of so many tries counts.
const TRIES: usize = 3;

/// So many seconds of one target.
pub struct Slice<'a> {
    pub root: &'a Path,
    pub programs: &'a Path,
    pub target: &'a str,
    pub seconds: u64,
}

/// What libFuzzer counted.
pub struct Stats {
    pub executions: u64,
    pub peak_mib: u64,
}

impl Slice<'_> {
    /// Runs it; a finding is an error that starts with the target's name and says where the input is.
    pub fn run(&self) -> anyhow::Result<Stats> {
        let target = self.target;
        let corpus = self.root.join("fuzz/corpus").join(target);
        let artifacts = self.root.join("fuzz/artifacts").join(target);
        std::fs::create_dir_all(&corpus)?;
        std::fs::create_dir_all(&artifacts)?;
        let mut command = fuzzer(self.root, self.programs, target);
        command.args([
            format!("-max_total_time={}", self.seconds),
            format!("-report_slow_units={}", LONGEST_MS / 1000),
            format!("-artifact_prefix={}/", artifacts.display()),
            "-print_final_stats=1".into(),
            "-verbosity=0".into(),
        ]);
        // What libFuzzer counts to weigh its inputs takes a third of the time of the larger targets.
        command.args(["-entropic=0", "-reduce_inputs=0"]);
        command.arg(&corpus).arg(self.root.join("fuzz/seeds").join(target));
        let out = bounded(&mut command).with_context(|| format!("`{target}` cannot be started"))?;
        let said = String::from_utf8_lossy(&out.stderr);
        if !out.status.success() {
            let tail: Vec<&str> = said.lines().rev().take(25).collect();
            let tail: Vec<&str> = tail.into_iter().rev().collect();
            println!("    {}", tail.join("\n    "));
            anyhow::bail!("`{target}` ended with {}; the input is in {}", out.status, artifacts.display());
        }
        self.ask_slow_ones_again(&artifacts)?;
        let stat = |name: &str| {
            let value = said.lines().find_map(|l| l.strip_prefix(name)).and_then(|n| n.trim().parse().ok());
            value.with_context(|| format!("`{target}` told no {name}"))
        };
        let stats = Stats {
            executions: stat("stat::number_of_executed_units:")?,
            peak_mib: stat("stat::peak_rss_mb:")?,
        };
        anyhow::ensure!(stats.peak_mib <= u64::from(MEMORY_MIB), "`{target}` took {} MiB", stats.peak_mib);
        Ok(stats)
    }

    /// Inputs that took long while other programs ran too: a hang is slow every time.
    fn ask_slow_ones_again(&self, artifacts: &Path) -> anyhow::Result<()> {
        for entry in std::fs::read_dir(artifacts)? {
            let path = entry?.path();
            if !path.file_name().is_some_and(|n| n.to_string_lossy().starts_with("slow-unit-")) {
                continue;
            }
            let mut quickest = u64::MAX;
            for _ in 0..TRIES {
                let out = fuzzer(self.root, self.programs, self.target).arg(&path).output()?;
                quickest =
                    quickest.min(milliseconds(&String::from_utf8_lossy(&out.stderr)).unwrap_or(u64::MAX));
            }
            // Another slice of this target may have judged it meanwhile.
            anyhow::ensure!(
                quickest <= LONGEST_MS || !path.exists(),
                "`{}` takes {quickest} ms for {}",
                self.target,
                path.display()
            );
            let _ = std::fs::remove_file(path);
        }
        Ok(())
    }
}

/// Runs a program to its end with a bound on its memory that the system keeps: libFuzzer itself looks once a second only.
fn bounded(command: &mut Command) -> anyhow::Result<Output> {
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{Pid, Resource, Rlimit, prlimit};
        /// More than may be filled: the allocator asks for pages that it never touches.
        const ADDRESSES_MIB: u64 = 2 * MEMORY_MIB as u64;
        let most = Some(ADDRESSES_MIB << 20);
        let limit = Rlimit { current: most, maximum: most };
        prlimit(Some(Pid::from_child(&child)), Resource::Data, limit)?;
    }
    Ok(child.wait_with_output()?)
}

/// How long libFuzzer says that one input took: `Executed FILE in 12 ms`.
fn milliseconds(said: &str) -> Option<u64> {
    let line = said.lines().find(|l| l.starts_with("Executed ") && l.ends_with(" ms"))?;
    line.rsplit(' ').nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_one_input_is_read() {
        let said = "Running: a b\nExecuted a b in 1203 ms\n***\n";
        assert_eq!(milliseconds(said), Some(1203));
        assert_eq!(milliseconds("nothing"), None);
    }
}
