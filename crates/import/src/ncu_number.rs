//! Numbers and units as Nsight Compute writes them: with the separators of the user's language and SI prefixes.

/// Which sign stands before the decimals. The tool takes it from the user's language, for a whole file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Decimals {
    /// `1,234.5`
    #[default]
    Point,
    /// `1.234,5`
    Comma,
}

/// What the numbers of a file say about its decimal sign.
#[derive(Debug, Clone, Copy, Default)]
pub struct Evidence {
    point: bool,
    comma: bool,
}

impl Evidence {
    /// Looks at one number; words say nothing.
    pub fn look(&mut self, text: &str) {
        let text = text.trim().trim_start_matches('-');
        if !text.bytes().all(|b| b.is_ascii_digit() || matches!(b, b',' | b'.')) {
            return;
        }
        let (commas, points) = (text.matches(',').count(), text.matches('.').count());
        let last = text.rfind([',', '.']);
        let after = last.map_or(0, |at| text.len() - at - 1);
        let comma_last = text.rfind(',') > text.rfind('.');
        // A sign that comes twice groups thousands; of two, the last one is for decimals; with one, three digits after it can
        // mean both.
        match (commas, points) {
            (2.., 0) => self.point = true,
            (0, 2..) => self.comma = true,
            (1.., 1..) | (1, 0) | (0, 1) if commas * points > 0 || after != 3 => {
                self.comma |= comma_last;
                self.point |= !comma_last;
            }
            _ => {}
        }
    }

    /// The sign of the file, or that it uses both.
    pub fn decimals(self) -> Result<Decimals, &'static str> {
        match (self.point, self.comma) {
            (true, true) => {
                Err("its numbers use both `.` and `,` for decimals; export it again in one language")
            }
            (false, true) => Ok(Decimals::Comma),
            _ => Ok(Decimals::Point),
        }
    }
}

impl Decimals {
    /// A number with its thousands grouped; `None` where the groups are not of three digits.
    pub fn number(self, text: &str) -> Option<f64> {
        let (group, decimal) = if self == Self::Point { (',', '.') } else { ('.', ',') };
        let text: String = text.chars().filter(|c| !c.is_whitespace()).collect();
        let (whole, fraction) = text.split_once(decimal).unwrap_or((&text, ""));
        if fraction.contains(group) {
            return None;
        }
        let mut groups = whole.split(group);
        let first = groups.next()?;
        let mut plain = first.to_owned();
        let grouped = whole.contains(group);
        if grouped && !(1..=3).contains(&first.trim_start_matches('-').len()) {
            return None;
        }
        for group in groups {
            if group.len() != 3 {
                return None;
            }
            plain.push_str(group);
        }
        if !fraction.is_empty() {
            plain.push('.');
            plain.push_str(fraction);
        }
        // `inf` and `nan` are words for it, and no numbers.
        let starts = plain.trim_start_matches('-').starts_with(|c: char| c.is_ascii_digit());
        plain.parse::<f64>().ok().filter(|x| starts && x.is_finite())
    }
}

/// Units that stand for themselves.
const PLAIN: [&str; 27] = [
    "",
    "%",
    "n/a",
    "second",
    "s",
    "byte",
    "B",
    "hz",
    "Hz",
    "cycle",
    "inst",
    "instruction",
    "warp",
    "thread",
    "block",
    "register",
    "sector",
    "request",
    "SM",
    "op",
    "flop",
    "count",
    "item",
    "branch",
    "GPC",
    "sample",
    "wave",
];

/// SI prefixes as the tool writes them.
const PREFIXES: [(&str, f64); 9] = [
    ("n", 1e-9),
    ("u", 1e-6),
    ("m", 1e-3),
    ("k", 1e3),
    ("K", 1e3),
    ("M", 1e6),
    ("G", 1e9),
    ("T", 1e12),
    ("P", 1e15),
];

/// Units written out or without their unit.
const WORDS: [(&str, f64); 7] = [
    ("nanosecond", 1e-9),
    ("microsecond", 1e-6),
    ("millisecond", 1e-3),
    ("K", 1e3),
    ("M", 1e6),
    ("G", 1e9),
    ("T", 1e12),
];

fn simple(unit: &str) -> Option<f64> {
    if PLAIN.contains(&unit) {
        return Some(1.0);
    }
    if let Some((_, factor)) = WORDS.iter().find(|(word, _)| *word == unit) {
        return Some(*factor);
    }
    PREFIXES.iter().find_map(|(prefix, factor)| {
        let base = unit.strip_prefix(prefix)?;
        (!base.is_empty() && base != "%" && base != "n/a" && PLAIN.contains(&base)).then_some(*factor)
    })
}

/// The factor from a unit with SI prefixes to the plain one: `usecond` is 1e-6 second, `Gbyte/second` 1e9 byte/second.
/// `None` for a unit that is not known.
pub fn unit_factor(unit: &str) -> Option<f64> {
    let unit = unit.trim();
    if let Some(factor) = simple(unit) {
        return Some(factor);
    }
    let (over, under) = unit.split_once('/')?;
    Some(simple(over)? / simple(under)?)
}

/// Is this a unit that we know?
pub fn is_unit(unit: &str) -> bool {
    unit_factor(unit).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(values: &[&str]) -> Result<Vec<Option<f64>>, &'static str> {
        let mut evidence = Evidence::default();
        for v in values {
            evidence.look(v);
        }
        let decimals = evidence.decimals()?;
        Ok(values.iter().map(|v| decimals.number(v)).collect())
    }

    #[test]
    fn the_decimal_sign_is_that_of_the_file() {
        assert_eq!(read(&["21,058,944", "1.5"]), Ok(vec![Some(21_058_944.0), Some(1.5)]));
        // One value alone can mean both; the other one tells.
        assert_eq!(read(&["1,234", "2,5"]), Ok(vec![Some(1.234), Some(2.5)]));
        assert_eq!(read(&["1.234", "2,5"]), Ok(vec![Some(1234.0), Some(2.5)]));
        assert_eq!(read(&["1,234", "(128, 1, 1)"]), Ok(vec![Some(1234.0), None]));
        assert!(read(&["1.5", "2,5"]).is_err());
        assert_eq!(read(&["inf", "nan", "12,34,5"]), Ok(vec![None, None, None]));
    }

    #[test]
    fn units_are_known_or_not() {
        let close = |unit: &str, factor: f64| {
            let got = unit_factor(unit).unwrap_or_else(|| panic!("{unit}"));
            assert!((got / factor - 1.0).abs() < 1e-12, "{unit}: {got}");
        };
        close("usecond", 1e-6);
        close("ns", 1e-9);
        close("Gbyte/second", 1e9);
        close("Kbyte/block", 1e3);
        close("cycle/nsecond", 1e9);
        close("register/thread", 1.0);
        for unit in ["furlong", "Mfurlong", "byte/parsec", "k%"] {
            assert_eq!(unit_factor(unit), None, "{unit}");
        }
    }
}
