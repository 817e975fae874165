//! Intel VTune's summary (`vtune -report summary`) as text or CSV (`-format csv -csv-delimiter comma`): the host's side of a run.
//!
//! Both are one tree of figures, `Name: value` by indentation or `level,name,value`; the text has a table of the hottest functions. The machine's and the user's names,
//! which stand at the end, are not read.

use crate::ImportError;
use crate::control::Meter;
use preflop_core::profile::host_report::{HostReport, HotFunction};
use std::io::Read;

/// How the CSV begins.
const HEADER: [&str; 3] = ["Hierarchy Level", "Metric Name", "Metric Value"];
/// Functions that a summary lists are few; a longer table is none of its own.
const MOST_FUNCTIONS: usize = 100;

/// No run takes 30,000 years.
const MOST: f64 = 1e12;

/// Lines of the tool's own talk, which may stand before the summary.
fn is_talk(line: &str) -> bool {
    let line = line.trim();
    line.is_empty() || line.starts_with("vtune: ") || line.starts_with("amplxe: ")
}

/// Lines, also where progress was written over itself.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.trim_start_matches('\u{feff}').split(['\n', '\r'])
}

/// Does a text that begins so hold a summary?
pub fn is_summary(text: &str) -> bool {
    let first = lines(text).find(|l| !is_talk(l)).unwrap_or_default();
    first.trim_start().starts_with("Elapsed Time:") || is_header(first)
}

fn is_header(line: &str) -> bool {
    let mut fields = line.split(',').map(|f| f.trim().trim_matches('"'));
    HEADER.iter().all(|name| fields.next() == Some(name))
}

/// `5.530s`, `88.9%`, `1,024`: the number in front.
fn number(text: &str) -> Option<f64> {
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == ',')).unwrap_or(text.len());
    text[..end].replace(',', "").parse().ok().filter(|x: &f64| (0.0..MOST).contains(x))
}

/// Reads either form.
pub fn read(mut reader: impl Read, name: &str, meter: &mut Meter) -> Result<HostReport, ImportError> {
    let bytes = meter.read_all(&mut reader)?;
    let text = String::from_utf8_lossy(&bytes);
    let mut report = HostReport { source: name.to_string(), ..HostReport::default() };
    let mut found = Found::default();
    let mut rest = lines(&text).skip_while(|l| is_talk(l)).peekable();
    if rest.next_if(|line| is_header(line)).is_some() {
        let body: Vec<&str> = rest.collect();
        let mut table = csv::ReaderBuilder::new()
            .flexible(true)
            .has_headers(false)
            .from_reader(std::io::Cursor::new(body.join("\n")));
        for record in table.records() {
            let record = record.map_err(|e| ImportError::Malformed {
                file: name.to_string(),
                offset: e.position().map_or(0, csv::Position::byte),
                detail: e.to_string(),
            })?;
            if let (Some(what), Some(value)) = (record.get(1), record.get(2)) {
                found.take(what.trim(), value.trim(), &mut report);
            }
        }
    } else {
        while let Some(line) = rest.next() {
            if line.trim() == "Top Hotspots" {
                report.hottest = hottest(&mut rest);
            } else if let Some((what, value)) = line.split_once(':') {
                found.take(what.trim(), value.trim(), &mut report);
            }
        }
    }
    if !(found.elapsed && found.cpu) {
        let what = format!(
            "a VTune summary without {}",
            if found.elapsed { "`CPU Time`" } else { "`Elapsed Time`" }
        );
        return Err(ImportError::Truncated { file: name.to_string(), what });
    }
    Ok(report.concluded())
}

/// Which figures were met: the first of a name is the run's, later ones are parts of it.
#[derive(Default)]
struct Found {
    elapsed: bool,
    cpu: bool,
}

impl Found {
    fn take(&mut self, what: &str, value: &str, report: &mut HostReport) {
        let Some(x) = number(value) else { return };
        match what {
            "Elapsed Time" if !self.elapsed => (self.elapsed, report.elapsed_s) = (true, x),
            "CPU Time" if !self.cpu => (self.cpu, report.cpu_s) = (true, x),
            "Spin Time" => report.spin_s = report.spin_s.or(Some(x)),
            "Overhead Time" => report.overhead_s = report.overhead_s.or(Some(x)),
            "Total Thread Count" => report.threads = report.threads.or(Some(x as u64)),
            "Logical CPU Count" => report.logical_cpus = Some(x),
            // `3.557 out of 24`, or `14.8% (3.557 out of 24 logical CPUs)`.
            _ if what.contains("Effective CPU Utilization") => {
                let of = value.split_once(" out of ").and_then(|(_, n)| number(n));
                report.logical_cpus = report.logical_cpus.or(of);
            }
            _ => {}
        }
    }
}

