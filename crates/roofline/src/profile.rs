//! The entries of a recording: measured times, with work from counters where there are any and from our model elsewhere.
//!
//! ```text
//! kernel with hardware counters      FLOPs and bytes as counted             (Nsight Compute)
//! operator with recorded shapes      FLOPs and bytes as our model has them  (PyTorch profiler)
//! copy or memset                     its bytes, without FLOPs
//! anything else                      unknown: it keeps its time, and no point is drawn for it
//! ```

use super::bounds::Work;
use super::counters::{counts_flops, work_of_counters};
use super::machine::Pipe;
use super::rows::Entry;
use preflop_gpu::Gpu;
use preflop_profile::analysis::Group;
use preflop_profile::{Analysis, GpuKind, Profile, kernel_name};
use preflop_time::{OpPrediction, TimeModel};
use preflop_units::dtype::Dtype;
use preflop_units::{Bytes, Flops, Seconds};
use serde::Serialize;
use std::collections::HashMap;

/// Kernels and time of entries whose work is known in the same way.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Part {
    /// Kernels, copies and memsets.
    pub launches: f64,
    /// Share of the GPU's time, from 0 to 1.
    pub time_share: f64,
}

/// Where the work of a recording's entries comes from.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Sources {
    /// Hardware counters.
    pub counted: Part,
    /// Shapes of the operator, through our model.
    pub modelled: Part,
    /// Copies and memsets: bytes as recorded.
    pub copied: Part,
    /// Nobody knows.
    pub unknown: Part,
    /// Of the counted ones, those whose FLOPs were not counted; their bytes were.
    pub flops_not_counted: Part,
}

/// Which of the parts an entry belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    Counted,
    Modelled,
    Copied,
    Unknown,
}

impl Sources {
    fn add(&mut self, source: Source, work: &Work) {
        let part = match source {
            Source::Counted => &mut self.counted,
            Source::Modelled => &mut self.modelled,
            Source::Copied => &mut self.copied,
            Source::Unknown => &mut self.unknown,
        };
        part.launches += work.launches;
        part.time_share += work.time.0;
    }

    fn shares(mut self) -> Self {
        let parts = [&mut self.counted, &mut self.modelled, &mut self.copied, &mut self.unknown];
        let total: f64 = parts.iter().map(|p| p.time_share).sum();
        for part in parts.into_iter().chain([&mut self.flops_not_counted]) {
            part.time_share = if total > 0.0 { part.time_share / total } else { 0.0 };
        }
        self
    }

    /// In words, one line.
    pub fn sentence(&self) -> String {
        let named = [
            (self.counted, "from hardware counters"),
            (self.modelled, "from recorded shapes through our model"),
            (self.copied, "copies as recorded"),
            (self.unknown, "unknown (no shapes, no counters)"),
        ];
        let parts: Vec<String> = named
            .iter()
            .filter(|(part, _)| part.launches > 0.0)
            .map(|(part, words)| format!("{words} {:.1} %", 100.0 * part.time_share))
            .collect();
        let without = if self.flops_not_counted.launches > 0.0 {
            format!(" FLOPs were not counted for {:.1} %.", 100.0 * self.flops_not_counted.time_share)
        } else {
            String::new()
        };
        format!("Times are measured. Work by share of the time: {}.{without}", parts.join(", "))
    }
}

/// The entries of one recorded iteration on the GPU that it ran on.
pub fn entries_of_profile(analysis: &Analysis, model: &TimeModel, gpu: &Gpu) -> (Vec<Entry>, Sources) {
    let profile = analysis.profile;
    if !profile.counters.is_empty() {
        return entries_of_counters(profile);
    }
    let share = 1.0 / analysis.iterations();
    let mut known: HashMap<u32, Option<Work>> = HashMap::new();
    let mut sources = Sources::default();
    let copied = copied_bytes(analysis);
    let entries = analysis
        .groups
        .iter()
        .zip(copied)
        .map(|(group, copied)| {
            let modelled = group.work.and_then(|at| {
                let calls = || modelled_work(&analysis.works[at as usize].calls, model, gpu);
                known.entry(at).or_insert_with(calls).clone()
            });
            let (mut work, source) = match modelled {
                Some(work) => (work, Source::Modelled),
                None if copied > 0.0 => {
                    let bytes = [Some(Bytes(copied)), None, None];
                    (Work { bytes, ..Work::default() }, Source::Copied)
                }
                None => (Work::default(), Source::Unknown),
            };
            work.launches = f64::from(group.launches());
            work.time = group.time;
            let work = work.times(share);
            sources.add(source, &work);
            entry(analysis, group, work, share * f64::from(group.calls()))
        })
        .collect();
    (entries, sources.shares())
}

