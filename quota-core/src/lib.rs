//! Front page (written last).
pub mod account;
pub mod estimate;
pub mod gate;
pub mod journal;
pub mod keeper;
pub mod lease;
pub mod meter;
pub mod policy;
pub mod principal;
pub mod reason;
pub mod refusal;
pub mod request;
pub mod respond;
pub mod store;
pub(crate) mod sync;
pub mod time;
pub mod units;
pub mod usage;

pub use crate::gate::{Decision, Gate, Lease};
