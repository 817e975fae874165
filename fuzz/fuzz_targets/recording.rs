//! Any bytes as a recording: a profile that is explained with finite figures, a host's report, or an error of one line.
#![no_main]

use libfuzzer_sys::fuzz_target;
use preflop_core::profile::{Analysis, explain::explain, window::Choice};
use preflop_core::time::TimeModel;
use preflop_import::{Recorded, recorded_bytes};
use std::sync::LazyLock;

static MODEL: LazyLock<TimeModel> = LazyLock::new(TimeModel::embedded);

fuzz_target!(|bytes: &[u8]| {
    let one_line = |error: String| assert!(!error.contains('\n'), "{error}");
    let profile = match recorded_bytes(bytes, "fuzz") {
        Ok(Recorded::Run(profile)) => profile,
        Ok(Recorded::Host(host)) => {
            let shares = host.hottest.iter().map(|f| f.seconds).chain(host.utilization);
            assert!(host.cpus_busy.is_finite() && shares.into_iter().all(f64::is_finite), "{host:?}");
            return;
        }
        Err(error) => return one_line(error.to_string()),
    };
    match Analysis::new(&profile, &Choice::default()) {
        Ok(analysis) => {
            assert!(analysis.measured().0.is_finite() && analysis.gpu_busy().0.is_finite());
            let said = explain(&analysis, &MODEL, None);
            let times = [said.iteration_ms, said.host_ms, said.gpu_wall_ms, said.idle.total_ms(), said.timeline.idle_ms];
            assert!(times.iter().all(|t| t.is_finite()), "{times:?}");
            assert!(said.operators.iter().all(|o| o.time_ms.is_finite() && o.share.is_finite()));
        }
        Err(error) => one_line(error.to_string()),
    }
});