/// A kernel's name without its return type, template arguments and parameters, which fill pages.
fn short_name(name: &str) -> &str {
    let name = name.strip_prefix("void ").unwrap_or(name);
    // Anonymous namespaces stand in parentheses too.
    let end = name.match_indices(['<', '(']).map(|(i, _)| i).find(|i| !name[*i..].starts_with("(anonymous"));
    match end {
        Some(end) if end > 0 => &name[..end],
        _ => name,
    }
}

fn entry(analysis: &Analysis, group: &Group, work: Work, count: f64) -> Entry {
    let names = &analysis.profile.names;
    let full = names.text(group.name);
    let op = short_name(full).to_string();
    let dtype = group.dtype.map_or_else(String::new, |d| d.name().to_string());
    Entry {
        layer: names.text(group.module).trim_start_matches("nn.Module: ").to_string(),
        // Works are distinct shapes; unknown ones are told apart by family.
        identity: format!("{full} {:?} {} {dtype}", group.work, group.family.name()),
        op,
        family: group.family.name().to_string(),
        phase: group.phase.map_or("unattributed", preflop_graph::Phase::name).to_string(),
        dtype,
        count,
        work,
    }
}

/// What our model says that some calls move and compute; `None` where there is no call.
fn modelled_work(calls: &[preflop_ops::OpCall], model: &TimeModel, gpu: &Gpu) -> Option<Work> {
    let mut sum: Option<Work> = None;
    for call in calls {
        let p: OpPrediction = model.predict(call, gpu);
        let flops =
            if p.flops > Flops::ZERO { vec![(Pipe::of_call(call, gpu), p.flops)] } else { Vec::new() };
        let one = Work { flops, bytes: [p.dram, p.l2, p.l1].map(Some), launches: 0.0, time: Seconds::ZERO };
        match &mut sum {
            Some(sum) => sum.add(&one),
            None => sum = Some(one),
        }
    }
    sum
}

/// By group, bytes of copies and memsets, 0 where a kernel is among them: a copy within the device reads and writes, the others do
/// one of them here.
fn copied_bytes(analysis: &Analysis) -> Vec<f64> {
    let sums = analysis.by_group(Some(0.0), |sum: &mut Option<f64>, event, _| {
        let bytes = match event.kind {
            GpuKind::Kernel => None,
            GpuKind::CopyDevice => Some(2.0 * event.bytes as f64),
            GpuKind::CopyHost | GpuKind::CopyPeer | GpuKind::Memset => Some(event.bytes as f64),
        };
        *sum = sum.zip(bytes).map(|(sum, bytes)| sum + bytes);
    });
    sums.into_iter().map(Option::unwrap_or_default).collect()
}

/// The entries of kernels with hardware counters.
fn entries_of_counters(profile: &Profile) -> (Vec<Entry>, Sources) {
    let mut sources = Sources::default();
    let entries = profile
        .counters
        .iter()
        .map(|kernel| {
            let name = profile.names.text(kernel.kernel);
            let metrics: Vec<(&str, f64)> =
                kernel.metrics.iter().map(|(id, value)| (profile.names.text(*id), *value)).collect();
            let work = work_of_counters(&metrics, Seconds(kernel.dur_ns as f64 / 1e9));
            let class = kernel_name::classify(name);
            let dtype = dtype_of(&work).or(class.dtype).map_or_else(String::new, |d| d.name().to_string());
            sources.add(if work.is_unknown() { Source::Unknown } else { Source::Counted }, &work);
            if !work.is_unknown() && !counts_flops(&metrics) {
                sources.flops_not_counted.launches += work.launches;
                sources.flops_not_counted.time_share += work.time.0;
            }
            Entry {
                layer: String::new(),
                op: short_name(name).to_string(),
                identity: name.to_string(),
                family: class.family.name().to_string(),
                phase: "unattributed".to_string(),
                dtype,
                count: 1.0,
                work,
            }
        })
        .collect();
    (entries, sources.shares())
}

