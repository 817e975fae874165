//! What is said beside the ranking: another GPU that costs less, and inputs that are on the host.

use preflop_cost::{Catalogue, Pricing};
use preflop_gpu::{Gpu, catalog};
use preflop_graph::graph::GraphOp;
use preflop_graph::{Graph, Iteration, Precision};
use preflop_schedule::Schedule as _;
use preflop_time::TimeModel;
use preflop_units::Seconds;
use serde::Serialize;

/// Another GPU for the same run.
#[derive(Debug, Clone, PartialEq, Serialize, utoipa::ToSchema)]
pub struct Cheaper {
    /// Its name.
    pub gpu: String,
    /// The run as asked for, there.
    pub iteration_ms: f64,
    /// Its price.
    pub usd_per_hour: f64,
    /// The price of the GPU asked about.
    pub instead_of_usd_per_hour: f64,
}

/// Time that counts as equal.
const AS_FAST: f64 = 1.02;

/// The cheapest GPU of the catalogue that has room and is as fast.
pub(super) fn cheaper(
    model: &TimeModel,
    iteration: &Iteration,
    gpu: &Gpu,
    precision: Precision,
) -> Option<Cheaper> {
    let prices = Catalogue::embedded().ok()?;
    let price = |name: &str| prices.quote(name, Pricing::OnDemand).map(|q| q.usd_per_hour);
    let ours = price(&gpu.name)?;
    let now = model.predict_iteration(iteration, gpu).time;
    let reserve = preflop_cost::Reserve::default();
    let peak = preflop_cost::fit::prudent_peak(iteration);
    let mut found: Option<Cheaper> = None;
    for other in catalog::all().ok()? {
        let Some(usd) = price(&other.name).filter(|usd| *usd < ours) else { continue };
        let dearer = found.as_ref().is_some_and(|f| f.usd_per_hour <= usd);
        if dearer || !reserve.fits(peak, &other) || preflop_cost::search::lacks(&other, precision).is_some() {
            continue;
        }
        let time: Seconds = model.predict_iteration(iteration, &other).time;
        if time.0 <= now.0 * AS_FAST {
            found = Some(Cheaper {
                gpu: other.name,
                iteration_ms: time.ms(),
                usd_per_hour: usd,
                instead_of_usd_per_hour: ours,
            });
        }
    }
    found
}

/// Bytes a second from pinned memory of the host: PCIe 4 with 16 lanes.
const FROM_HOST: f64 = 25e9;
/// Share of an iteration from which a copy of its inputs is worth a word.
const COPY_WORTH: f64 = 0.02;

/// What the copy of an iteration's inputs from the host would take.
pub(super) fn on_host(graph: &Graph, time: Seconds) -> Option<String> {
    let inputs = graph.nodes.iter().filter(|n| n.op == GraphOp::Input).flat_map(|n| &n.outputs);
    let bytes: f64 = inputs
        .map(|&t| {
            let tensor = &graph.tensors[t as usize];
            let size = if tensor.content == preflop_graph::graph::Content::Int { 8.0 } else { 4.0 };
            tensor.shape.numel() as f64 * size
        })
        .sum();
    let copy = Seconds(bytes / FROM_HOST);
    (copy.0 > COPY_WORTH * time.0).then(|| {
        format!(
            "the inputs are taken to be on the GPU: {:.0} MiB from the host take {:.2} ms over PCIe 4 unless a loader hides them (DataLoader(.., pin_memory=True), \
             x.to(\"cuda\", non_blocking=True))",
            bytes / 1_048_576.0,
            copy.ms()
        )
    })
}
