//! Amounts as people write them: `310ms`, `2d`, `100usd`.

use super::CostError;
use preflop_units::Seconds;

fn split(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let end = text
        .char_indices()
        .find(|(_, c)| !(c.is_ascii_digit() || matches!(c, '.' | '+' | '-')))
        .map_or(text.len(), |(i, _)| i);
    let value: f64 = text[..end].parse().ok()?;
    value.is_finite().then(|| (value, text[end..].trim()))
}

/// Reads a time of more than zero: `310ms`, `0.31s`, `90min`, `36h`, `2d`.
pub fn time(text: &str) -> Result<Seconds, CostError> {
    let odd = || CostError::Quantity {
        text: text.chars().take(32).collect(),
        what: "a time above zero, such as 310ms, 90min, 36h or 2d",
    };
    let (value, unit) = split(text).ok_or_else(odd)?;
    let size = match unit.to_ascii_lowercase().as_str() {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" | "sec" => 1.0,
        "min" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        "w" => 604_800.0,
        _ => return Err(odd()),
    };
    if value > 0.0 { Ok(Seconds(value * size)) } else { Err(odd()) }
}

/// Reads a whole number above zero as people write it: `64`, `9.7M`, `10B`; `k`, `M`, `B` (or `G`) and `T` are powers of a thousand.
pub fn count(text: &str) -> Result<u64, CostError> {
    let odd = || CostError::Quantity {
        text: text.chars().take(32).collect(),
        what: "a whole number above zero, such as 64, 9.7M or 10B",
    };
    let (digits, size) = match text.trim().char_indices().last() {
        Some((i, unit)) if unit.is_ascii_alphabetic() => (
            &text.trim()[..i],
            match unit {
                'k' | 'K' => 3,
                'm' | 'M' => 6,
                'b' | 'B' | 'g' | 'G' => 9,
                't' | 'T' => 12,
                _ => return Err(odd()),
            },
        ),
        _ => (text.trim(), 0_usize),
    };
    // In whole numbers, so that 9.7M is not 9699999.
    let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
    let plain = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
    if !plain(whole) || digits.contains('.') && !plain(part) {
        return Err(odd());
    }
    let part = part.trim_end_matches('0');
    if part.len() > size {
        return Err(odd());
    }
    let number = format!("{whole}{part}{}", "0".repeat(size - part.len()));
    number.parse().ok().filter(|n| *n > 0).ok_or_else(odd)
}

/// Reads an amount of more than zero US dollars: `100usd`, `$100`, `100`.
pub fn usd(text: &str) -> Result<f64, CostError> {
    let short: String = text.chars().take(32).collect();
    let odd =
        CostError::Quantity { text: short.clone(), what: "an amount above zero, such as 2.10 or 100usd" };
    let bare = text.trim();
    let bare = bare.strip_prefix('$').unwrap_or(bare);
    let Some((value, unit)) = split(bare) else {
        // `€100`: the sign stands first.
        let sign = bare.chars().next().filter(|c| !c.is_alphanumeric() && !matches!(c, '.' | '-' | '+'));
        return Err(match sign {
            Some(sign) => CostError::Currency { text: short, currency: sign.to_string() },
            None => odd,
        });
    };
    match unit.to_ascii_lowercase().as_str() {
        "" | "usd" | "$" => {}
        _ => return Err(CostError::Currency { text: short, currency: unit.chars().take(16).collect() }),
    }
    if value > 0.0 { Ok(value) } else { Err(odd) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        for (text, seconds) in [("310ms", 0.31), ("0.5 s", 0.5), ("2d", 172_800.0), ("90min", 5400.0)] {
            assert!((time(text).unwrap().0 / seconds - 1.0).abs() < 1e-12, "{text}");
        }
        for odd in ["310", "ms", "", "-2d", "0h", "1e400d", "2 fortnights", "nan s"] {
            assert!(time(odd).is_err(), "{odd}");
        }
    }

    #[test]
    fn counts_are_whole() {
        for (text, n) in [
            ("64", 64),
            ("9.7M", 9_700_000),
            ("10B", 10_000_000_000),
            ("1.5k", 1500),
            ("1.50", 0),
            ("2T", 2_000_000_000_000),
        ] {
            assert_eq!(count(text).unwrap_or(0), n, "{text}");
        }
        for odd in [
            "",
            "0",
            "0M",
            "-1",
            "1.5",
            "1e6",
            "M",
            "1.0005k",
            ".5k",
            "5.k",
            "9q",
            "99999999999999999999T",
            "1 000",
        ] {
            assert!(count(odd).is_err(), "{odd}");
        }
        assert_eq!(count("1.0").ok(), Some(1));
    }

    #[test]
    fn dollars_only() {
        for text in ["100", "100usd", "$100", "100 USD"] {
            assert_eq!(usd(text), Ok(100.0), "{text}");
        }
        for text in ["100eur", "€100", "100 yen"] {
            assert!(matches!(usd(text), Err(CostError::Currency { .. })), "{text}");
        }
        for text in ["", "usd", "-5usd", "0", "abc"] {
            assert!(matches!(usd(text), Err(CostError::Quantity { .. })), "{text}");
        }
        assert!(usd("7eur").unwrap_err().to_string().contains("`eur`"));
    }
}
