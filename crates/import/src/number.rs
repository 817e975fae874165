//! Numbers as recorders write them: microseconds with decimals, integers beyond 64 bits, numbers in quotes.

/// Takes quotes off.
fn bare(raw: &str) -> &str {
    raw.trim().trim_matches('"').trim()
}

/// Microseconds as text, to nanoseconds, without the rounding of a float: `1712195495505543.204` has more
/// digits than an `f64` holds.
pub fn nanoseconds(raw: &str) -> Option<i64> {
    let text = bare(raw);
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let plain = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
    if whole.is_empty() || !plain(whole) || !plain(fraction) {
        let value: f64 = text.parse().ok()?;
        let ns = value * 1e3;
        return (ns.is_finite() && ns.abs() < 9e18).then(|| ns.round() as i64);
    }
    let mut ns: i64 = whole.parse::<i64>().ok()?.checked_mul(1000)?;
    let mut scale = 100;
    for b in fraction.bytes().take(3) {
        ns = ns.checked_add(i64::from(b - b'0') * scale)?;
        scale /= 10;
    }
    if fraction.as_bytes().get(3).is_some_and(|b| *b >= b'5') {
        ns = ns.checked_add(1)?;
    }
    Some(if negative { -ns } else { ns })
}

/// An integer as text. Those beyond `i64` (addresses, hashes) wrap: they are only compared.
pub fn integer(raw: &str) -> Option<i64> {
    let text = bare(raw);
    if let Ok(value) = text.parse::<i64>() {
        return Some(value);
    }
    if let Ok(value) = text.parse::<u128>() {
        return Some((value as u64).cast_signed());
    }
    let value: f64 = text.parse().ok()?;
    (value.is_finite() && value.abs() < 9e18).then_some(value as i64)
}

/// A count as text; anything else is 0.
pub fn count(raw: Option<&str>) -> u64 {
    raw.and_then(integer).map_or(0, |n| n.max(0) as u64)
}

/// The product of `[x, y, z]`.
pub fn product(raw: Option<&str>) -> u64 {
    let Some(raw) = raw else { return 0 };
    let inner = raw.trim().trim_matches('"').trim_matches(['[', ']', '(', ')']);
    let mut product = 1_u64;
    let mut any = false;
    for part in inner.split(',') {
        match part.trim().parse::<u64>() {
            Ok(n) => {
                product = product.saturating_mul(n);
                any = true;
            }
            Err(_) => return 0,
        }
    }
    if any { product } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        assert_eq!(nanoseconds("1712195495505543.204"), Some(1_712_195_495_505_543_204));
        assert_eq!(nanoseconds("4.48"), Some(4480));
        assert_eq!(nanoseconds("7"), Some(7000));
        assert_eq!(nanoseconds("0.0005"), Some(1));
        assert_eq!(nanoseconds("-2.5"), Some(-2500));
        assert_eq!(nanoseconds("1.5e3"), Some(1_500_000));
        assert_eq!(nanoseconds("\"12.5\""), Some(12_500));
        assert_eq!(nanoseconds("99999999999999999999"), None);
        assert_eq!(nanoseconds("null"), None);
        assert_eq!(nanoseconds("NaN"), None);
    }

    #[test]
    fn integers() {
        assert_eq!(integer("42"), Some(42));
        assert_eq!(integer("18446744073709551615"), Some(-1));
        assert_eq!(integer("\"7\""), Some(7));
        assert_eq!(integer("[1]"), None);
        assert_eq!(product(Some("[4, 106, 1]")), 424);
        assert_eq!(product(Some("[]")), 0);
    }
}
