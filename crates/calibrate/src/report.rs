//! What a calibration found: which figures count, which are refused and why.

use crate::driver::{Board, DeviceFacts};
use crate::protocol::Line;
use crate::quantity::{self, QUANTITIES, Quantity};
use crate::stats::{self, Summary};
use serde::Serialize;

/// One figure that was measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    /// Which.
    pub quantity: &'static Quantity,
    /// What the samples say.
    pub summary: Summary,
    /// Why it does not count; `None` if it does.
    pub refused: Option<String>,
}

/// Something that was not measured.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Skipped {
    /// What.
    pub what: String,
    /// Why.
    pub why: String,
}

/// All that was found.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// What the driver says.
    pub facts: DeviceFacts,
    /// What the management library says.
    pub board: Board,
    /// Figures in the order of the file.
    pub figures: Vec<Figure>,
    /// What this machine cannot give.
    pub skipped: Vec<Skipped>,
    /// Remarks of the measuring process.
    pub notes: Vec<String>,
}

/// Why there is no report.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReportError {
    /// The measuring process gave up.
    #[error("{0}")]
    Failed(String),
    /// It ended without saying so, or said something else.
    #[error("the measuring process broke off: {0}")]
    Broken(String),
    /// Nothing is steady enough.
    #[error("no figure is steady enough to count; is something else using the GPU?")]
    Nothing,
}

/// Takes lines until the end.
#[derive(Debug, Default)]
pub struct Collector {
    device: Option<(DeviceFacts, Board)>,
    values: Vec<(&'static Quantity, Vec<f64>)>,
    skipped: Vec<Skipped>,
    notes: Vec<String>,
    failed: Option<String>,
    odd: Option<String>,
    ended: bool,
}

impl Collector {
    /// Takes one line of text. Gives it back understood, for progress.
    pub fn take(&mut self, text: &str) -> Option<Line> {
        let Ok(line) = Line::parse(text) else {
            // Drivers and libraries print warnings of their own.
            self.odd = Some(text.chars().take(200).collect());
            return None;
        };
        match &line {
            Line::Device { facts, board } => self.device = Some((facts.clone(), board.clone())),
            Line::Value { key, samples } => match quantity::find(key) {
                Some(quantity) => self.values.push((quantity, samples.clone())),
                None => self.odd = Some(format!("unknown figure `{key}`")),
            },
            Line::Skip { what, why } => {
                let skipped = Skipped { what: what.clone(), why: why.clone() };
                if !self.skipped.contains(&skipped) {
                    self.skipped.push(skipped);
                }
            }
            Line::Note(text) => self.notes.push(text.clone()),
            Line::Failed(why) => self.failed = Some(why.clone()),
            Line::End => self.ended = true,
            Line::Begin { .. } => {}
        }
        Some(line)
    }

    /// What the process itself said about its failure.
    pub fn failure(&self) -> Option<&str> {
        self.failed.as_deref()
    }

