//! Whole image networks on GPUs that no network was measured on for the fit: `preflop-fit networks` scores them in the fit, `preflop-fit unseen`
//! with each GPU left out.

use crate::score::{Line, Scored};
use crate::sets::Sets;
use anyhow::Result;
use preflop_core::Dtype;
use preflop_core::gpu::{Gpu, catalog};
use preflop_core::kernels::conv::Task;
use preflop_core::kernels::{kernels_of, tensor_conv};
use preflop_core::model::{LowerOptions, Mode, OptimizerChoice, Precision, lower, zoo};
use preflop_core::ops::{Op, OpCall};
use preflop_core::schedule::{HostModel, Schedule as _};
use preflop_core::time::{IterationPrediction, Stack, TimeModel};
use preflop_core::units::Seconds;
use std::collections::{BTreeMap, HashMap};

/// One published run.
#[derive(Debug, Clone)]
pub struct Run {
    pub stack: Stack,
    /// Name in the catalogue.
    pub gpu: String,
    pub model: String,
    pub precision: Precision,
    pub mode: Mode,
    optimizer: Option<OptimizerChoice>,
    channels_last: bool,
    /// Did PyTorch 1 run it, and with it an image library of that time?
    torch_1: bool,
    batch: u64,
    /// Bytes of images that are copied to the GPU inside the timed part.
    copied: f64,
    pub ms: f64,
}

impl Run {
    /// Is it a transformer?
    pub fn transformer(&self) -> bool {
        self.model.starts_with("vit") || self.model.starts_with("swin")
    }

    fn set(&self) -> String {
        let layout = if self.channels_last { " nhwc" } else { "" };
        format!("{} {} {:?} {}{layout}", self.gpu, self.stack.name, self.precision, self.mode.name())
    }
}

/// The files with their stacks, and the columns in which the model and the time stand.
const FILES: [(&str, Stack, &str, &str); 3] = [
    ("networks_rtx3090_pytorch.csv", Stack::IMAGE_LIBRARY, "model", "iteration_ms"),
    ("networks_titanv_rtx2080ti_pytorch_batch12.csv", Stack::PYTORCH_2019, "model", "iteration_ms_median"),
    ("networks_v100_rtx2080ti_tensorflow.csv", Stack::TENSORFLOW, "zoo_model", "iteration_ms"),
];

/// Runs in which the library's autotuner picked a poor algorithm, as the file's own description says.
fn distrusted(model: &str, mode: Mode, layout: &str, torch: &str) -> bool {
    let later = matches!(torch, "2.1" | "2.4");
    layout == "nchw"
        && (matches!(model, "vgg16" | "vgg13_bn") && later || model == "vgg13" && mode == Mode::Train)
}

/// The runs that the zoo can rebuild: images of 224 pixels, nothing compiled.
pub fn runs(sets: &Sets) -> Result<Vec<Run>> {
    let mut out = Vec::new();
    for (file, stack, model, time) in FILES {
        let mut reader = csv::Reader::from_reader(sets.open(&format!("other_gpus/{file}"))?);
        let columns: HashMap<String, usize> =
            reader.headers()?.iter().enumerate().map(|(i, c)| (c.to_string(), i)).collect();
        for record in reader.records() {
            let record = record?;
            let field = |name: &str| columns.get(name).map_or("", |i| &record[*i]);
            let precision = match field("precision") {
                "fp16 autocast" => Precision::Amp,
                "fp32" if stack == Stack::IMAGE_LIBRARY => Precision::Tf32,
                "fp32" => Precision::Fp32,
                "fp16" => Precision::Fp16,
                _ => continue,
            };
            let mode = if field("phase").contains("infer") { Mode::Infer } else { Mode::Train };
            let other = field("image") != "224" || field("xla") == "True";
            if other || distrusted(field(model), mode, field("layout"), field("torch")) {
                continue;
            }
            // The V100 SXM3 of the runs has the chip of the SXM2, which the catalogue has.
            let gpu = field("gpu").replace("sxm3", "sxm2");
            let half = precision != Precision::Fp32 && precision != Precision::Tf32;
            let chosen = half && stack.nhwc_half.contains(&catalog::find(&gpu)?.architecture);
            let batch: u64 = field("batch").parse()?;
            let element = if half { 2.0 } else { 4.0 };
            let copied = if field("includes_copy_of_images") == "True" { element } else { 0.0 };
            out.push(Run {
                stack,
                gpu,
                model: field(model).to_string(),
                precision,
                mode,
                optimizer: (stack == Stack::PYTORCH_2019).then_some(OptimizerChoice::NONE),
                channels_last: field("layout") == "nhwc" || chosen,
                torch_1: field("torch").starts_with("1."),
                batch,
                copied: copied * (batch * 3 * 224 * 224) as f64,
                ms: field(time).parse()?,
            });
        }
    }
    Ok(out)
}

