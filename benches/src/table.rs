//! The table: one line a figure, with what it is compared with and what it is to be.

/// What a figure is to be.
pub enum Target {
    /// At most this.
    AtMost(f64),
    /// At least this.
    AtLeast(f64),
    /// Shown beside others.
    None,
}

/// Prints the heading.
pub fn head() {
    println!("{:<5}{:<62}{:>14}  {:<12}", "row", "what", "figure", "target");
}

/// Prints a figure.
pub fn line(row: &str, what: &str, figure: f64, unit: &str, target: Target) {
    let (wanted, met) = match target {
        Target::AtMost(most) => (format!("<= {most}"), Some(figure <= most)),
        Target::AtLeast(least) => (format!(">= {least}"), Some(figure >= least)),
        Target::None => (String::new(), None),
    };
    let met = met.map_or("", |met| if met { "met" } else { "MISSED" });
    println!("{row:<5}{what:<62}{:>14}  {wanted:<12}{met}", format!("{figure:.2} {unit}"));
}
