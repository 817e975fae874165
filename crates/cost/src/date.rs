//! Calendar dates: a price without one is not a price.

use super::CostError;
use serde::{Serialize, Serializer};

/// A day of the Gregorian calendar, written as 2026-08-22.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Date {
    year: u16,
    month: u8,
    day: u8,
}

impl Date {
    /// Reads `2026-08-22`.
    pub fn parse(text: &str) -> Result<Self, CostError> {
        let odd = || CostError::Date { text: text.chars().take(32).collect() };
        let bytes = text.as_bytes();
        if bytes.len() != 10 || bytes[4] != b'-' || bytes[7] != b'-' {
            return Err(odd());
        }
        let part = |range: std::ops::Range<usize>| -> Option<u16> {
            let part = text.get(range)?;
            part.bytes().all(|b| b.is_ascii_digit()).then(|| part.parse().ok())?
        };
        let (Some(year), Some(month), Some(day)) = (part(0..4), part(5..7), part(8..10)) else {
            return Err(odd());
        };
        let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        let days = match month {
            1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
            4 | 6 | 9 | 11 => 30,
            2 => 28 + u16::from(leap),
            _ => return Err(odd()),
        };
        if year < 1970 || day == 0 || day > days {
            return Err(odd());
        }
        Ok(Self { year, month: month as u8, day: day as u8 })
    }

    /// The date so many days after 1970-01-01.
    ///
    /// Days are counted in eras of 400 years that start on 1 March, so that a leap day comes last.
    pub fn from_unix_days(days: u32) -> Self {
        let shifted = u64::from(days) + 719_468;
        let (era, of_era) = (shifted / 146_097, shifted % 146_097);
        let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let shifted_month = (5 * of_year + 2) / 153;
        let day = of_year - (153 * shifted_month + 2) / 5 + 1;
        let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
        let year = year_of_era + era * 400 + u64::from(month <= 2);
        Self { year: year as u16, month: month as u8, day: day as u8 }
    }

    /// The same day one year earlier (28 February for a leap day).
    #[must_use]
    pub fn a_year_before(self) -> Self {
        let day = if self.month == 2 && self.day == 29 { 28 } else { self.day };
        Self { year: self.year - 1, month: self.month, day }
    }
}

impl std::fmt::Display for Date {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:04}-{:02}-{:02}", self.year, self.month, self.day)
    }
}

impl Serialize for Date {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_days_that_exist() {
        assert_eq!(Date::parse("2024-02-29").unwrap().to_string(), "2024-02-29");
        for odd in [
            "2023-02-29",
            "2026-13-01",
            "2026-00-10",
            "2026-04-31",
            "26-04-01",
            "",
            "2026/04/01",
            "2026-+4-01",
        ] {
            assert!(Date::parse(odd).is_err(), "{odd}");
        }
    }

    #[test]
    fn days_since_1970_become_dates() {
        // 2026-08-22: 56 years of 365 days, 14 leap days (1972 to 2024), 233 days before 22 August
        assert_eq!(Date::from_unix_days(56 * 365 + 14 + 233).to_string(), "2026-08-22");
        assert_eq!(Date::from_unix_days(0).to_string(), "1970-01-01");
        assert_eq!(Date::from_unix_days(59).to_string(), "1970-03-01");
    }

    #[test]
    fn dates_are_ordered() {
        let d = |t| Date::parse(t).unwrap();
        assert!(d("2025-12-31") < d("2026-01-01"));
        assert_eq!(d("2024-02-29").a_year_before(), d("2023-02-28"));
    }
}
