//! Text for people: lines broken between words, and tables that fit a width.

/// Text broken at blanks so that no line is longer than `width` (unless one word is); lines after the first start with `indent`.
pub fn wrapped(text: &str, width: usize, indent: &str) -> String {
    flowed(text, width, indent, 0)
}

/// Text behind `lead`, broken so that it stays below itself: `  time        33.6 ms ..`.
pub fn hanging(lead: &str, text: &str, width: usize) -> String {
    let column = lead.chars().count();
    format!("{lead}{}", flowed(text, width, &" ".repeat(column), column))
}

fn flowed(text: &str, width: usize, indent: &str, start: usize) -> String {
    let mut out = String::new();
    let (mut column, mut first) = (start, true);
    for word in text.split(' ') {
        let length = shown_length(word);
        if !first && column + 1 + length > width {
            out.push('\n');
            out.push_str(indent);
            column = indent.len();
        } else if !first {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += length;
        first = false;
    }
    out
}

/// Characters that take room: colours do not.
fn shown_length(word: &str) -> usize {
    let mut parts = word.split('\u{1b}');
    let plain = parts.next().map_or(0, |part| part.chars().count());
    plain + parts.map(|part| part.split_once('m').map_or(0, |(_, rest)| rest.chars().count())).sum::<usize>()
}

/// How a column stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Align {
    /// Text, broken between words where there is no room.
    Left,
    /// Text that is never broken.
    Keep,
    /// Numbers, never broken.
    Right,
}

#[derive(Debug)]
struct Column<'a> {
    title: &'a str,
    align: Align,
    rank: u8,
    cells: Vec<String>,
}

/// A table without borders. Where it is too wide, columns are left out by rank, the least needed first.
#[derive(Debug, Default)]
pub struct Table<'a> {
    columns: Vec<Column<'a>>,
}

/// Blanks between columns.
const GAP: usize = 2;
/// The longest word that a column of text keeps whole for certain.
const LONGEST_WORD: usize = 30;
/// A column of text is no narrower than this, unless its text is.
const LEAST_TEXT: usize = 12;
/// A word that is too long for its column is broken behind one of these.
const JOINTS: [char; 6] = ['.', '_', '-', '/', ',', ':'];

impl Column<'_> {
    fn all(&self) -> impl Iterator<Item = &str> {
        self.cells.iter().map(String::as_str).chain([self.title])
    }

    fn natural(&self) -> usize {
        self.all().map(|c| c.chars().count()).max().unwrap_or(0)
    }

    fn least(&self) -> usize {
        if self.align != Align::Left {
            return self.natural();
        }
        let words = self.all().flat_map(|c| c.split(' ')).map(|w| w.chars().count());
        words.max().unwrap_or(0).min(LONGEST_WORD).max(LEAST_TEXT.min(self.natural()))
    }
}