/// The format of most FLOPs.
fn dtype_of(work: &Work) -> Option<Dtype> {
    work.flops.iter().max_by(|a, b| a.1.0.total_cmp(&b.1.0)).map(|(pipe, _)| pipe.dtype)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{By, Level, Machine, Rows};
    use preflop_gpu::catalog;
    use preflop_profile::fixtures::{call, event, op, profile};
    use preflop_profile::window::Choice;
    use preflop_profile::{Counters, Format};

    #[test]
    fn shapes_give_work_and_names_alone_do_not() {
        let mut p = profile();
        let mut mm = op(&mut p.names, "aten::mm", 0, 100);
        mm.dims = p.names.add("[[64, 128], [128, 256]]");
        mm.types = p.names.add(r#"["float", "float"]"#);
        p.ops = vec![mm].into();
        p.calls = vec![call(&mut p.names, 10, 5, 1)].into();
        let mut copy = event(&mut p.names, "Memcpy DtoD", 200, 20, 4);
        (copy.kind, copy.bytes) = (GpuKind::CopyDevice, 1000);
        p.gpu_events = vec![
            event(&mut p.names, "ampere_sgemm_64x64_nn", 30, 60, 1),
            event(&mut p.names, "mystery", 100, 20, 3),
            copy,
        ]
        .into();
        let analysis = Analysis::new(&p, &Choice::default()).unwrap();
        let gpu = catalog::find("a100").unwrap();
        let (entries, sources) = entries_of_profile(&analysis, &TimeModel::embedded(), &gpu);
        assert_eq!(entries.len(), 3);
        assert_eq!(entries[0].work.total_flops().0, 2.0 * 64.0 * 128.0 * 256.0);
        assert!((entries[0].work.time.us() - 0.06).abs() < 1e-12);
        assert!(entries[1].work.is_unknown());
        // A copy within the device reads and writes.
        assert_eq!(entries[2].work.bytes(Level::Dram), Some(Bytes(2000.0)));
        assert!((sources.modelled.time_share - 0.6).abs() < 1e-12);
        assert!((sources.unknown.time_share - 0.2).abs() < 1e-12);
        let machine = Machine::of(&gpu);
        let rows = Rows::new(&entries, By::Operator, &machine);
        // 60 ns for 4.2 MFLOP is more than the chip can do: flagged, not clipped.
        assert!(rows.summary.above_roof > 0);
        assert!((rows.summary.unknown_share - 0.2).abs() < 1e-12);
        // Unknown work is neither bound by overhead nor free of FLOPs.
        assert!((rows.summary.class_shares.iter().sum::<f64>() - 0.8).abs() < 1e-12);
        assert_eq!(rows.summary.zero_flop.rows, 1);
    }

    #[test]
    fn kernel_names_are_short() {
        assert_eq!(short_name("void at::native::add<4, Functor<float>>(int)"), "at::native::add");
        assert_eq!(short_name("at::(anonymous namespace)::cat<int>(T)"), "at::(anonymous namespace)::cat");
        assert_eq!(short_name("aten::mm"), "aten::mm");
        assert_eq!(short_name("(odd)"), "(odd)");
    }

    #[test]
    fn counters_are_taken_as_counted() {
        let mut p = Profile::new("test.csv", Format::NsightCompute);
        let (kernel, dram) = (p.names.add("sgemm"), p.names.add("dram__bytes.sum"));
        let fma = p.names.add("sm__sass_thread_inst_executed_op_ffma_pred_on.sum");
        p.gpu_events = vec![event(&mut p.names, "sgemm", 0, 1000, 0)].into();
        p.counters = vec![Counters { kernel, dur_ns: 1000, metrics: vec![(dram, 5e5), (fma, 1e6)] }];
        let analysis = Analysis::new(&p, &Choice::default()).unwrap();
        let gpu = catalog::find("v100").unwrap();
        let (entries, sources) = entries_of_profile(&analysis, &TimeModel::embedded(), &gpu);
        assert_eq!(entries.len(), 1);
        assert_eq!(entries[0].work.total_flops(), Flops(2e6));
        assert_eq!(entries[0].work.bytes(Level::Dram), Some(Bytes(5e5)));
        assert_eq!(entries[0].work.bytes(Level::L2), None);
        assert_eq!((sources.counted.launches, sources.counted.time_share), (1.0, 1.0));
        assert_eq!(
            sources.sentence(),
            "Times are measured. Work by share of the time: from hardware counters 100.0 %."
        );
    }
}
