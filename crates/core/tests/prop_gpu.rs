//! Laws of GPU files: any text gives a GPU whose figures are usable, or one line.

mod common;

use preflop_core::gpu::{catalog, parse};
use preflop_core::{Dtype, Gpu};
use proptest::prelude::*;

fn check(result: Result<Gpu, preflop_core::gpu::GpuError>) -> Result<(), TestCaseError> {
    match result {
        Ok(gpu) => {
            for d in Dtype::MATH {
                for rate in [gpu.peak(d), gpu.sustained_peak(d), gpu.plain_peak(d)] {
                    prop_assert!(rate.0.is_finite() && rate.0 > 0.0, "{} {d}", gpu.name);
                }
            }
            for x in
                [gpu.dram.0, gpu.dram_sustained.0, gpu.l2.0, gpu.l2_size.0, gpu.memory.0, gpu.kernel_floor.0]
            {
                prop_assert!(x.is_finite() && x > 0.0, "{}", gpu.name);
            }
            prop_assert!(gpu.sm_count > 0);
        }
        Err(error) => {
            let text = error.to_string();
            prop_assert!(!text.is_empty() && text.starts_with("x.toml"), "{text}");
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// Any text.
    #[test]
    fn any_text_is_safe(text in ".*") {
        check(parse(&text, "x.toml"))?;
    }

    /// A catalogue file with a piece replaced by other bytes.
    #[test]
    fn damaged_files_are_safe(
        file in 0..catalog::FILES.len(), start in 0.0..1.0, length in 0_usize..40, patch in "[ -~\n]{0,20}",
    ) {
        let text = catalog::FILES[file].1;
        let start = (start * text.len() as f64) as usize;
        let mut bytes = text.as_bytes().to_vec();
        let end = (start + length).min(bytes.len());
        bytes.splice(start..end, patch.bytes());
        check(parse(&String::from_utf8_lossy(&bytes), "x.toml"))?;
    }

    /// A catalogue file without one of its lines, or with one value replaced by another number.
    #[test]
    fn changed_figures_are_safe(
        file in 0..catalog::FILES.len(),
        line in 0_usize..60,
        value in prop_oneof![any::<f64>().prop_map(|x| x.to_string()), any::<i64>().prop_map(|x| x.to_string()), Just(String::new())],
    ) {
        let mut lines: Vec<String> = catalog::FILES[file].1.lines().map(str::to_string).collect();
        let line = line % lines.len();
        lines[line] = match lines[line].split_once(" = ") {
            Some((key, _)) if !value.is_empty() => format!("{key} = {value}"),
            _ => String::new(),
        };
        check(parse(&lines.join("\n"), "x.toml"))?;
    }
}

#[test]
fn every_catalogue_file_is_usable() {
    for (_, text) in catalog::FILES {
        check(parse(text, "x.toml")).unwrap();
        assert!(parse(text, "x.toml").is_ok());
    }
}
