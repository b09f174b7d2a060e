//! Tables as the commands print them: a header, columns two spaces apart, the last one ragged.

/// A table in the making.
#[derive(Debug)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Starts a table with its header.
    pub(crate) fn new(header: &[&str]) -> Self {
        Self {
            rows: vec![header.iter().map(|cell| (*cell).to_owned()).collect()],
        }
    }

    /// Adds a row; an empty cell is shown as `-`.
    pub(crate) fn push<const CELLS: usize>(&mut self, cells: [String; CELLS]) {
        let shown = |cell: String| {
            if cell.is_empty() {
                "-".to_owned()
            } else {
                cell
            }
        };
        self.rows.push(cells.map(shown).into());
    }

    /// Returns the table's text.
    pub(crate) fn text(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns)
            .map(|column| {
                self.rows
                    .iter()
                    .filter_map(|row| row.get(column))
                    .map(|c| letters(c))
                    .max()
            })
            .map(|width| width.unwrap_or(0))
            .collect();
        let mut text = String::new();
        for row in &self.rows {
            for (column, cell) in row.iter().enumerate() {
                text.push_str(cell);
                if column + 1 < row.len() {
                    let gap = widths[column] - letters(cell) + 2;
                    text.extend(std::iter::repeat_n(' ', gap));
                }
            }
            text.push('\n');
        }
        text
    }
}

fn letters(cell: &str) -> usize {
    cell.chars().count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_two_spaces_apart_and_empty_cells_are_dashes() {
        let mut table = Table::new(&["A", "LONGER", "C"]);
        table.push(["990µs".to_owned(), String::new(), "x".to_owned()]);

        assert_eq!(table.text(), "A      LONGER  C\n990µs  -       x\n");
    }
}
