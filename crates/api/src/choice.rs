//! Names in questions that stand for one of a few things.

use crate::error::ApiError;

/// The thing of a name, or all the names there are.
pub fn one_of<T: Copy>(field: &str, name: &str, known: &[(&'static str, T)]) -> Result<T, ApiError> {
    known.iter().find(|(known, _)| *known == name).map(|(_, thing)| *thing).ok_or_else(|| {
        let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
        let name: String = name.chars().take(40).collect();
        ApiError::invalid(format!("`{field}` is `{name}`; it must be one of {}", names.join(", ")))
    })
}

/// The same for a field that may be left out.
pub fn maybe_one_of<T: Copy>(
    field: &str,
    name: Option<&String>,
    known: &[(&'static str, T)],
) -> Result<Option<T>, ApiError> {
    name.map(|name| one_of(field, name, known)).transpose()
}

/// A count within reason.
pub fn within(field: &str, value: u64, least: u64, most: u64) -> Result<u64, ApiError> {
    if (least..=most).contains(&value) {
        return Ok(value);
    }
    Err(ApiError::invalid(format!("`{field}` is {value}; it must be from {least} to {most}")))
}
