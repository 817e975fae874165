//! `preflop validate --parallel`: several GPUs against measurements that are not part of this repository.

use crate::error::InputError;
use crate::grid::Grid;
use crate::input;
use crate::output::{self, Align, Output};
use anyhow::Context as _;
use flate2::read::GzDecoder;
use preflop_cluster::collective::Collectives;
use preflop_cluster::validate::vendor::Which;
use preflop_cluster::validate::{
    Evidence, Pair, Score, collectives, ddp, fsdp, kind_of_evidence, megatron, memory, vendor,
};
use preflop_core::time::TimeModel;
use serde::de::DeserializeOwned;
use serde_json::json;
use std::io::{Read, Write as _};
use std::path::{Path, PathBuf};

/// Where the measurements lie unless said.
const DEFAULT: &str = "../shared/data/parallel";

fn rows<T: DeserializeOwned>(folder: &Path, file: &str) -> anyhow::Result<Vec<T>> {
    let path = folder.join(file);
    let name = path.to_string_lossy().into_owned();
    let opened = input::open(&name)?;
    let reader: Box<dyn Read> = if name.to_ascii_lowercase().ends_with(".gz") {
        Box::new(GzDecoder::new(opened))
    } else {
        Box::new(opened)
    };
    csv::Reader::from_reader(reader)
        .deserialize()
        .collect::<Result<_, _>>()
        .with_context(|| format!("{name}: not the file that is expected"))
}

/// Runs the command.
pub fn run(data: Option<&Path>, output: &Output) -> anyhow::Result<()> {
    let shared = std::env::var_os("PREFLOP_SHARED").map(|s| PathBuf::from(s).join("data/parallel"));
    let folder = data.map(Path::to_path_buf).or(shared).unwrap_or_else(|| PathBuf::from(DEFAULT));
    if !folder.is_dir() {
        return Err(InputError::new(format!("no folder `{}` with measurements of several GPUs", folder.display()))
            .hint("name it with `--data DIR`; it holds collectives.csv.gz, megatron_3d.csv, fsdp_mpt.csv and others")
            .into());
    }
    let mut board = Board { scores: Vec::new(), notes: Vec::new() };
    let time_model = TimeModel::embedded();
    let model = Collectives::embedded();
    board.collectives(&rows(&folder, "collectives.csv.gz")?, &model)?;
    board.megatron(&folder, &time_model, &model)?;
    board.elsewhere(&folder, &time_model, &model)?;
    board.ddp(&rows(&folder, "ddp_scaling.csv")?);
    board.covered();
    if output.json {
        return output::print_json(&json!({"scores": board.scores, "notes": board.notes}));
    }
    board.print(output)
}

/// What is left out of rows that constants were fitted on.
const IN_THE_FIT: &str = "nothing: in the fit";

/// A share of fewer rows than this says nothing about nine tenths: the rows are counted instead.
const FEW: usize = 10;

fn coverage(s: &Score) -> String {
    let Some(percent) = s.coverage_percent else { return "-".to_string() };
    if s.rows < FEW {
        return format!("{:.0} of {}", percent / 100.0 * s.rows as f64, s.rows);
    }
    format!("{percent:.0} %")
}

struct Board {
    scores: Vec<Score>,
    notes: Vec<String>,
}

impl Board {
    fn add(&mut self, what: &str, left_out: &str, pairs: &[Pair], bar: Option<f64>) {
        let mut score = Score::of(what, left_out, pairs, bar);
        if left_out == IN_THE_FIT {
            // Intervals speak of what was not seen.
            score.coverage_percent = None;
        }
        self.scores.push(score);
    }

    fn collectives(&mut self, rows: &[collectives::Row], model: &Collectives) -> anyhow::Result<()> {
        let switched = collectives::left_out_inside(rows, "vtrain_a100", model)?;
        self.add("collectives, switched node", "another laboratory's A100", &switched, Some(6.0));
        let virtual_machine = collectives::left_out_inside(rows, "azure_a100_40", model)?;
        self.add(
            "collectives, switched node",
            "a virtual machine of 2021 (not its late start)",
            &virtual_machine,
            None,
        );
        let generations = collectives::left_out_generations(rows, model.fitted())?;
        self.add("collectives from 1 MB on", "link generation", &generations, Some(15.0));
        let across = collectives::left_out_across(rows, model.fitted())?;
        self.add("collectives across nodes from 1 MB on", "number of nodes", &across, Some(14.0));
        self.add("collectives, switched node", IN_THE_FIT, &collectives::fitted_inside(rows, model)?, None);
        self.add("collectives across nodes", IN_THE_FIT, &collectives::fitted_across(rows, model)?, None);
        let small = collectives::small_across(rows, model)?;
        self.add("all-reduces across nodes below 1 MB", IN_THE_FIT, &small, None);
        Ok(())
    }

