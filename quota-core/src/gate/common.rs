//! Common: one copy of what is equal, for all who have the same.
//!
//! Floor 3. Invariant: what is handed out equals what was handed in, and what nobody has any more is let go of.

use std::hash::Hash;
use std::sync::Arc;

use crate::sync::{AtomicU64, Ordering};

/// Values that are kept before those that nobody has are looked for.
const AT_LEAST: usize = 1024;

/// What several have in common.
pub(super) struct Common<T> {
    all: papaya::HashMap<Arc<T>, Arc<T>, ahash::RandomState>,
    /// How many there are when those that nobody has are looked for again. Set by whoever has looked, read by all.
    full: AtomicU64,
}

impl<T> Default for Common<T> {
    fn default() -> Common<T> {
        Common { all: papaya::HashMap::default(), full: AtomicU64::new(AT_LEAST as u64) }
    }
}

impl<T: Eq + Hash> Common<T> {
    /// The copy that is kept of a value equal to this one; this one from now on, if there is none.
    pub(super) fn share(&self, value: T) -> Arc<T> {
        let all = self.all.pin();
        // ORDERING: relaxed; who reads an older figure looks once more or once less.
        if all.len() as u64 >= self.full.load(Ordering::Relaxed) {
            // A key and its value are one allocation: two counts are the map's own.
            all.retain(|_, kept| Arc::strong_count(kept) > 2);
            // ORDERING: relaxed, as above. Twice as many as are had, so that looking costs each newcomer a few steps.
            self.full.store((all.len() * 2).max(AT_LEAST) as u64, Ordering::Relaxed);
        }
        let value = Arc::new(value);
        all.get_or_insert(value.clone(), value).clone()
    }
}

#[cfg(all(test, not(quota_loom)))]
mod tests {
    use super::*;

    #[test]
    fn equal_values_are_one_and_those_that_nobody_has_go() {
        let common = Common::default();
        let kept: Vec<Arc<String>> = (0..600).map(|n| common.share(n.to_string())).collect();
        assert!(Arc::ptr_eq(&kept[7], &common.share("7".to_owned())));
        for n in 600..100_000 {
            common.share(n.to_string());
            assert!(common.all.pin().len() <= 2 * AT_LEAST, "{n}");
        }
        assert!(Arc::ptr_eq(&kept[7], &common.share("7".to_owned())), "what is had stays");
    }
}
