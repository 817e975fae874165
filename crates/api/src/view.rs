//! What a page of charts shows of some work on one machine.

use preflop_core::roofline::{MachineData, RowData, Rows, Sources};
use serde::Serialize;
use utoipa::ToSchema;

/// What a page shows of a view.
#[derive(Debug, Serialize, ToSchema)]
pub struct PageView {
    label: String,
    gpu: String,
    machine: MachineData,
    rows: Vec<RowData>,
    /// Pieces of work that the rows stand for.
    entries: usize,
    /// Rows that were put together because there are too many to draw.
    merged: usize,
    zero_flop_launch_share: f64,
    zero_flop_time_share: f64,
    /// Share of the time of work that nobody knows.
    unknown_share: f64,
    /// Where the work of a recording comes from, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    sources: Option<String>,
}

impl PageView {
    /// A view with at most about `most` rows.
    pub fn new(
        label: &str,
        machine: MachineData,
        rows: &Rows,
        sources: Option<&Sources>,
        most: usize,
    ) -> Self {
        let (limited, merged) = rows.limited(most);
        Self {
            label: label.to_string(),
            gpu: machine.gpu.clone(),
            machine,
            rows: limited.iter().map(|r| RowData::from(r).rounded()).collect(),
            entries: rows.entries,
            merged,
            zero_flop_launch_share: rows.summary.zero_flop.launch_share,
            zero_flop_time_share: rows.summary.zero_flop.time_share,
            unknown_share: rows.summary.unknown_share,
            sources: sources.map(Sources::sentence),
        }
    }
}