/// The table under `Top Hotspots`: names over a line of dashes that says where columns begin, rows until an empty line.
fn hottest<'a>(lines: &mut impl Iterator<Item = &'a str>) -> Vec<HotFunction> {
    let mut table = lines.skip_while(|l| !l.trim_start().starts_with("Function"));
    let (Some(header), Some(dashes)) = (table.next(), table.next()) else { return Vec::new() };
    let mut starts = vec![0];
    starts.extend(dashes.match_indices(" -").map(|(i, _)| i + 1));
    let cell = |line: &str, i: usize| -> String {
        let from = starts.get(i).copied().unwrap_or(usize::MAX);
        let to = starts.get(i + 1).copied().unwrap_or(usize::MAX).min(line.len());
        line.get(from.min(line.len())..to).unwrap_or_default().trim().to_string()
    };
    let column = |name: &str| (0..starts.len()).find(|i| cell(header, *i) == name);
    let (Some(function), Some(module), Some(time)) =
        (column("Function"), column("Module"), column("CPU Time"))
    else {
        return Vec::new();
    };
    table
        .take_while(|line| !line.trim().is_empty())
        .take(MOST_FUNCTIONS)
        .filter_map(|line| {
            let seconds = number(&cell(line, time))?;
            Some(HotFunction { name: cell(line, function), module: cell(line, module), seconds })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use crate::{HostReport, ImportError, Recorded, import_bytes, recorded_bytes};

    fn host(text: &str) -> HostReport {
        match recorded_bytes(text.as_bytes(), "run").unwrap() {
            Recorded::Host(report) => report,
            Recorded::Run(_) => panic!("a run"),
        }
    }

    const TEXT: &str = "vtune: Using result path `r000hs'\n\
        Elapsed Time: 12.500s\n    CPU Time: 15.000s\n        Effective Time: 12.600s\n        Spin Time: 2.000s\n            Imbalance or Serial Spinning: 1.500s\n        \
        Overhead Time: 0.400s\n    Total Thread Count: 34\n    Paused Time: 0s\n\n\
        Top Hotspots\n\
        Function              Module            CPU Time  % of CPU Time(%)\n\
        --------------------  ----------------  --------  ----------------\n\
        [libtorch_cpu.so]     libtorch_cpu.so     6.000s             40.0%\n\
        _PyEval_EvalFrame     python3.11          4.500s             30.0%\n\
        [Others]              N/A                 4.500s             30.0%\n\n\
        Effective CPU Utilization: 5.0%\n    Average Effective CPU Utilization: 1.200 out of 24\n\
        Collection and Platform Info\n    Computer Name: somewhere\n    CPU\n        Logical CPU Count: 24\n";

    const CSV: &str = "Hierarchy Level,Metric Name,Metric Value\n0,\"Elapsed Time\",12.500\n1,\"CPU Time\",15.000\n2,\"Effective Time\",12.600\n2,\"Spin Time\",2.000\n\
        2,\"Overhead Time\",0.400\n1,\"Total Thread Count\",34\n0,\"Collection and Platform Info\",\n1,\"Logical CPU Count\",24\n";

    #[test]
    fn text_and_csv_say_the_same_of_the_host() {
        let text = host(TEXT);
        let csv = host(CSV);
        assert_eq!((text.elapsed_s, text.cpu_s, text.cpus_busy), (12.5, 15.0, 1.2));
        assert_eq!((text.spin_s, text.overhead_s, text.threads), (Some(2.0), Some(0.4), Some(34)));
        assert_eq!((text.logical_cpus, text.utilization), (Some(24.0), Some(1.2 / 24.0)));
        let hottest: Vec<_> =
            text.hottest.iter().map(|f| (f.name.as_str(), f.module.as_str(), f.seconds)).collect();
        assert_eq!(hottest[1], ("_PyEval_EvalFrame", "python3.11", 4.5));
        assert_eq!(hottest.len(), 3);
        assert_eq!(csv, HostReport { hottest: Vec::new(), ..text });
    }

    #[test]
    fn machine_and_user_are_not_read() {
        let text = host(TEXT);
        assert!(!serde_json::to_string(&text).unwrap().contains("somewhere"));
    }

    #[test]
    fn what_is_no_summary_is_left_to_others_and_a_cut_one_is_refused() {
        let other = recorded_bytes(include_bytes!("../data/step.json.gz"), "step.json.gz");
        assert!(matches!(other, Ok(Recorded::Run(_))));
        let cut = TEXT.split("    CPU Time").next().unwrap();
        assert!(matches!(recorded_bytes(cut.as_bytes(), "cut"), Err(ImportError::Truncated { .. })));
        // Progress that was written over itself.
        assert_eq!(
            host(&format!("vtune: Executing actions  0 %\rvtune: Executing actions 75 %\r{TEXT}")),
            host(TEXT)
        );
    }

    #[test]
    fn as_a_recording_of_kernels_it_is_refused_in_one_line() {
        let message = import_bytes(TEXT.as_bytes(), "run.txt").unwrap_err().to_string();
        assert!(
            message.contains("VTune") && message.contains("preflop explain") && !message.contains('\n'),
            "{message}"
        );
    }
}
