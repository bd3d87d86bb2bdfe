//! Plots as SVG, written by hand: two kinds, both with a logarithmic scale.

use std::fmt::Write;
use std::path::Path;

use crate::outcome::Outcome;

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 180.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 60.0;

/// Colours that can be told apart by most.
const COLOURS: [&str; 8] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f", "#000000"];

/// A picture that is being drawn.
struct Picture {
    text: String,
    /// Exponents of ten at the bottom and at the top.
    range: (f64, f64),
}

impl Picture {
    fn new(title: &str, unit: &str, range: (f64, f64)) -> Picture {
        let mut picture = Picture { text: String::new(), range };
        let _ = write!(
            picture.text,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" \
             font-size=\"12\">\n<rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n\
             <text x=\"{LEFT}\" y=\"22\" font-size=\"14\">{title}</text>\n"
        );
        let mut exponent = range.0;
        while exponent <= range.1 {
            let y = picture.y(10f64.powf(exponent));
            let value = 10f64.powf(exponent);
            let label = match unit {
                "" if value >= 1e6 => format!("{} M", value / 1e6),
                "" if value >= 1e3 => format!("{} k", value / 1e3),
                unit => format!("{value} {unit}"),
            };
            let _ = writeln!(
                picture.text,
                "<line x1=\"{LEFT}\" x2=\"{}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#ddd\"/><text x=\"{}\" y=\"{:.1}\" \
                 text-anchor=\"end\">{label}</text>",
                WIDTH - RIGHT,
                LEFT - 6.0,
                y + 4.0
            );
            exponent += 1.0;
        }
        picture
    }

    fn y(&self, value: f64) -> f64 {
        let (low, high) = self.range;
        let part = (value.max(1e-9).log10().clamp(low, high) - low) / (high - low);
        HEIGHT - BOTTOM - part * (HEIGHT - TOP - BOTTOM)
    }

    fn legend(&mut self, number: usize, name: &str) {
        let y = TOP + 18.0 * number as f64;
        let _ = writeln!(
            self.text,
            "<rect x=\"{}\" y=\"{:.1}\" width=\"12\" height=\"12\" fill=\"{}\"/><text x=\"{}\" y=\"{:.1}\">{name}</text>",
            WIDTH - RIGHT + 12.0,
            y - 10.0,
            COLOURS[number % COLOURS.len()],
            WIDTH - RIGHT + 30.0,
            y
        );
    }

    fn save(mut self, file: &Path) -> std::io::Result<()> {
        self.text.push_str("</svg>\n");
        std::fs::write(file, self.text)
    }
}

/// The largest drift between two queued tenants over time, a line for each rule.
pub fn difference(file: &Path, runs: &[&Outcome]) -> std::io::Result<()> {
    let load = runs.first().map_or("", |run| run.load.as_str());
    let mut picture = Picture::new(&format!("{load}: difference between queued tenants, work"), "", (3.0, 7.3));
    let until = runs.iter().map(|run| run.until).max().unwrap_or(1) as f64;
    let x = |at: u64| LEFT + at as f64 / until * (WIDTH - LEFT - RIGHT);
    for minute in 0..=(until / 60e9) as u64 {
        let at = x(minute * 60_000_000_000);
        let _ = writeln!(
            picture.text,
            "<text x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\">{minute}</text>",
            HEIGHT - BOTTOM + 18.0
        );
    }
    let _ = writeln!(picture.text, "<text x=\"{LEFT}\" y=\"{}\">minutes</text>", HEIGHT - BOTTOM + 38.0);
    for (number, run) in runs.iter().enumerate() {
        // Every second: more points than the picture is wide show nothing more.
        let points: String = run
            .apart
            .chunks(4)
            .filter_map(|part| part.iter().max_by(|a, b| a.1.total_cmp(&b.1)))
            .map(|(at, apart)| format!("{:.1},{:.1} ", x(*at), picture.y(*apart)))
            .collect();
        let colour = COLOURS[number % COLOURS.len()];
        let points = points.trim_end();
        let _ = writeln!(picture.text, "<polyline points=\"{points}\" fill=\"none\" stroke=\"{colour}\"/>");
        picture.legend(number, &run.name);
    }
    picture.save(file)
}

/// The time to first token of each tenant: a dot at the median and a line up to the 99th percentile, for each rule.
pub fn first_tokens(file: &Path, runs: &[&Outcome]) -> std::io::Result<()> {
    let Some(first) = runs.first() else { return Ok(()) };
    let title = format!("{}: time to first token by tenant, median to 99th percentile", first.load);
    let mut picture = Picture::new(&title, "s", (-2.0, 3.0));
    let step = (WIDTH - LEFT - RIGHT) / first.tenants.len() as f64;
    let mut tenants: Vec<(usize, &String)> = first.tenants.iter().enumerate().collect();
    tenants.sort_by_key(|(_, name)| *name);
    for (column, (tenant, name)) in tenants.into_iter().enumerate() {
        let middle = LEFT + (column as f64 + 0.5) * step;
        let _ = writeln!(
            picture.text,
            "<text x=\"{middle:.1}\" y=\"{}\" text-anchor=\"middle\" font-size=\"10\">{name}</text>",
            HEIGHT - BOTTOM + 18.0
        );
        for (number, run) in runs.iter().enumerate() {
            let (p50, p99) = run.ttft(&[tenant]);
            if p50.is_nan() {
                continue;
            }
            let at = middle + step * 0.7 * ((number as f64 + 0.5) / runs.len() as f64 - 0.5);
            let (low, high, colour) = (picture.y(p50), picture.y(p99), COLOURS[number % COLOURS.len()]);
            let _ = writeln!(
                picture.text,
                "<line x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{low:.1}\" y2=\"{high:.1}\" stroke=\"{colour}\" \
                 stroke-width=\"2\"/><circle cx=\"{at:.1}\" cy=\"{low:.1}\" r=\"3\" fill=\"{colour}\"/>"
            );
        }
    }
    for (number, run) in runs.iter().enumerate() {
        picture.legend(number, &run.name);
    }
    picture.save(file)
}
