//! The scheduler: who goes next when there is not room for all.
//!
//! Floor 2. Invariant: one thread at a time decides, whichever comes first, and none waits for it.

pub mod drr;
mod pace;
pub mod work;
