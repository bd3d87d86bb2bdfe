//! The testkit: what proves a store, and what stands in for one.
//!
//! Floor 5. Invariant: nothing in the crate imports it; it asks only what any user of the crate could ask.
//!
//! | what | for |
//! |---|---|
//! | [`conformance`] | every promise of [`Store`], as named checks; [`store_conformance!`](crate::store_conformance) makes tests of them |
//! | [`Yielding`] | a store that has to be awaited |
//! | [`Failing`] | a store that does not answer when told so |
//! | [`Model`] | the gate and its store over again, slow and obvious, to compare histories with |
//! | [`history`] | steps of every verb on a gate and on the model, with answers that are lost, compared after each |
//! | [`simulation`] | whole gates in virtual time under load and faults, beside books of their own |
//!
//! A store is tested by saying how to make one and how to wait for it:
//!
//! ```
//! use quota_core::store::Memory;
//! use quota_core::testkit::conformance;
//!
//! for (name, check) in conformance::suite::<Memory>().into_iter().take(1) {
//!     println!("{name}");
//!     check();
//! }
//! ```

pub mod conformance;
pub mod failing;
pub mod history;
pub mod model;
pub mod simulation;
pub mod yielding;

pub use self::failing::{Failing, Fault};
pub use self::model::Model;
pub use self::yielding::{Yielding, block_on};

use crate::store::Store;
use crate::store::memory::{Bounds, Memory};

/// A store that the conformance suite can make and wait for.
pub trait TestStore: Store {
    /// An empty store with these bounds.
    fn fresh(bounds: Bounds) -> Self;

    /// Waits for an answer.
    fn wait<'a, T: Send + 'a>(answer: Self::Answer<'a, T>) -> T;
}

impl TestStore for Memory {
    fn fresh(bounds: Bounds) -> Memory {
        Memory::new(bounds)
    }

    fn wait<'a, T: Send + 'a>(answer: T) -> T {
        answer
    }
}