impl<'a> Table<'a> {
    /// Columns with their ranks: those of the highest are left out first, those of rank 0 stay.
    pub fn new(columns: &[(&'a str, Align, u8)]) -> Self {
        let mut table = Self::default();
        for (title, align, rank) in columns {
            table.add(title, *align, *rank, []);
        }
        table
    }

    /// One more row; a cell that lacks is empty.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let mut cells = cells.into_iter();
        for column in &mut self.columns {
            column.cells.push(cells.next().unwrap_or_default());
        }
    }

    /// One more column.
    pub fn add(&mut self, title: &'a str, align: Align, rank: u8, cells: impl IntoIterator<Item = String>) {
        self.columns.push(Column { title, align, rank, cells: cells.into_iter().collect() });
    }

    /// Columns so far.
    pub fn columns(&self) -> usize {
        self.columns.len()
    }

    /// The lines of the table at a width, and the titles that were left out, in the table's order. `paint` is given the number of a column, the
    /// whole cell (nothing in the header) and what of it stands in the line.
    pub fn lines(
        &self,
        width: usize,
        paint: &dyn Fn(usize, Option<&str>, &str) -> String,
    ) -> (Vec<String>, Vec<&'a str>) {
        let kept = self.kept(width);
        let left_out = (0..self.columns.len()).filter(|c| !kept.contains(c)).map(|c| self.columns[c].title);
        let left_out = left_out.collect();
        let widths = self.widths(&kept, width);
        let rows = self.columns.first().map_or(0, |c| c.cells.len());
        let mut out = Vec::new();
        for row in std::iter::once(None).chain((0..rows).map(Some)) {
            let cell = |c: usize| row.map_or(self.columns[c].title, |r| self.columns[c].cells[r].as_str());
            let broken: Vec<Vec<String>> =
                kept.iter().zip(&widths).map(|(c, w)| self.broken(*c, cell(*c), *w)).collect();
            for i in 0..broken.iter().map(Vec::len).max().unwrap_or(0) {
                let mut line = String::new();
                for ((c, width), parts) in kept.iter().zip(&widths).zip(&broken) {
                    let part = parts.get(i).map_or("", String::as_str);
                    let pad = " ".repeat(width.saturating_sub(part.chars().count()));
                    let whole = row.map(|_| cell(*c));
                    let part = if part.is_empty() { String::new() } else { paint(*c, whole, part) };
                    let right = self.columns[*c].align == Align::Right;
                    line += &if right { pad + &part } else { part + &pad };
                    line += &" ".repeat(GAP);
                }
                out.push(line.trim_end().to_string());
            }
        }
        (out, left_out)
    }

    /// Columns that have room.
    fn kept(&self, width: usize) -> Vec<usize> {
        let mut kept: Vec<usize> = (0..self.columns.len()).collect();
        loop {
            let all: usize = kept.iter().map(|c| self.columns[*c].least() + GAP).sum();
            let most = kept.iter().map(|c| self.columns[*c].rank).max().filter(|rank| *rank > 0);
            // Of equal ranks the last goes first.
            let place = most.and_then(|rank| kept.iter().rposition(|c| self.columns[*c].rank == rank));
            match place {
                Some(place) if all > width + GAP => _ = kept.remove(place),
                _ => return kept,
            }
        }
    }

    /// What each has: columns of text share what the others leave, none more than it needs.
    fn widths(&self, kept: &[usize], width: usize) -> Vec<usize> {
        let mut widths: Vec<usize> = kept.iter().map(|c| self.columns[*c].least()).collect();
        let used: usize = widths.iter().sum::<usize>() + GAP * kept.len().saturating_sub(1);
        let mut room = width.saturating_sub(used);
        while room > 0 {
            let lacks = |i: &usize| self.columns[kept[*i]].natural() - widths[*i];
            let Some(most) = (0..kept.len()).max_by_key(lacks).filter(|i| lacks(i) > 0) else { break };
            widths[most] += 1;
            room -= 1;
        }
        widths
    }

    /// The lines of a cell.
    fn broken(&self, column: usize, cell: &str, width: usize) -> Vec<String> {
        if self.columns[column].align != Align::Left || cell.chars().count() <= width {
            return vec![cell.to_string()];
        }
        let words: Vec<String> = cell.split(' ').map(|word| jointed(word, width)).collect();
        wrapped(&words.join(" "), width, "").lines().map(str::to_string).collect()
    }
}

/// A word in pieces of at most `width`, with blanks between them.
fn jointed(word: &str, width: usize) -> String {
    let mut rest: Vec<char> = word.chars().collect();
    let mut pieces = Vec::new();
    while rest.len() > width.max(1) {
        let joint = rest[..width.max(1)].iter().rposition(|c| JOINTS.contains(c));
        let at = joint.map_or(width.max(1), |i| i + 1);
        pieces.push(rest.drain(..at).collect::<String>());
    }
    pieces.push(rest.into_iter().collect());
    pieces.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(_: usize, _: Option<&str>, text: &str) -> String {
        text.to_string()
    }

    #[test]
    fn long_lines_are_broken_at_blanks() {
        assert_eq!(wrapped("aa bb cc", 5, "  "), "aa bb\n  cc");
        assert_eq!(wrapped("aaaaaaaa b", 5, ""), "aaaaaaaa\nb");
        assert_eq!(hanging("  x ", "aa bb cc", 9), "  x aa bb\n    cc");
        assert_eq!(hanging("  x ", "\u{1b}[1maa\u{1b}[0m bb", 9), "  x \u{1b}[1maa\u{1b}[0m bb");
    }

    #[test]
    fn the_least_needed_columns_go_first_and_are_named() {
        let mut table = Table::new(&[("name", Align::Keep, 0), ("second", Align::Right, 2)]);
        table.add("third", Align::Right, 1, []);
        table.add("fourth", Align::Keep, 2, []);
        table.row(["abcd", "1", "2", "3"].map(str::to_string));
        // 4 + 2 + 6 + 2 + 5 + 2 + 6 = 27 characters.
        assert_eq!(
            table.lines(27, &plain),
            (vec!["name  second  third  fourth".into(), "abcd       1      2  3".into()], vec![])
        );
        assert_eq!(table.lines(26, &plain).1, ["fourth"]);
        assert_eq!(table.lines(18, &plain).1, ["second", "fourth"]);
        assert_eq!(
            table.lines(5, &plain),
            (vec!["name".into(), "abcd".into()], vec!["second", "third", "fourth"])
        );
    }

    #[test]
    fn text_is_broken_between_words_or_at_their_joints() {
        let mut table = Table::new(&[("name", Align::Left, 0), ("n", Align::Right, 0)]);
        table.row(["one two three four".to_string(), "1".to_string()]);
        assert_eq!(table.lines(16, &plain).0, ["name           n", "one two three  1", "four"]);
        assert_eq!(jointed("aten::convolution_backward", 20), "aten::convolution_ backward");
        assert_eq!(jointed("abcdef", 4), "abcd ef");
    }

    #[test]
    fn columns_are_painted_without_their_blanks() {
        let mut table = Table::new(&[("a", Align::Right, 0), ("b", Align::Keep, 0)]);
        table.row(["10".to_string(), "x".to_string()]);
        let paint = |c: usize, cell: Option<&str>, text: &str| match cell {
            Some(cell) if c == 0 => format!("<{cell}:{text}>"),
            _ => text.to_string(),
        };
        assert_eq!(table.lines(80, &paint).0, [" a  b", "<10:10>  x"]);
    }
}
