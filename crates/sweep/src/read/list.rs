//! Rows that are listed one by one.

use super::{Reader, rows_of};
use crate::axis::{Axis, Value, Values};
use crate::error::StudyError;
use toml::de::DeTable;

impl Reader<'_> {
    #[allow(clippy::type_complexity)]
    /// The rows of a list: each key of `[[row]]` is a column, and what stands outside holds for all rows.
    pub(super) fn listed(
        &self,
        table: &DeTable<'_>,
        axes: &mut Vec<Axis>,
    ) -> Result<(u64, Vec<Vec<Option<Value>>>), StudyError> {
        for axis in &*axes {
            if axis.values.count() != Some(1) {
                let problem = format!(
                    "`{}` has several values outside `[[row]]`; a list takes one for all rows",
                    axis.name
                );
                return Err(StudyError::Line { file: self.file.to_string(), line: axis.line, problem });
            }
        }
        let rows = rows_of(table);
        if rows.is_empty() {
            return Err(self.whole_file("a list needs rows: `[[row]]` with the keys of each"));
        }
        let common = axes.len();
        let mut cells: Vec<Vec<(usize, Value)>> = Vec::with_capacity(rows.len());
        for row in &rows {
            let mut keys = Vec::new();
            self.flatten("", row, &mut keys)?;
            keys.sort_by_key(|key| key.at);
            let mut own = Vec::new();
            for key in &keys {
                let axis = self.axis(key)?;
                let Values::List(values) = &axis.values else {
                    return Err(self.at(key.at, format!("`{}` of a row takes one value", key.name)));
                };
                let [value] = values.as_slice() else {
                    return Err(self.at(key.at, format!("`{}` of a row takes one value", key.name)));
                };
                let place = match axes.iter().position(|a| a.name == axis.name) {
                    Some(place) if place < common => {
                        let problem = format!("`{}` stands outside `[[row]]` too; one of the two", key.name);
                        return Err(self.at(key.at, problem));
                    }
                    Some(place) => place,
                    None => {
                        axes.push(axis.clone());
                        axes.len() - 1
                    }
                };
                if axes[place].kind() != axis.kind() {
                    let number = |a: &Axis| matches!(a.kind().to_string().as_str(), "Int64" | "Float64");
                    if !(number(&axes[place]) && number(&axis)) {
                        return Err(
                            self.at(key.at, format!("`{}` is of another kind in an earlier row", key.name))
                        );
                    }
                }
                if let Values::List(all) = &mut axes[place].values
                    && !all.contains(value)
                {
                    all.push(value.clone());
                }
                own.push((place, value.clone()));
            }
            cells.push(own);
        }
        let listed = (0..axes.len())
            .map(|place| {
                let common = match &axes[place].values {
                    Values::List(all) if place < common => all.first().cloned(),
                    _ => None,
                };
                let own =
                    |row: &Vec<(usize, Value)>| row.iter().find(|(p, _)| *p == place).map(|(_, v)| v.clone());
                cells.iter().map(|row| own(row).or_else(|| common.clone())).collect()
            })
            .collect();
        Ok((rows.len() as u64, listed))
    }
}
