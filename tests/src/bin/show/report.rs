//! What the points print: rows of a table, each with its bar and what was measured.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// One line of the table.
pub(crate) struct Row {
    point: &'static str,
    what: String,
    bar: &'static str,
    measured: String,
    holds: bool,
}

/// All lines so far.
#[derive(Default)]
pub(crate) struct Report {
    rows: Vec<Row>,
    point: &'static str,
}

impl Report {
    /// Runs one point; a panic in it becomes a line of the table, and the next point goes on.
    pub(crate) fn point(&mut self, name: &'static str, run: impl FnOnce(&mut Self)) {
        println!("\n== {name}");
        self.point = name;
        let began = Instant::now();
        let ended = catch_unwind(AssertUnwindSafe(|| run(self)));
        if let Err(panic) = ended {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
            self.row("stopped", "-", text.unwrap_or("a panic").to_owned(), false);
        }
        println!("   ({:.0} s)", began.elapsed().as_secs_f64());
    }

    /// Adds and prints a line.
    pub(crate) fn row(
        &mut self,
        what: impl Into<String>,
        bar: &'static str,
        measured: String,
        holds: bool,
    ) {
        let row = Row {
            point: self.point,
            what: what.into(),
            bar,
            measured,
            holds,
        };
        println!("{}", row.text());
        self.rows.push(row);
    }

    /// Prints text that belongs to the point, such as a table of the product.
    pub(crate) fn say(&self, text: &str) {
        for line in text.lines() {
            println!("   {line}");
        }
    }

    /// Prints the whole table; whether every bar holds.
    pub(crate) fn finish(&self) -> bool {
        println!("\n| point | what | bar | measured | holds |\n|---|---|---|---|---|");
        for row in &self.rows {
            let measured = row.measured.lines().next().unwrap_or("");
            println!(
                "| {} | {} | {} | {measured} | {} |",
                row.point,
                row.what,
                row.bar,
                if row.holds { "yes" } else { "NO" }
            );
        }
        self.rows.iter().all(|row| row.holds)
    }
}

impl Row {
    fn text(&self) -> String {
        let mark = if self.holds { "ok " } else { "NO " };
        format!(
            "{mark} {:<44} {}   [bar: {}]",
            self.what, self.measured, self.bar
        )
    }
}

/// Returns least, middle and most of some times in milliseconds, and how many there are.
pub(crate) fn spread(times: &[Duration]) -> String {
    let mut sorted: Vec<f64> = times.iter().map(|time| time.as_secs_f64() * 1e3).collect();
    sorted.sort_by(f64::total_cmp);
    match (sorted.first(), sorted.last()) {
        (Some(least), Some(most)) => {
            let middle = sorted[sorted.len() / 2];
            format!(
                "{least:.0} / {middle:.0} / {most:.0} ms (least/middle/most of {})",
                sorted.len()
            )
        }
        _ => "nothing".to_owned(),
    }
}

/// Returns the names and how often each occurs.
pub(crate) fn tally(names: &[String]) -> String {
    let mut counts = std::collections::BTreeMap::new();
    for name in names {
        *counts.entry(name).or_insert(0) += 1;
    }
    let parts: Vec<String> = counts
        .iter()
        .map(|(name, count)| format!("{name}: {count}"))
        .collect();
    parts.join(", ")
}
