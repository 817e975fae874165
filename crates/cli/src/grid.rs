//! Tables that fit: where the terminal is narrow, columns are left out by rank, the least needed first.

use crate::output::{Align, Output};
use comfy_table::{Cell, Color, Table};

/// A table by columns.
#[derive(Debug, Default)]
pub struct Grid<'a> {
    columns: Vec<Column<'a>>,
}

#[derive(Debug)]
struct Column<'a> {
    title: &'a str,
    align: Align,
    /// Columns of the highest rank go first; those of rank 0 stay.
    rank: u8,
    cells: Vec<String>,
    tint: Option<fn(&str) -> Option<Color>>,
}

/// Blanks between columns.
const GAP: usize = 2;

impl Column<'_> {
    fn width(&self) -> usize {
        let cells = self.cells.iter().map(|c| c.chars().count());
        cells.chain([self.title.chars().count()]).max().unwrap_or(0)
    }
}

impl<'a> Grid<'a> {
    /// Adds a column; 0 is the rank of one that is never left out.
    pub fn add(&mut self, title: &'a str, align: Align, rank: u8, cells: impl IntoIterator<Item = String>) {
        self.columns.push(Column { title, align, rank, cells: cells.into_iter().collect(), tint: None });
    }

    /// Colours the cells of the column added last by what they say.
    pub fn tint(&mut self, tint: fn(&str) -> Option<Color>) {
        if let Some(column) = self.columns.last_mut() {
            column.tint = Some(tint);
        }
    }

    /// The table as wide as the terminal allows, and the titles of what was left out, in the table's order.
    pub fn table(mut self, output: &Output) -> (Table, Vec<&'a str>) {
        let order: Vec<&str> = self.columns.iter().map(|c| c.title).collect();
        let mut left_out = Vec::new();
        let width =
            |columns: &[Column]| columns.iter().map(|c| c.width() + GAP).sum::<usize>().saturating_sub(GAP);
        while width(&self.columns) > output.width {
            // Of equal ranks the last goes first.
            let Some(most) = self.columns.iter().map(|c| c.rank).max().filter(|r| *r > 0) else { break };
            let Some(place) = self.columns.iter().rposition(|c| c.rank == most) else { break };
            left_out.push(self.columns.remove(place).title);
        }
        let header: Vec<(&str, Align)> = self.columns.iter().map(|c| (c.title, c.align)).collect();
        let mut table = output.table(&header);
        let rows = self.columns.first().map_or(0, |c| c.cells.len());
        for row in 0..rows {
            table.add_row(self.columns.iter().map(|column| {
                let text = column.cells.get(row).map_or("", String::as_str);
                match column.tint.and_then(|tint| tint(text)) {
                    Some(color) => output.tinted(text, color),
                    None => Cell::new(text),
                }
            }));
        }
        left_out.sort_by_key(|title| order.iter().position(|t| t == title));
        (table, left_out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(width: usize) -> (String, Vec<&'static str>) {
        let mut columns = Grid::default();
        columns.add("name", Align::Keep, 0, ["abcd".to_string()]);
        columns.add("second", Align::Right, 2, ["1".to_string()]);
        columns.add("third", Align::Right, 1, ["2".to_string()]);
        columns.add("fourth", Align::Keep, 2, ["3".to_string()]);
        let (table, left_out) = columns.table(&Output { json: false, color: false, width });
        (table.to_string(), left_out)
    }

    #[test]
    fn the_least_needed_columns_go_first_and_are_named() {
        // 4 + 2 + 6 + 2 + 5 + 2 + 6 = 27 characters.
        assert_eq!(table(27).1, Vec::<&str>::new());
        assert_eq!(table(26).1, ["fourth"]);
        assert_eq!(table(18).1, ["second", "fourth"]);
        let (narrow, left_out) = table(5);
        assert_eq!(left_out, ["second", "third", "fourth"]);
        assert!(narrow.contains("abcd") && !narrow.contains("third"));
    }
}
