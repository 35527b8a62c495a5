//! What was measured, as JSON and as a table.

use serde_json::{Value, json};

use crate::{conditions, stats::Samples};

/// What a figure is held against.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Goal {
    /// No more than this.
    AtMost(f64),
    /// No less than this.
    AtLeast(f64),
}

impl std::fmt::Display for Goal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::AtMost(goal) => write!(f, "≤ {goal}"),
            Self::AtLeast(goal) => write!(f, "≥ {goal}"),
        }
    }
}

/// One line of the table.
#[derive(Clone, Debug)]
pub struct Row {
    figure: u8,
    case: String,
    measured: f64,
    unit: &'static str,
    runs: usize,
    limit: Option<(String, f64)>,
    ratio: Option<f64>,
    goal: Option<Goal>,
    note: Option<String>,
    /// Load of the machine when the row was made, which tells how much it is to be believed.
    load: f64,
}

impl Row {
    /// The median of samples.
    pub fn median(figure: u8, case: &str, samples: &Samples, unit: &'static str) -> Self {
        Self::value(figure, case, samples.median(), unit).runs(samples.len())
    }

    /// A value of one run.
    pub fn value(figure: u8, case: &str, measured: f64, unit: &'static str) -> Self {
        Self {
            figure,
            case: case.to_owned(),
            measured,
            unit,
            runs: 1,
            limit: None,
            ratio: None,
            goal: None,
            note: None,
            load: conditions::load(),
        }
    }

    /// How many runs it came from.
    pub fn runs(mut self, runs: usize) -> Self {
        self.runs = runs;
        self
    }

    /// What it is a ratio to, measured in the same run and the same unit.
    pub fn against(mut self, what: &str, limit: f64) -> Self {
        self.ratio = Some(self.measured / limit);
        self.limit = Some((what.to_owned(), limit));
        self
    }

    /// Says the ratio itself, where it is not measured by limit.
    pub fn ratio(mut self, ratio: f64) -> Self {
        self.ratio = Some(ratio);
        self
    }

    /// The goal, of the ratio where there is one.
    pub fn goal(mut self, goal: Goal) -> Self {
        self.goal = Some(goal);
        self
    }

    /// What else was seen.
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.note = Some(note.into());
        self
    }

    /// Whether the goal was reached; `None` when there is none.
    pub fn is_within(&self) -> Option<bool> {
        let value = self.ratio.unwrap_or(self.measured);
        self.goal.map(|goal| match goal {
            Goal::AtMost(most) => value <= most,
            Goal::AtLeast(least) => value >= least,
        })
    }

    /// For programs.
    pub fn json(&self) -> Value {
        json!({
            "figure": self.figure,
            "case": self.case,
            "measured": rounded(self.measured),
            "unit": self.unit,
            "runs": self.runs,
            "limit": self.limit.as_ref().map(|(what, value)| json!({"what": what, "measured": rounded(*value)})),
            "ratio": self.ratio.map(rounded),
            "goal": self.goal.map(|goal| goal.to_string()),
            "within": self.is_within(),
            "note": self.note,
            "load": self.load,
        })
    }

    fn cells(&self) -> [String; 7] {
        let limit = self.limit.as_ref().map(|(what, value)| format!("{what}: {} {}", short(*value), self.unit));
        let within = self.is_within().map(|is_within| if is_within { "yes" } else { "NO" });
        [
            self.figure.to_string(),
            self.note.as_ref().map_or_else(|| self.case.clone(), |note| format!("{} ({note})", self.case)),
            format!("{} {}", short(self.measured), self.unit),
            limit.unwrap_or_default(),
            self.ratio.map(|ratio| format!("{ratio:.2}")).unwrap_or_default(),
            self.goal.map(|goal| goal.to_string()).unwrap_or_default(),
            within.unwrap_or_default().to_owned(),
        ]
    }
}

/// The rows as a Markdown table, with columns that stand under each other.
pub fn table(rows: &[Row]) -> String {
    let head = ["#", "case", "measured", "limit", "ratio", "goal", "within"].map(str::to_owned);
    let lines: Vec<_> = std::iter::once(head).chain(rows.iter().map(Row::cells)).collect();
    let width = |column: usize| lines.iter().map(|cells| cells[column].chars().count()).max().unwrap_or_default();
    let widths: [usize; 7] = std::array::from_fn(width);
    let mut text = String::new();
    for (at, cells) in lines.iter().enumerate() {
        for (cell, width) in cells.iter().zip(widths) {
            text += &format!("| {cell:width$} ");
        }
        text += "|\n";
        if at == 0 {
            text += &widths.map(|width| format!("|{}", "-".repeat(width + 2))).concat();
            text += "|\n";
        }
    }
    text
}

fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

/// As many digits as mean something.
fn short(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 || value.fract() == 0.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}
