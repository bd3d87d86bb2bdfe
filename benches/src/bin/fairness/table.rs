//! The table: each figure beside its target and the best that was published or measured before.

/// Whether a figure meets its target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It does.
    Ok,
    /// It does not.
    Miss,
    /// There is no target: an anchor's own figure, for comparison.
    Anchor,
}

/// One line.
#[derive(Debug, Clone)]
pub struct Line {
    /// The row of the design's table.
    pub row: u32,
    /// What was run and measured.
    pub what: String,
    /// The figure.
    pub figure: String,
    /// The target, or for an anchor what it was before.
    pub target: String,
    /// Whether it is met.
    pub verdict: Verdict,
}

/// A figure that has a target.
pub fn goal(row: u32, what: impl Into<String>, figure: impl Into<String>, target: &str, met: bool) -> Line {
    let verdict = if met { Verdict::Ok } else { Verdict::Miss };
    Line { row, what: what.into(), figure: figure.into(), target: target.into(), verdict }
}

/// A figure of a baseline beside what the design's table says of it.
pub fn anchor(row: u32, what: impl Into<String>, figure: impl Into<String>, published: &str) -> Line {
    let verdict = Verdict::Anchor;
    Line { row, what: what.into(), figure: figure.into(), target: published.into(), verdict }
}

/// Prints a row's lines.
pub fn print(lines: &[Line]) {
    for line in lines {
        let word = match line.verdict {
            Verdict::Ok => "ok",
            Verdict::Miss => "MISS",
            Verdict::Anchor => "",
        };
        let (row, sign) = match line.verdict {
            Verdict::Anchor => (String::new(), "was"),
            _ => (line.row.to_string(), "target"),
        };
        println!("{row:>3}  {:<62} {:>22}  {sign:>6} {:<28} {word}", line.what, line.figure, line.target);
    }
}

/// Prints what is missed.
pub fn sum(lines: &[Line]) {
    let goals = lines.iter().filter(|line| line.verdict != Verdict::Anchor).count();
    let missed: Vec<&Line> = lines.iter().filter(|line| line.verdict == Verdict::Miss).collect();
    println!("\n{} of {goals} targets met", goals - missed.len());
    for line in missed {
        println!("MISS row {}: {}: {}, target {}", line.row, line.what, line.figure, line.target);
    }
}

/// Work in thousands.
pub fn thousands(work: f64) -> String {
    format!("{:.0} k", work / 1000.0)
}

/// Two times in seconds.
pub fn pair((first, second): (f64, f64)) -> String {
    format!("{first:.2} / {second:.2} s")
}
