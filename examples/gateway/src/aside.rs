//! Work on large bodies, aside from what else its worker has.
//!
//! Invariant: what takes longer than others may wait for does not hold them up.

use tokio::task::block_in_place;

/// The largest body that is worked on between other requests, in bytes: it takes a tenth of a millisecond.
const LARGE: usize = 64 << 10;

/// Works on a body of so many bytes; if it is large, the worker's other tasks go to another thread meanwhile.
pub(crate) fn aside<T>(bytes: usize, work: impl FnOnce() -> T) -> T {
    if bytes > LARGE { block_in_place(work) } else { work() }
}
