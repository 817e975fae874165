//! What a sampler of the host says about a run: how many CPUs were busy, how much of that was waiting, and where.

use crate::render::{Page, Style};
use preflop_units::format::{percent, three_digits as digits};
use serde::Serialize;

/// A function and the CPU time spent in it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HotFunction {
    /// Its name.
    pub name: String,
    /// The library or program that holds it.
    pub module: String,
    /// Seconds of CPU time.
    pub seconds: f64,
}

/// A summary of the host, as VTune writes it.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct HostReport {
    /// File.
    pub source: String,
    /// Seconds on the clock.
    pub elapsed_s: f64,
    /// Seconds of CPU time, of all threads together.
    pub cpu_s: f64,
    /// CPUs busy on the mean: CPU time over elapsed time.
    pub cpus_busy: f64,
    /// Seconds of CPU time that threads waited for one another without sleeping, where it is said.
    pub spin_s: Option<f64>,
    /// Seconds of CPU time that libraries of threads took for themselves, where it is said.
    pub overhead_s: Option<f64>,
    /// Threads.
    pub threads: Option<u64>,
    /// CPUs that the machine has.
    pub logical_cpus: Option<f64>,
    /// Share of the machine's CPUs that were busy.
    pub utilization: Option<f64>,
    /// Functions that took most.
    pub hottest: Vec<HotFunction>,
    /// What follows from it.
    pub findings: Vec<String>,
}

/// Share of the CPU time that goes into waiting from which on it is worth a word.
const MUCH_WAITING: f64 = 0.1;
/// Seconds below which a time is none to divide by.
const LEAST: f64 = 1e-6;
/// A thread that launches kernels all the time keeps one CPU busy, give or take what loads data beside it.
const ABOUT_ONE: std::ops::RangeInclusive<f64> = 0.85..=1.25;

impl HostReport {
    /// The same with all that follows from its times.
    #[must_use]
    pub fn concluded(mut self) -> Self {
        self.cpus_busy = if self.elapsed_s > LEAST { self.cpu_s / self.elapsed_s } else { 0.0 };
        self.utilization = self.logical_cpus.filter(|n| *n > 0.0).map(|n| self.cpus_busy / n);
        self.findings.clear();
        if ABOUT_ONE.contains(&self.cpus_busy) {
            self.findings.push(
                "about one CPU is busy all the time, as where one thread launches all kernels: it sets the pace wherever the GPU has less to do (`preflop predict` says the host's time of a \
                 step, `--host 1.5x` what another host would make of it)"
                    .to_string(),
            );
        }
        let waiting = self.spin_s.unwrap_or(0.0) + self.overhead_s.unwrap_or(0.0);
        if self.cpu_s > LEAST && waiting > MUCH_WAITING * self.cpu_s {
            self.findings.push(format!(
                "{} of the CPU time is threads that wait for one another or are started: with fewer of them (OMP_NUM_THREADS, workers of the data loader) the thread that launches has more room",
                percent(waiting / self.cpu_s)
            ));
        }
        self
    }

    /// As text or Markdown.
    pub fn render(&self, style: Style) -> String {
        let mut page = Page::new(style);
        page.title(&format!("{} (VTune summary): the host, no kernels", self.source));
        let of = match (self.logical_cpus, self.utilization) {
            (Some(n), Some(share)) => format!(" of {} ({})", digits(n), percent(share)),
            _ => String::new(),
        };
        page.list(&format!(
            "{} s on the clock, {} s of CPU time: {} CPUs busy on the mean{of}",
            digits(self.elapsed_s),
            digits(self.cpu_s),
            digits(self.cpus_busy)
        ));
        for (what, seconds) in [("spinning", self.spin_s), ("overhead of threads", self.overhead_s)] {
            if let Some(seconds) = seconds.filter(|_| self.cpu_s > LEAST) {
                page.list(&format!("{what}: {} s, {} of it", digits(seconds), percent(seconds / self.cpu_s)));
            }
        }
        if let Some(threads) = self.threads {
            page.list(&format!("{threads} threads"));
        }
        if !self.hottest.is_empty() {
            page.heading("Functions that took most CPU time");
            let share = |s: f64| if self.cpu_s > LEAST { percent(s / self.cpu_s) } else { "-".to_string() };
            let rows: Vec<Vec<String>> = self
                .hottest
                .iter()
                .map(|f| {
                    vec![
                        f.name.clone(),
                        f.module.clone(),
                        format!("{} s", digits(f.seconds)),
                        share(f.seconds),
                    ]
                })
                .collect();
            page.table(&[("function", 0), ("module", 1), ("CPU time", 0), ("share", 0)], &rows);
        }
        if !self.findings.is_empty() {
            page.heading("What it says");
            for finding in &self.findings {
                page.list(finding);
            }
        }
        page.out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(elapsed_s: f64, cpu_s: f64) -> HostReport {
        HostReport {
            source: "run.txt".into(),
            elapsed_s,
            cpu_s,
            logical_cpus: Some(24.0),
            ..HostReport::default()
        }
    }

    #[test]
    fn busy_cpus_are_cpu_time_over_elapsed_time() {
        let r = report(10.0, 12.0).concluded();
        assert_eq!(r.cpus_busy, 1.2);
        assert_eq!(r.utilization, Some(1.2 / 24.0));
        assert!(r.findings[0].contains("one CPU is busy"), "{:?}", r.findings);
        let text = r.render(Style::Text { width: 200 });
        assert!(text.contains("1.20 CPUs busy on the mean of 24.0 (5.0 %)"), "{text}");
        assert!(report(10.0, 80.0).concluded().findings.is_empty());
        assert_eq!(report(0.0, 0.0).concluded().cpus_busy, 0.0);
    }

    #[test]
    fn waiting_threads_are_named() {
        let r = HostReport { spin_s: Some(20.0), overhead_s: Some(4.0), ..report(10.0, 80.0) }.concluded();
        // 24 of 80 s.
        assert!(r.findings[0].starts_with("30.0 % of the CPU time"), "{:?}", r.findings);
    }
}
