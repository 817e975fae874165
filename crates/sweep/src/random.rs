//! Random numbers by position: row i has the same ones whoever computes it, and no row needs those before it.

/// SplitMix64's finaliser (Steele, Lea and Flood 2014): every bit of the input moves half of the output's.
fn mixed(mut z: u64) -> u64 {
    z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// 64 random bits of a place.
pub(crate) fn bits(seed: u64, axis: u64, row: u64) -> u64 {
    mixed(mixed(mixed(seed) ^ axis) ^ row)
}

/// A number from 0 to below 1: 53 bits.
pub(crate) fn unit(bits: u64) -> f64 {
    (bits >> 11) as f64 / (1_u64 << 53) as f64
}

/// Where `row` goes in a random order of `count` rows.
///
/// A Feistel network of four rounds permutes the numbers of 2k bits, the fewest that hold `count`; a number beyond it goes
/// round again until it lands inside (cycle walking; Black and Rogaway 2002). No row of the order is stored.
pub(crate) fn permuted(seed: u64, axis: u64, row: u64, count: u64) -> u64 {
    if count < 2 {
        return 0;
    }
    let half = (u64::BITS - (count - 1).leading_zeros()).div_ceil(2);
    let mask = (1_u64 << half) - 1;
    let mut x = row;
    loop {
        let (mut left, mut right) = (x >> half, x & mask);
        for round in 0..4 {
            (left, right) = (right, left ^ (bits(seed, axis.wrapping_mul(4) + round + 1, right) & mask));
        }
        x = left << half | right;
        if x < count {
            return x;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_has_every_row_once() {
        for count in [1, 2, 3, 7, 64, 1000, 4097] {
            let mut seen: Vec<u64> = (0..count).map(|row| permuted(5, 2, row, count)).collect();
            assert!(count < 64 || seen.windows(2).any(|w| w[1] < w[0]), "{count} rows are in order");
            seen.sort_unstable();
            assert_eq!(seen, (0..count).collect::<Vec<_>>());
        }
    }

    #[test]
    fn numbers_are_even_and_differ_by_seed_axis_and_row() {
        let mean = (0..10_000).map(|row| unit(bits(1, 0, row))).sum::<f64>() / 1e4;
        // Standard deviation of the mean: 0.289 / 100 = 0.0029; four of them.
        assert!((mean - 0.5).abs() < 0.012, "{mean}");
        let all = [bits(1, 2, 3), bits(2, 2, 3), bits(1, 3, 3), bits(1, 2, 4), bits(1, 3, 2)];
        assert!(all.iter().enumerate().all(|(i, a)| all[i + 1..].iter().all(|b| a != b)));
    }
}