fn iteration(run: &Run) -> Option<preflop_core::model::Iteration> {
    let mut graph = zoo::build(&run.model, Some(run.batch), None).ok()?;
    graph.channels_last = run.channels_last;
    let optimizer = Some(run.optimizer.unwrap_or(graph.optimizer.as_measured()));
    let options = LowerOptions { mode: run.mode, precision: run.precision, optimizer };
    let mut iteration = lower(&graph, &options).ok()?;
    if run.stack == Stack::IMAGE_LIBRARY && run.model.starts_with("vit") {
        // The zoo's network is torchvision's, which turns tokens to the front for attention: it copies them, and its projection cannot add the
        // bias in the product. The library of these runs keeps images in front.
        iteration.steps.retain(|s| !matches!(s.call.name(), "add_bias" | "permute_copy"));
    }
    if run.stack == Stack::IMAGE_LIBRARY && run.model.starts_with("swin") {
        // The zoo's network is torchvision's, which makes the shift's mask anew in each call and pads windows even by nothing. The library of these runs keeps
        // the mask, and before PyTorch 2 it did not pad.
        let last = |name: &str| name.rsplit('.').next().unwrap_or_default().to_string();
        iteration.steps.retain(|s| !(s.name.contains(".mask") || run.torch_1 && last(&s.name) == "pad"));
    }
    Some(iteration)
}

/// A run by a model; nothing for networks that the zoo lacks, and for runs that an old host limits.
pub fn scored(model: &TimeModel, run: &Run, gpu: &Gpu) -> Option<Scored> {
    let p: IterationPrediction = model.clone().with_stack(run.stack).predict_iteration(&iteration(run)?, gpu);
    let copy = run.copied / gpu.host.0 * 1e3;
    (p.host.ms() <= 0.5 * run.ms).then(|| Scored {
        predicted: p.time.ms() + copy,
        measured: run.ms,
        low: p.low.ms() + copy,
        high: p.high.ms() + copy,
    })
}

/// A run with its tensor-core convolutions apart, whose constants are to be fitted.
pub struct Parts {
    gpu: Gpu,
    host: HostModel,
    host_time: Seconds,
    /// Seconds of everything else.
    rest: f64,
    /// Convolutions, how often they run, and what their fp32 rival takes.
    convolutions: Vec<(Task, f64, f64)>,
    pub measured: f64,
}

impl Parts {
    /// Seconds of the iteration with these constants.
    pub fn seconds(&self, figures: &tensor_conv::Figures) -> f64 {
        let time = |(task, count, rival): &(Task, f64, f64)| {
            count * tensor_conv::form(task, figures, &self.gpu).time.min(*rival)
        };
        let wall = self.rest + self.convolutions.iter().map(time).sum::<f64>();
        self.host.join(Seconds(wall), self.host_time).0
    }
}

/// Takes a run apart.
pub fn parts(model: &TimeModel, run: &Run) -> Option<Parts> {
    let gpu = catalog::find(&run.gpu).ok()?;
    let iteration = iteration(run)?;
    let host = model.host_model(&gpu);
    let p = model.predict_iteration(&iteration, &gpu);
    if p.host.ms() > 0.5 * run.ms {
        return None;
    }
    let mut convolutions = Vec::new();
    let mut rest = p.gpu_wall.0 + host.pauses(p.launches).0 + run.copied / gpu.host.0;
    for s in &p.steps {
        let call = &iteration.steps[s.step].call;
        let call = &call.in_format(gpu.runs_in(call.dtype));
        let Op::Conv(c) = &call.op else { continue };
        let task = Task::new(c, call.pass, call.dtype);
        if !tensor_conv::applies(&task, kernels_of(&gpu), &gpu) {
            continue;
        }
        rest -= s.one.time.0 * s.count;
        let plain = OpCall { dtype: Dtype::Fp32, ..call.clone() };
        let rival =
            if call.dtype == Dtype::Tf32 { model.predict(&plain, &gpu).time.0 } else { f64::INFINITY };
        convolutions.push((task, s.count, rival));
    }
    Some(Parts { gpu, host, host_time: p.host, rest, convolutions, measured: run.ms * 1e-3 })
}

/// Errors of the published runs by set, and how many lie in the interval: in the fit as far as forms for boards before Hopper are.
pub fn report(sets: &Sets) -> Result<()> {
    let model = TimeModel::embedded();
    let mut groups: BTreeMap<String, Vec<Scored>> = BTreeMap::new();
    for run in runs(sets)? {
        let Some(s) = scored(&model, &run, &catalog::find(&run.gpu)?) else { continue };
        groups.entry(run.set()).or_default().push(s);
        groups.entry("all".to_string()).or_default().push(s);
    }
    for (set, rows) in &groups {
        println!("  {set:44} {}", Line::of(rows));
    }
    Ok(())
}
