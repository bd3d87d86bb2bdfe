//! The rows of the design's table, in files by what they are about.

mod abuse;
mod bound;
mod classes;
mod cost;
mod exact;
mod fair;
mod hardware;
mod pool;
mod quick;
mod storm;

use crate::lab::Lab;
use crate::table::Line;

/// A row: its number, what it is called and what it does.
pub type Row = (u32, &'static str, fn(&Lab) -> Vec<Line>);

/// All rows. Row 16 and 15 look at the runs of the others and come after them.
pub const ROWS: [Row; 20] = [
    (1, "three hogs", fair::three_hogs),
    (2, "three hogs, longer, estimates off by a factor of three", fair::growth),
    (3, "hog", quick::hog),
    (4, "decode bomb", fair::decode_bomb),
    (5, "decode bomb without progress", quick::decode_bomb_untold),
    (6, "short storm, long contexts, spikes", quick::storms),
    (7, "retry storm", storm::retry_storm),
    (8, "production traces", fair::production),
    (9, "three hundred tenants", quick::zipf),
    (10, "weights", classes::weights),
    (11, "classes, steady", classes::steady),
    (12, "classes, overload", classes::overload),
    (13, "throughput", pool::throughput),
    (14, "adaptive valve", pool::adaptive),
    (17, "abuse", abuse::abuse),
    (18, "decision cost", cost::cost),
    (19, "settled exactly once", exact::exact),
    (20, "agreement with hardware", hardware::hardware),
    (15, "work conservation", bound::conservation),
    (16, "the bound", bound::bound),
];
