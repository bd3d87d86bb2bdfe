//! What is measured of a run, each measure a file.

mod bound;
mod difference;
mod jain;
mod latency;
mod published;

pub use bound::Charges;
pub use difference::{GRID, Pairs};
pub use jain::{Windows, entitlements, jain};
pub use latency::percentile;
pub use published::{Served, published_difference};
