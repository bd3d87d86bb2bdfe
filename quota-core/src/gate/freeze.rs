//! Freezing: the incident switch for a tenant, a key or a model.
//!
//! Floor 3. Invariant: what is frozen is refused from the next request on; open leases go on and settle as usual.

use std::collections::HashMap;
use std::sync::Arc;

use super::{Gate, Shared};
use crate::journal::Event;
use crate::principal::Principal;
use crate::store::Store;
use crate::sync::Ordering;
use crate::time::Now;

/// What can be frozen.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Target {
    /// A tenant with all its keys.
    Tenant(Arc<str>),
    /// A key of a tenant, by its id.
    Key {
        /// The tenant.
        tenant: Arc<str>,
        /// The key's id.
        key: Arc<str>,
    },
    /// A model, for every tenant; also its aliases, and what degrades to it.
    Model(Arc<str>),
}

impl Target {
    /// What it is and its name, for people.
    pub fn label(&self) -> String {
        match self {
            Target::Tenant(name) => format!("tenant `{name}`"),
            Target::Key { tenant, key } => format!("key `{key}` of tenant `{tenant}`"),
            Target::Model(name) => format!("model `{name}`"),
        }
    }
}

/// Who froze what, when and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Freeze {
    /// What is frozen.
    pub target: Target,
    /// Why; told to whoever is refused.
    pub reason: Arc<str>,
    /// Who did it; for the journal only.
    pub author: Arc<str>,
    /// Since when.
    pub since: Now,
}

/// Everything that is frozen; replaced whole.
pub(super) type Frozen = HashMap<Target, Arc<Freeze>>;

impl<S: Store> Gate<S> {
    /// Refuses every request of a tenant, a key or a model from now on. Frozen again, the newer reason counts.
    pub fn freeze(&self, target: Target, reason: impl Into<Arc<str>>, author: impl Into<Arc<str>>) {
        let shared = self.shared();
        let now = shared.clock.now();
        let freeze =
            Arc::new(Freeze { target: target.clone(), reason: reason.into(), author: author.into(), since: now });
        shared.change_frozen(|frozen| {
            frozen.insert(target.clone(), freeze.clone());
        });
        shared
            .journal
            .append(Event::Frozen(freeze.target.label().into(), freeze.author.clone(), freeze.reason.clone()), now);
    }

    /// Lets it go on. `false`, and nothing is journaled, if it was not frozen.
    pub fn thaw(&self, target: &Target, author: impl Into<Arc<str>>) -> bool {
        let shared = self.shared();
        let mut was = false;
        shared.change_frozen(|frozen| was = frozen.remove(target).is_some());
        if was {
            let now = shared.clock.now();
            shared.journal.append(Event::Thawed(target.label().into(), author.into()), now);
        }
        was
    }

    /// What is frozen, in the order of the targets.
    pub fn frozen(&self) -> Vec<Arc<Freeze>> {
        let mut all: Vec<_> =
            self.shared().frozen.with(|frozen| frozen.map(|f| f.values().cloned().collect())).unwrap_or_default();
        all.sort_by(|a: &Arc<Freeze>, b| a.target.cmp(&b.target));
        all
    }
}

impl<S: Store> Shared<S> {
    /// Whether anything is frozen, or was since the gate was built: what most requests need to know of it.
    pub(super) fn is_anything_frozen(&self) -> bool {
        // ORDERING: acquire pairs with the release in `change_frozen`: whoever sees it set sees what is frozen.
        self.ever_frozen.load(Ordering::Acquire) != 0
    }

    fn change_frozen(&self, mut change: impl FnMut(&mut Frozen)) {
        loop {
            let before = self.frozen.load();
            let mut next = before.as_deref().cloned().unwrap_or_default();
            change(&mut next);
            if self.frozen.swap_if(before.as_ref(), Arc::new(next)) {
                // ORDERING: release, see `is_anything_frozen`.
                self.ever_frozen.store(1, Ordering::Release);
                return;
            }
        }
    }

    /// The freeze that keeps a principal from a model.
    pub(super) fn freeze_on(&self, who: &Principal, model: &str) -> Option<Arc<Freeze>> {
        self.frozen.with(|frozen| {
            let frozen = frozen.filter(|frozen| !frozen.is_empty())?;
            let tenant = Target::Tenant(who.tenant().into());
            let key = who.key().map(|key| Target::Key { tenant: who.tenant().into(), key: key.into() });
            let model = Target::Model(model.into());
            [Some(tenant), key, Some(model)].iter().flatten().find_map(|target| frozen.get(target)).cloned()
        })
    }
}