    /// Judges what came. `max_spread` replaces the limits of the figures.
    pub fn finish(self, max_spread: Option<f64>) -> Result<Report, ReportError> {
        if let Some(why) = self.failed {
            return Err(ReportError::Failed(why));
        }
        let Some((facts, board)) = self.device.filter(|_| self.ended) else {
            let last = self.odd.unwrap_or_else(|| "it said nothing".to_string());
            return Err(ReportError::Broken(last));
        };
        let mut figures = Vec::new();
        let mut skipped = self.skipped;
        for quantity in QUANTITIES {
            let Some(samples) = chosen(quantity.key, &self.values) else { continue };
            match stats::summary(samples) {
                Some(summary) => {
                    figures.push(Figure {
                        quantity,
                        summary,
                        refused: refusal(quantity, &summary, max_spread),
                    });
                }
                None => skipped.push(Skipped {
                    what: quantity.key.to_string(),
                    why: "the clock of the device gave no usable time".to_string(),
                }),
            }
        }
        contradictions(&mut figures);
        if figures.iter().all(|f| f.refused.is_some()) {
            return Err(ReportError::Nothing);
        }
        Ok(Report { facts, board, figures, skipped, notes: self.notes })
    }
}

/// The samples of a figure. Only launch costs are measured in several visits: of those the quickest counts.
fn chosen<'a>(key: &str, values: &'a [(&'static Quantity, Vec<f64>)]) -> Option<&'a [f64]> {
    let median = |samples: &[f64]| stats::summary(samples).map_or(f64::INFINITY, |s| s.median);
    values
        .iter()
        .filter(|(q, _)| q.key == key)
        .map(|(_, samples)| samples.as_slice())
        .min_by(|a, b| median(a).total_cmp(&median(b)))
}

/// Why a figure does not count by itself: its samples lie too far apart.
pub fn refusal(quantity: &Quantity, summary: &Summary, max_spread: Option<f64>) -> Option<String> {
    let limit = max_spread.unwrap_or(quantity.limit);
    (summary.spread > limit).then(|| {
        format!(
            "its {} samples spread by {:.1} %, more than {:.1} %",
            summary.count,
            100.0 * summary.spread,
            100.0 * limit
        )
    })
}

/// Pairs of which the first must be the smaller: nearer memory answers sooner and gives more.
const ORDER: &[(&str, &str)] = &[
    ("l1_cycles", "l2_cycles"),
    ("shared_cycles", "l2_cycles"),
    ("l2_cycles", "dram_cycles"),
    ("l2_far_cycles", "dram_cycles"),
    ("dram_read_gbs", "l2_read_gbs"),
];

/// Refuses figures that cannot both be true.
fn contradictions(figures: &mut [Figure]) {
    for (smaller, larger) in ORDER {
        let place = |key: &str| figures.iter().position(|f| f.quantity.key == key);
        let (Some(a), Some(b)) = (place(smaller), place(larger)) else { continue };
        if figures[a].summary.median >= figures[b].summary.median {
            let why = format!("`{smaller}` must be below `{larger}`, and is not");
            for i in [a, b] {
                figures[i].refused.get_or_insert_with(|| why.clone());
            }
        }
    }
}

impl Report {
    /// The median of a figure that counts.
    pub fn value(&self, key: &str) -> Option<f64> {
        self.figures.iter().find(|f| f.quantity.key == key && f.refused.is_none()).map(|f| f.summary.median)
    }

    /// Figures that do not count.
    pub fn refused(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.figures.iter().filter_map(|f| Some((f.quantity.key, f.refused.as_deref()?)))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// An H200 as its driver describes it.
    pub(crate) fn h200_facts() -> DeviceFacts {
        DeviceFacts {
            name: "NVIDIA H200".into(),
            bus: "0000:00:00.0".into(),
            cuda_version: 13000,
            capability: (9, 0),
            sm_count: 132,
            boost_khz: 1_980_000,
            memory_khz: 3_201_000,
            bus_bits: 6144,
            l2_bytes: 62_914_560,
            memory_bytes: 150_109_880_320,
            threads_per_sm: 2048,
            blocks_per_sm: 32,
            registers_per_sm: 65_536,
            shared_per_sm_bytes: 233_472,
            shared_per_block_bytes: 232_448,
            warp_size: 32,
        }
    }

    pub(crate) fn lines(values: &[(&str, &[f64])]) -> Collector {
        let mut collector = Collector::default();
        let board = Board { driver: Some("580.1".into()), power_limit_w: Some(700.0), power_w: Some(80.0) };
        collector.take(&Line::Device { facts: h200_facts(), board }.to_json());
        for (key, samples) in values {
            collector.take(&Line::Value { key: (*key).into(), samples: samples.to_vec() }.to_json());
        }
        collector.take(&Line::End.to_json());
        collector
    }

    #[test]
    fn steady_figures_count_and_noisy_ones_do_not() {
        let c = lines(&[("dram_copy_gbs", &[4300.0, 4310.0, 4290.0]), ("l1_cycles", &[30.0, 60.0, 90.0])]);
        let report = c.finish(None).unwrap();
        assert_eq!(report.value("dram_copy_gbs"), Some(4300.0));
        assert_eq!(report.value("l1_cycles"), None);
        // 10 % and 90 % points 36 and 84: (84 - 36) / (2 x 60) = 40 %
        let refused: Vec<_> = report.refused().collect();
        assert_eq!(refused, [("l1_cycles", "its 3 samples spread by 40.0 %, more than 5.0 %")]);
    }

    #[test]
    fn of_several_visits_the_quickest_counts() {
        let visits: [(&str, &[f64]); 3] = [
            ("host_launch_us", &[3.9, 3.9, 4.0]),
            ("host_launch_us", &[3.4, 3.5, 3.4]),
            ("host_launch_us", &[0.0, 3.0, 3.0]),
        ];
        let report = lines(&visits).finish(None).unwrap();
        assert_eq!(report.value("host_launch_us"), Some(3.4));
        assert_eq!(report.figures.len(), 1);
    }

    #[test]
    fn the_limit_can_be_moved() {
        let make = || lines(&[("dram_copy_gbs", &[4000.0, 4300.0, 4600.0])]);
        assert_eq!(make().finish(None), Err(ReportError::Nothing));
        assert!(make().finish(Some(0.1)).is_ok());
        assert_eq!(make().finish(Some(0.01)), Err(ReportError::Nothing));
    }

    #[test]
    fn figures_that_contradict_each_other_are_refused() {
        let c = lines(&[("l2_cycles", &[800.0; 5]), ("dram_cycles", &[600.0; 5]), ("l1_cycles", &[33.0; 5])]);
        let report = c.finish(None).unwrap();
        assert_eq!(report.value("l1_cycles"), Some(33.0));
        assert_eq!((report.value("l2_cycles"), report.value("dram_cycles")), (None, None));
    }

    #[test]
    fn a_process_that_breaks_off_gives_no_report() {
        assert!(matches!(Collector::default().finish(None), Err(ReportError::Broken(_))));
        let mut c = Collector::default();
        assert!(c.take("Segmentation fault").is_none());
        assert_eq!(c.finish(None), Err(ReportError::Broken("Segmentation fault".into())));
        let mut c = lines(&[("dram_copy_gbs", &[4300.0])]);
        c.take(&Line::Failed("out of memory".into()).to_json());
        assert_eq!(c.finish(None), Err(ReportError::Failed("out of memory".into())));
    }

    #[test]
    fn a_time_of_zero_is_no_figure() {
        let report = lines(&[("dram_copy_gbs", &[4300.0]), ("l1_cycles", &[0.0, 1.0])]).finish(None).unwrap();
        assert_eq!(report.value("l1_cycles"), None);
        assert_eq!(report.skipped[0].what, "l1_cycles");
    }
}