    fn megatron(&mut self, folder: &Path, time_model: &TimeModel, model: &Collectives) -> anyhow::Result<()> {
        let mut runs = megatron::runs(&rows::<megatron::Row>(folder, "megatron_3d.csv")?, time_model, model)?;
        let mut selene =
            megatron::selene(&rows::<megatron::Selene>(folder, "megatron_selene.csv")?, time_model, model)?;
        let evidence = kind_of_evidence(&mut [&mut runs.one_node, &mut runs.many_nodes, &mut selene]);
        self.evidence("whole iterations, stack and generation of the fit", evidence);
        self.add("TP x DP x PP, one node", "model (host constants)", &runs.one_node, Some(7.0));
        self.add("TP x DP x PP, 256 GPUs", "none: choices were made on these", &runs.many_nodes, Some(6.0));
        self.add("GPT 22B and 175B, sequence parallel", "all rows", &selene, Some(3.0));
        let many = runs.picks.iter().filter(|(_, _, n)| *n >= 15);
        for (case, loss, plans) in many {
            self.notes.push(format!(
                "plan picked among {plans} measured ({case}): {:.1} % slower than the best (bar 3 %)",
                100.0 * loss
            ));
        }
        let few: Vec<f64> = runs.picks.iter().filter(|(_, _, n)| *n < 15).map(|(_, loss, _)| *loss).collect();
        let mean = 100.0 * few.iter().sum::<f64>() / few.len().max(1) as f64;
        self.notes.push(format!(
            "plan picked on one node, {} cases: {mean:.1} % slower than the best on the mean (bar 3 %)",
            few.len()
        ));
        let all =
            100.0 * runs.picks.iter().map(|(_, loss, _)| loss).sum::<f64>() / runs.picks.len().max(1) as f64;
        self.notes.push(format!(
            "plan picked, all {} cases: {all:.1} % slower than the best on the mean (bar 3 %)",
            runs.picks.len()
        ));
        let stages = runs.stages;
        self.notes.push(format!(
            "TP x DP x PP, one node: {} kinds of stage (width, tp, micro batch) are off by {:.1} % each; runs of a kind, of any depth, batch, dp and pp, lie {:.1} % from it",
            stages.kinds, 100.0 * stages.shared, 100.0 * stages.within
        ));
        let h = runs.host;
        self.notes.push(format!(
            "host of Megatron-DeepSpeed 2022, fitted on all rows of one node: {:.2} ms forward and {:.2} ms backward of a layer, {:.2} ms a microbatch, {:.2} ms an iteration",
            h.layer * 1e3, h.backward * 1e3, h.microbatch * 1e3, h.iteration * 1e3
        ));
        Ok(())
    }

    /// Whole iterations on stacks and generations of which nothing was fitted, but contention on the A100.
    fn elsewhere(
        &mut self,
        folder: &Path,
        time_model: &TimeModel,
        model: &Collectives,
    ) -> anyhow::Result<()> {
        let ready = fsdp::ready(&rows::<fsdp::Row>(folder, "fsdp_mpt.csv")?, time_model)?;
        let mut mpt: Vec<Pair> = ready.iter().map(|r| r.pair(fsdp::Era::TODAY, model)).collect();
        let (mut peaks, mut titan) = (Vec::new(), Vec::new());
        for row in rows::<memory::Row>(folder, "torchtitan.csv")? {
            let [peak, time] = memory::predict(&row, time_model, model)?;
            peaks.push(peak);
            titan.push(time);
        }
        let bridge = rows::<vendor::Row>(folder, "megatron_bridge.csv")?;
        let vendor = |which| vendor::pairs(&bridge, which, time_model, model);
        let (mut sharded, mut cut, mut experts) =
            (vendor(Which::LlamaFsdp)?, vendor(Which::Llama)?, vendor(Which::Qwen)?);
        let evidence = kind_of_evidence(&mut [&mut mpt, &mut titan, &mut sharded, &mut cut, &mut experts]);
        self.evidence("whole iterations, another stack or generation", evidence);
        self.add("FSDP, next generation: Llama 3.1 8B on H100 of 500 W", "GPU", &titan, Some(12.0));
        self.add("FSDP, the one after: Llama 3 70B on 64 GB200, 8 bit", "GPU", &sharded, Some(12.0));
        self.add("FSDP of 2023 with today's kernels, A100", "all but contention", &mpt, None);
        self.fsdp(&ready, model);
        self.add("peak memory, Llama 3.1 8B with FSDP", "all rows", &peaks, Some(5.0));
        self.add("TP x PP, Llama 3 70B on 64 GB200, 8 bit", "GPU", &cut, None);
        self.add("mixture of experts on 8 GB200, ep 8", "GPU", &experts, None);
        Ok(())
    }

