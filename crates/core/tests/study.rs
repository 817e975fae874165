//! The findings of the study of seven GPUs, from predictions.
#![allow(clippy::print_stdout, clippy::unwrap_used)]

use preflop_core::cost::study::{self, Cell, GPUS, Kind, StudyError, WORKLOADS, Workload};
use preflop_core::cost::{Catalogue, Pricing};
use preflop_core::model::Precision;
use preflop_core::time::TimeModel;

fn cells() -> Vec<Cell> {
    let prices = Catalogue::embedded().unwrap();
    let model = TimeModel::embedded();
    study::run(&model, &WORKLOADS, &GPUS, Precision::Fp32, (&prices, Pricing::Purchase)).unwrap()
}

#[test]
fn every_finding_of_the_study_holds() {
    let findings = study::findings(&cells());
    for f in &findings {
        println!("{}: {} ({})", f.holds, f.statement, f.figures);
    }
    // Five are the poster's; the sixth asks one of them of GNMT, and says for itself whether it holds.
    assert_eq!(findings.len(), 6);
    for f in findings.into_iter().filter(|f| f.statement != study::BEYOND_STATEMENT) {
        assert!(f.holds, "{}: {}", f.statement, f.figures);
    }
}

#[test]
fn every_cell_is_complete_and_fits() {
    let cells = cells();
    assert_eq!(cells.len(), WORKLOADS.len() * GPUS.len());
    for c in &cells {
        let shares: f64 = c.bound_shares.iter().sum();
        assert!((shares - 1.0).abs() < 1e-9, "{} {}", c.model, c.gpu);
        let stalls: f64 = c.stalls.values().iter().sum();
        assert!((stalls - 1.0).abs() < 1e-3, "{} {}: {stalls}", c.model, c.gpu);
        assert!(c.fits && c.samples_per_s > 0.0, "{} {}: {} MiB", c.model, c.gpu, c.memory_mib);
        assert!(c.usd_per_hour.is_some() && c.price_date.is_some(), "{}", c.gpu);
        assert!((0.0..=1.0).contains(&c.gpu_utilisation) && (0.0..=1.0).contains(&c.cpu_utilisation));
    }
}

#[test]
fn a_missing_model_is_named() {
    let odd = Workload { model: "no-such-model", kind: Kind::Recurrent, ..WORKLOADS[0] };
    let error = study::check(&[WORKLOADS[0], odd]).unwrap_err();
    assert!(matches!(error, StudyError::Missing { .. }));
    assert!(error.to_string().contains("`no-such-model`"));
}
