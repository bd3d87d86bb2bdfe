//! Shortages: the limits that had no room, named when they are first read.
//!
//! Floor 2. Invariant: whenever they are read, they are those of the moment of the refusal.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use smallvec::SmallVec;

use super::Shortage;
use crate::account::{Bound, Lineup};
use crate::store::Lack;
use crate::sync::OnceBox;

/// Every limit that had no room, in the order of scopes from widest to narrowest; read as a slice.
///
/// Most refusals are told and counted, and nobody reads which limits they were by. What was found is therefore kept as
/// it was found, and made into names when it is first read.
#[derive(Default)]
pub struct Shortages {
    found: Option<Found>,
    told: OnceBox<Vec<Shortage>>,
}

/// What a store found of a lineup, which never changes.
#[derive(Clone)]
struct Found {
    lineup: Arc<Lineup>,
    lacks: SmallVec<[Lack; 1]>,
}

impl Found {
    fn lacks(&self) -> impl Iterator<Item = (Bound<'_>, &Lack)> {
        self.lacks.iter().map(|lack| (self.lineup.limit(lack.limit), lack))
    }
}

impl Shortages {
    /// The hard shortages among what was lacked; limits (places in the lineup) whose soft amount was passed had room.
    pub(crate) fn of(lineup: Arc<Lineup>, lacks: &[Lack]) -> Shortages {
        let lacks = lacks.iter().filter(|lack| !lack.soft).copied().collect();
        Shortages { found: Some(Found { lineup, lacks }), told: OnceBox::empty() }
    }

    /// What was found, limit by limit; nothing of shortages that were read from elsewhere.
    pub(crate) fn found(&self) -> impl Iterator<Item = (Bound<'_>, &Lack)> {
        self.found.iter().flat_map(Found::lacks)
    }
}

impl Deref for Shortages {
    type Target = [Shortage];

    fn deref(&self) -> &[Shortage] {
        match &self.found {
            Some(found) => self.told.get_or_make(|| found.lacks().map(|(bound, lack)| tell(&bound, lack)).collect()),
            None => self.told.get().map_or(&[], |told| told),
        }
    }
}

/// Whether a limit's scope is wider than the tenant: all narrower ones are within its own.
fn is_shared(bound: &Bound<'_>) -> bool {
    !bound.scope.starts_with("tenant:")
}

fn tell(bound: &Bound<'_>, lack: &Lack) -> Shortage {
    Shortage {
        scope: bound.scope.clone(),
        limit: bound.limit.clone(),
        shared: is_shared(bound),
        meter: bound.meter,
        hard: bound.rule.hard(),
        used: lack.used,
        asked: lack.asked,
        wait: lack.wait,
    }
}

impl From<Vec<Shortage>> for Shortages {
    fn from(told: Vec<Shortage>) -> Shortages {
        let shortages = Shortages::default();
        if !told.is_empty() {
            shortages.told.set(Box::new(told));
        }
        shortages
    }
}

impl Clone for Shortages {
    fn clone(&self) -> Shortages {
        match &self.found {
            Some(found) => Shortages { found: Some(found.clone()), told: OnceBox::empty() },
            None => self.to_vec().into(),
        }
    }
}

impl PartialEq for Shortages {
    fn eq(&self, other: &Shortages) -> bool {
        **self == **other
    }
}

impl fmt::Debug for Shortages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<'a> IntoIterator for &'a Shortages {
    type Item = &'a Shortage;
    type IntoIter = std::slice::Iter<'a, Shortage>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl Serialize for Shortages {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        (**self).serialize(to)
    }
}

impl<'de> Deserialize<'de> for Shortages {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Shortages, D::Error> {
        Vec::deserialize(from).map(Shortages::from)
    }
}

#[cfg(all(test, not(quota_loom)))]
mod tests {
    use super::*;
    use crate::meter::Wait;
    use crate::units::Meter;

    #[test]
    fn names_are_made_when_they_are_read() {
        let shortages = Shortages::of(Arc::new(Lineup::new([])), &[]);
        assert!(shortages.told.get().is_none());
        assert!(shortages.is_empty());
        assert!(shortages.told.get().is_some());
        assert!(shortages.clone().told.get().is_none(), "a copy has what was found");
    }

    #[test]
    fn what_was_read_elsewhere_is_told_as_it_is() {
        let shortage = Shortage {
            scope: "tenant:t".into(),
            limit: "rpm".into(),
            shared: false,
            meter: Meter::Requests,
            hard: 1,
            used: 1,
            asked: 1,
            wait: Wait::Unknown,
        };
        let (none, one) = (Shortages::default(), Shortages::from(vec![shortage.clone()]));
        assert!(none.is_empty() && none == Shortages::from(Vec::new()) && none.found().next().is_none());
        assert_eq!((&*one, &*one.clone()), (&[shortage.clone()][..], &[shortage][..]));
        assert_ne!(none, one);
    }
}