    /// FSDP runs of 2023 with the kernels of that year.
    fn fsdp(&mut self, ready: &[fsdp::Ready], model: &Collectives) {
        let out = fsdp::left_out_models(ready, model);
        self.add("FSDP of 2023, kernels of that year, A100", "model (not the GPU)", &out, Some(6.0));
        let gpus = fsdp::left_out_gpus(ready, model);
        for (same, what, bar) in [
            (true, "FSDP of 2023, a GPU of the same generation", 6.0),
            (false, "FSDP of 2023, a GPU of another generation", 12.0),
        ] {
            let pairs: Vec<Pair> = gpus.iter().filter(|(s, _)| *s == same).map(|(_, p)| p.clone()).collect();
            if pairs.is_empty() {
                self.notes.push(format!("{what}: these rows have one GPU, so none can be left out"));
            } else {
                self.add(what, "GPU", &pairs, Some(bar));
            }
        }
        let era = fsdp::fit(&ready.iter().collect::<Vec<_>>(), model);
        self.notes.push(format!(
            "FSDP of 2023 on A100: attention x {:.2}, pointwise x {:.2}, compute beside collectives +{:.0} %",
            era.attention,
            era.pointwise,
            100.0 * era.contention
        ));
    }

    fn ddp(&mut self, rows: &[ddp::Row]) {
        let runs = ddp::usable(rows);
        for (what, joined, bar) in [
            ("DDP ratio, NVLink", ddp::Box::Nvlink, Some(3.0)),
            ("DDP ratio, PCIe 4 with peer access", ddp::Box::PciePeer, Some(5.0)),
            ("DDP ratio, older and consumer PCIe", ddp::Box::PcieOther, None),
            ("DDP ratio, virtual machines", ddp::Box::Virtual, Some(10.0)),
        ] {
            let (ours, perfect) = ddp::left_out_gpus(&runs, joined);
            let left_out = if joined == ddp::Box::Virtual { "network" } else { "GPU" };
            self.add(what, left_out, &ours, bar);
            let ideal = Score::of(what, "", &perfect, None).mean_percent;
            self.notes.push(format!("{what}: perfect scaling would be {ideal:.1} % off"));
        }
    }

    fn evidence(&mut self, kind: &str, e: Evidence) {
        self.notes.push(format!(
            "90 % intervals of {kind}: sides of {:.3} in logs from all {} runs; with the model left out they hold {:.0} %",
            e.side,
            e.rows,
            100.0 * e.covered as f64 / e.rows.max(1) as f64
        ));
    }

    /// What the intervals hold over all rows that were left out, whatever the set.
    fn covered(&mut self) {
        let sets: Vec<(f64, f64)> =
            self.scores.iter().filter_map(|s| Some((s.rows as f64, s.coverage_percent?))).collect();
        let rows: f64 = sets.iter().map(|(rows, _)| rows).sum();
        let inside: f64 = sets.iter().map(|(rows, percent)| rows * percent / 100.0).sum();
        self.notes.push(format!(
            "90 % intervals over all {} sets: {inside:.0} of {rows:.0} rows inside, {:.0} % (bar 85 to 95 %)",
            sets.len(),
            100.0 * inside / rows.max(1.0)
        ));
    }

    fn print(&self, output: &Output) -> anyhow::Result<()> {
        let mut out = output::stdout();
        let mut table = Grid::new(&[
            ("what", Align::Left, 0),
            ("left out", Align::Left, 2),
            ("rows", Align::Right, 1),
            ("mean", Align::Right, 0),
            ("median", Align::Right, 4),
            ("systems", Align::Right, 5),
            ("bias", Align::Right, 3),
            ("in 90 %", Align::Right, 2),
            ("bar", Align::Right, 0),
            ("holds", Align::Keep, 0),
        ]);
        for s in &self.scores {
            table.row([
                s.what.clone(),
                s.left_out.clone(),
                s.rows.to_string(),
                format!("{:.1} %", s.mean_percent),
                format!("{:.1} %", s.median_percent),
                format!("{:.1} %", s.systems_percent),
                format!("{:+.1} %", s.bias_percent),
                coverage(s),
                s.bar_percent.map_or_else(|| "-".to_string(), |b| format!("{b} %")),
                s.holds.map_or("", |h| if h { "yes" } else { "NO" }).to_string(),
            ]);
        }
        table.write(&mut out, output)?;
        writeln!(out)?;
        for note in &self.notes {
            writeln!(out, "{}", output::wrapped(note, output.width, "  "))?;
        }
        Ok(out.flush()?)
    }
}
