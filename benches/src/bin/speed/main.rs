//! Measures admit + settle against the targets of its rows, each in a file of its own.
//!
//! ```text
//! speed            every row
//! speed s1 s4      these rows only
//! ```

mod measure;
mod s1;
mod s12;
mod s2;
mod s3;
mod s4;

use benches::table;

const ROWS: [(&str, fn()); 5] = [("s1", s1::run), ("s2", s2::run), ("s3", s3::run), ("s4", s4::run), ("s12", s12::run)];

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    table::head();
    for (name, run) in ROWS {
        if wanted.is_empty() || wanted.iter().any(|row| row == name) {
            run();
        }
    }
}
