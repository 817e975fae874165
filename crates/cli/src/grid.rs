//! Tables on a terminal: as wide as it is, with colours where they are wanted.

use crate::output::{Align, Color, Output};
use preflop_core::units::text::Table;
use std::io::{self, Write};

/// The colour of a cell by what it says.
type Tint = fn(&str) -> Option<Color>;

/// A table by columns or by rows.
#[derive(Debug, Default)]
pub struct Grid<'a> {
    table: Table<'a>,
    tints: Vec<(usize, Tint)>,
}

impl<'a> Grid<'a> {
    /// Columns with the rank by which they are left out of a narrow terminal: the highest first, 0 never.
    pub fn new(columns: &[(&'a str, Align, u8)]) -> Self {
        Self { table: Table::new(columns), tints: Vec::new() }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.table.row(cells);
    }

    /// Adds a column; 0 is the rank of one that is never left out.
    pub fn add(&mut self, title: &'a str, align: Align, rank: u8, cells: impl IntoIterator<Item = String>) {
        self.table.add(title, align, rank, cells);
    }

    /// Colours the cells of the column added last by what they say.
    pub fn tint(&mut self, tint: Tint) {
        self.tints.push((self.table.columns() - 1, tint));
    }

    /// Prints it, and gives the titles of what was left out, in the table's order.
    pub fn write(&self, out: &mut impl Write, output: &Output) -> io::Result<Vec<&'a str>> {
        let paint = |column: usize, cell: Option<&str>, text: &str| {
            let Some(cell) = cell else { return output.bold(text) };
            let tint = self.tints.iter().find(|(c, _)| *c == column);
            match tint.and_then(|(_, tint)| tint(cell)) {
                Some(color) => output.tinted(color, text),
                None => text.to_string(),
            }
        };
        let (lines, left_out) = self.table.lines(output.width, &paint);
        for line in lines {
            writeln!(out, "{line}")?;
        }
        Ok(left_out)
    }
}
