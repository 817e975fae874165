//! How Inductor spreads a reduction over blocks: a large one with few results runs in two steps (`choices.py`, `reduction_split_factor`).

/// The GPU that is compiled for, where none is known: multiprocessors and threads of each, of an H200.
const SMS: u64 = 132;
const THREADS_PER_SM: u64 = 2048;
/// Values that a thread takes at least and at most.
const LEAST: u64 = 32;
const MOST: u64 = 512;
/// Threads of a block.
const BLOCK: u64 = 256;
/// Values that a thread of an outer reduction takes at a time, and results of its block.
const OUTER_VALUES: u64 = 4;
const OUTER_RESULTS: u64 = 128;

/// The divisor of `n` that is nearest to `wanted`.
fn nearest_divisor(n: u64, wanted: u64) -> u64 {
    let away = |distance: u64| {
        let down = wanted.checked_sub(distance).filter(|d| *d > 0 && n.is_multiple_of(*d));
        down.or_else(|| Some(wanted + distance).filter(|d| n.is_multiple_of(*d)))
    };
    // Beyond this the caller takes no divisor.
    (0..64).find_map(away).unwrap_or(1)
}

/// A size near `wanted` that divides `n`, if one is nearer than `within`.
fn even(n: u64, wanted: u64, within: u64) -> Option<u64> {
    Some(nearest_divisor(n, wanted)).filter(|d| d.abs_diff(wanted) < within)
}

/// Parts that a reduction of `reduced` values for each of `results` is split into.
pub(super) fn splits(reduced: u64, results: u64, outer: bool) -> u64 {
    let all = reduced.saturating_mul(results);
    let (least, most) = (LEAST * SMS * THREADS_PER_SM, MOST * SMS * THREADS_PER_SM);
    let at_a_time = if outer { OUTER_VALUES } else { BLOCK };
    if !outer && (results >= 2 * SMS || reduced <= 8192) {
        return 1;
    }
    let size = if all < least {
        LEAST
    } else if all < most {
        let blocks = if outer {
            (SMS * THREADS_PER_SM / BLOCK).div_ceil(results.div_ceil(OUTER_RESULTS).max(1))
        } else {
            (SMS * THREADS_PER_SM / (2 * BLOCK)).div_ceil(results.max(1))
        };
        let wanted = reduced.div_ceil(at_a_time * blocks);
        even(reduced, wanted, if outer { 20 } else { 30 }).map_or(wanted, |d| d.max(LEAST))
    } else {
        even(reduced, MOST, 50).unwrap_or(MOST)
    };
    reduced.div_ceil(at_a_time * size.max(1)).max(1)
}

/// Rows that one block of a kernel takes which sums along rows and across them at once (`codegen/simd.py`), where Inductor fuses both (`scheduler.py`):
/// not where the tensor fits the cache, and only where there are many rows.
pub(super) fn rows_of_both(rows: u64, cols: u64) -> Option<u64> {
    let fits = rows.saturating_mul(cols) >= 5 << 20 && rows >= 2 * cols && rows >= 4096 && cols <= 16 << 10;
    let wanted = rows / (8 * SMS);
    fits.then(|| (1_u64 << wanted.max(1).ilog2()).clamp(16, 128))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reductions_are_split_as_in_the_listing_of_resnet18() {
        // Batch norm of 64 channels over 128 x 112 x 112: 65536 results of 1568 values, then 512 of 128, then 64 of 8.
        assert_eq!(splits(128 * 112 * 112, 64, true), 1024);
        assert_eq!(splits(1024, 64, true), 8);
        assert_eq!(splits(8, 64, true), 1);
        // 512 channels over 128 x 7 x 7: 25088 results of 128.
        assert_eq!(splits(128 * 49, 512, true), 49);
    }

    #[test]
    fn rows_and_columns_are_summed_at_once_where_the_tensor_is_large() {
        // gpt2: 8 x 1024 rows of 768; llama of the measurements: 4 x 1024 rows of 1024, 4.2 M places.
        assert_eq!(rows_of_both(8192, 768), Some(16));
        assert_eq!(rows_of_both(4096, 1024), None);
    }
}
