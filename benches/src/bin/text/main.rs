//! What a request's text costs on its way: estimating it, counting it, reading its answer's usage, and the whole way
//! through the gateway; each figure beside its target.
//!
//! ```text
//! text                          all rows
//! text S6 S8                    these rows only
//! text errors <folder>...       the heuristic's error by script, on the text files in these folders
//! text count S6 <name> <bytes>  what callgrind counts for S6
//! text count S8 <name> <whether usage is taken out> <times>  and for S8
//! ```

mod count;
mod errors;
mod exact;
mod gateway;
mod heuristic;
mod meter;
mod row;
mod texts;

type Row = (&'static str, fn());

const ROWS: [Row; 4] = [("S6", heuristic::run), ("S7", exact::run), ("S8", meter::run), ("S10", gateway::run)];

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["count", "S6", name, bytes] => heuristic::count(name, bytes.parse().expect("a number of bytes")),
        ["count", "S8", name, strip, times] => {
            meter::count(name, strip == "true", times.parse().expect("a number of times"))
        }
        ["errors", ref folders @ ..] => errors::run(folders),
        _ => {
            row::head();
            ROWS.iter().filter(|(name, _)| args.is_empty() || args.contains(name)).for_each(|(_, run)| run());
        }
    }
}
