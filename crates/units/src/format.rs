//! Numbers for people: three significant digits, SI prefixes, binary units of memory. The one place where tables, reports and pages take them
//! from (`web/src/format.ts` says the same in a browser).

use crate::math::Elementary as _;
use crate::{Bytes, Flops, Seconds};

/// Three significant digits: `0.0123`, `1.23`, `12.3`, `123`, `1230`.
pub fn three_digits(x: f64) -> String {
    if x == 0.0 {
        // Not `-0`, which a difference may give.
        return "0".to_string();
    }
    if !x.is_finite() {
        return format!("{x}");
    }
    let exponent = x.abs().decimal_log().floor();
    if !(-5.0..15.0).contains(&exponent) {
        return format!("{x:.2e}");
    }
    let unit = 10_f64.power(exponent - 2.0);
    let rounded = (x / unit).round() * unit;
    // 9.996 rounds up to 10.0 and so loses a decimal.
    let exponent = rounded.abs().decimal_log().floor().max(exponent);
    format!("{rounded:.*}", (2.0 - exponent).max(0.0) as usize)
}

/// A value with the SI prefix that leaves one to three digits before the point.
pub fn si(x: f64, unit: &str) -> String {
    scaled(x, unit, three_digits)
}

/// The same for ticks of a chart: no zeros behind the last digit that says something.
pub fn short_si(x: f64, unit: &str) -> String {
    scaled(x, unit, |x| {
        let text = three_digits(x);
        if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_string() } else { text }
    })
}

fn scaled(x: f64, unit: &str, digits: impl Fn(f64) -> String) -> String {
    const PREFIXES: [(&str, f64); 10] = [
        ("E", 1e18),
        ("P", 1e15),
        ("T", 1e12),
        ("G", 1e9),
        ("M", 1e6),
        ("k", 1e3),
        ("", 1.0),
        ("m", 1e-3),
        ("u", 1e-6),
        ("n", 1e-9),
    ];
    // Half a digit early, so that 999.6 k reads as 1.00 M.
    let fit = PREFIXES.iter().find(|(_, size)| x.abs() >= size * 0.9995);
    let (prefix, size) = fit.copied().unwrap_or(("p", 1e-12));
    if x == 0.0 {
        return format!("0 {unit}");
    }
    format!("{} {prefix}{unit}", digits(x / size))
}

/// A time: `1.23 ms`.
pub fn time(t: Seconds) -> String {
    si(t.0, "s")
}

/// A time of work that runs on its own: hours and days rather than kiloseconds.
pub fn duration(t: Seconds) -> String {
    const LONGER: [(f64, &str); 3] = [(86_400.0, "days"), (3600.0, "hours"), (60.0, "minutes")];
    match LONGER.iter().find(|(size, _)| t.0 >= 2.0 * size) {
        Some((size, name)) => format!("{} {name}", three_digits(t.0 / size)),
        None => time(t),
    }
}

/// Traffic, in decimal units as bandwidth is.
pub fn traffic(b: Bytes) -> String {
    si(b.0, "B")
}

/// Work.
pub fn flops(f: Flops) -> String {
    si(f.0, "FLOP")
}

/// Memory, in binary units as capacity is.
pub fn memory(b: Bytes) -> String {
    let gib = b.mib() / 1024.0;
    if gib >= 0.9995 {
        format!("{} GiB", three_digits(gib))
    } else {
        format!("{} MiB", three_digits(b.mib()))
    }
}

/// A whole number with thin groups: `25 557 032`.
pub fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(' ');
        }
        out.push(c);
    }
    out
}

/// A time in milliseconds, with the unit that reads best.
pub fn milliseconds(ms: f64) -> String {
    time(Seconds(ms / 1e3))
}

/// A count: whole where it is, three digits where it is a mean.
pub fn count(x: f64) -> String {
    if x.fract() == 0.0 { format!("{x:.0}") } else { three_digits(x) }
}

/// A share from 0 to 1 with one decimal: `12.3 %`.
pub fn percent(share: f64) -> String {
    // Not `-0.0 %`, which a difference may give.
    let shown = format!("{:.1} %", 100.0 * share);
    if shown == "-0.0 %" { "0.0 %".to_string() } else { shown }
}

/// `1 design`, `2 designs`.
pub fn counted(n: usize, one: &str, many: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_times_are_told_in_minutes_hours_and_days() {
        let said = [30.0, 150.0, 36_800.0, 400_000.0].map(|s| duration(Seconds(s)));
        assert_eq!(said, ["30.0 s", "2.50 minutes", "10.2 hours", "4.63 days"]);
    }

    #[test]
    fn three_digits_are_three_digits() {
        for (x, text) in [
            (0.012_345, "0.0123"),
            (1.234, "1.23"),
            (9.996, "10.0"),
            (12.34, "12.3"),
            (99.96, "100"),
            (123.4, "123"),
            (1234.0, "1230"),
            (0.0, "0"),
            (-0.0, "0"),
            (-2.5, "-2.50"),
            (1e-9, "1.00e-9"),
        ] {
            assert_eq!(three_digits(x), text);
        }
    }

    #[test]
    fn units_follow_the_size() {
        assert_eq!(time(Seconds(0.012_34)), "12.3 ms");
        assert_eq!(time(Seconds(1e-6)), "1.00 us");
        assert_eq!(time(Seconds(0.999_9)), "1.00 s");
        assert_eq!(flops(Flops(8.2e12)), "8.20 TFLOP");
        assert_eq!(memory(Bytes::from_mib(512.0)), "512 MiB");
        assert_eq!(memory(Bytes::from_mib(2048.0)), "2.00 GiB");
        assert_eq!(grouped(25_557_032), "25 557 032");
        assert_eq!((si(1e-9, "s").as_str(), si(2e-12, "s").as_str()), ("1.00 ns", "2.00 ps"));
        for (x, unit, text) in [
            (1e-6, "s", "1 us"),
            (1.5e9, "B", "1.5 GB"),
            (4.8e12, "B/s", "4.8 TB/s"),
            (100.0, "FLOP/B", "100 FLOP/B"),
            (1e-9, "s", "1 ns"),
        ] {
            assert_eq!(short_si(x, unit), text);
        }
    }

    #[test]
    fn shares_and_counts_have_no_odd_ends() {
        assert_eq!(percent(-0.000_1), "0.0 %");
        assert_eq!(percent(0.1234), "12.3 %");
        assert_eq!((count(61.0).as_str(), count(1.5).as_str()), ("61", "1.50"));
        assert_eq!(
            (counted(1, "design", "designs"), counted(2, "design", "designs")),
            ("1 design".into(), "2 designs".into())
        );
        assert_eq!(milliseconds(0.5), "500 us");
    }
}
