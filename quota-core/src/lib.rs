//! Front page (written last).
pub mod estimate;
pub mod gate;
pub mod policy;
pub mod principal;
pub mod reason;
pub mod request;
pub mod respond;
pub(crate) mod sync;
pub mod time;
pub mod units;
pub mod usage;
