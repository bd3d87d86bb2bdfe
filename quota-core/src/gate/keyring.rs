//! The keyring: the keys and secrets that came after the policy, and what was done to the policy's own.
//!
//! Floor 3. Invariant: a lookup takes no lock and remembers nothing, so what is changed counts from the next one on; and
//! a revoked key never stands again.

use std::sync::Arc;

use parking_lot::Mutex;
use smallvec::SmallVec;

use super::wiring::{NoRoster, PairRef};
use crate::key::Digest;
use crate::policy::MAX_KEY_DEPTH;
use crate::policy::plan::{KeyPlan, Plan, TenantPlan};
use crate::reason::Reason;
use crate::time::Now;

/// The most keys that are held beside the policy's: those made at run time, and those of the policy that were rotated
/// or revoked.
pub const MAX_KEYS: usize = 1 << 16;

/// The most secrets of one key that work at the same time.
pub(super) const MAX_SECRETS: usize = 4;

type Names = (Arc<str>, Arc<str>);

/// What is known of keys beside the policy.
#[derive(Default)]
pub(super) struct Keyring {
    /// By tenant and id.
    keys: papaya::HashMap<Names, Arc<Held>, ahash::RandomState>,
    secrets: papaya::HashMap<Digest, Arc<Holder>, ahash::RandomState>,
    /// Held through each act, so that one looks before it changes. Lookups don't take it.
    pub(super) acts: Mutex<()>,
}

/// A key that was made at run time, or what was done to one of the policy's.
#[derive(Clone, Default)]
pub(super) struct Held {
    /// Its record; `None` for a key of the policy. The policy's record goes before it.
    pub(super) plan: Option<Arc<KeyPlan>>,
    pub(super) revoked: bool,
    /// Its secrets, the oldest first; ended ones are kept while there are few, so that they are told from unknown ones.
    pub(super) secrets: SmallVec<[Digest; 1]>,
}

/// Whose secret it is.
pub(super) struct Holder {
    pub(super) tenant: Arc<str>,
    pub(super) id: Arc<str>,
    /// The engine's time from which it no longer works.
    pub(super) until: u64,
}

/// How a walk from a key to its topmost parent went.
enum Walk {
    /// Up to a key without parent.
    Whole,
    /// There is no such key.
    NoKey,
    /// A parent is gone, or there are more of them than a key may have.
    Broken,
}

impl Keyring {
    /// Tenant and id of the key that a secret belongs to.
    ///
    /// # Errors
    /// No key has it, or it has been replaced by another.
    pub(super) fn holder(&self, plan: &Plan, digest: &Digest, now: Now) -> Result<Names, Reason> {
        match self.secrets.pin().get(digest) {
            Some(holder) if now.mono < holder.until => Ok((holder.tenant.clone(), holder.id.clone())),
            Some(_) => Err(Reason::KeyRevoked),
            None => {
                let key = plan.keys.get(digest).ok_or(Reason::KeyUnknown)?;
                Ok((key.tenant.clone(), key.id.clone()))
            }
        }
    }

    /// Shows a key's record and then its parents', with whether each is revoked.
    fn walk(&self, tenant: &TenantPlan, id: &str, mut show: impl FnMut(&Arc<KeyPlan>, bool)) -> Walk {
        let keys = self.keys.pin();
        let mut id = id;
        for depth in 0..MAX_KEY_DEPTH {
            let held = keys.get(&PairRef(&tenant.name, id));
            let Some(plan) = tenant.keys.get(id).or_else(|| held?.plan.as_ref()) else {
                return if depth == 0 { Walk::NoKey } else { Walk::Broken };
            };
            show(plan, plan.revoked || held.is_some_and(|held| held.revoked));
            match &plan.parent {
                Some(parent) => id = parent,
                None => return Walk::Whole,
            }
        }
        Walk::Broken
    }

    /// Shows a key's record and then its parents'; `false` if there is no such key.
    ///
    /// # Errors
    /// The key or a parent has been revoked or has expired, or a parent is gone.
    pub(super) fn standing(
        &self,
        tenant: &TenantPlan,
        id: &str,
        now: Now,
        mut show: impl FnMut(&KeyPlan),
    ) -> Result<bool, Reason> {
        let mut reason = None;
        let walk = self.walk(tenant, id, |plan, revoked| {
            if revoked {
                reason = Some(Reason::KeyRevoked);
            } else if plan.expires.is_some_and(|at| now.wall >= at) {
                reason = reason.or(Some(Reason::KeyExpired));
            }
            show(plan);
        });
        match (walk, reason) {
            (_, Some(reason)) => Err(reason),
            (Walk::Broken, None) => Err(Reason::KeyRevoked),
            (Walk::NoKey, None) => Ok(false),
            (Walk::Whole, None) => Ok(true),
        }
    }

    /// The key, if it or a parent has limits; for one that nobody knows, `None`.
    pub(super) fn limited<'k>(
        &self,
        tenant: &TenantPlan,
        id: &'k str,
        model: &str,
        now: Now,
    ) -> Result<Option<&'k str>, NoRoster> {
        let (mut limited, mut may) = (false, true);
        let standing = self.standing(tenant, id, now, |plan| {
            limited |= !plan.limits.is_empty();
            may &= plan.models.as_ref().is_none_or(|models| models.contains(model));
        });
        standing.map_err(NoRoster::Key)?;
        if may { Ok(limited.then_some(id)) } else { Err(NoRoster::ModelNotAllowed) }
    }

    /// The records of a key and of its parents, the key's first.
    pub(super) fn line(&self, tenant: &TenantPlan, id: &str) -> SmallVec<[Arc<KeyPlan>; 2]> {
        let mut line = SmallVec::new();
        self.walk(tenant, id, |plan, _| line.push(plan.clone()));
        line
    }

    /// What is held of a key.
    pub(super) fn held(&self, tenant: &str, id: &str) -> Option<Arc<Held>> {
        self.keys.pin().get(&PairRef(tenant, id)).cloned()
    }

    /// Every key that is held of a tenant.
    pub(super) fn all_of(&self, tenant: &str) -> Vec<(Arc<str>, Arc<Held>)> {
        let keys = self.keys.pin();
        let own = keys.iter().filter(|((owner, _), _)| **owner == *tenant);
        own.map(|((_, id), held)| (id.clone(), held.clone())).collect()
    }

    /// How many of a key's secrets work.
    pub(super) fn working(&self, held: &Held, now: Now) -> usize {
        let secrets = self.secrets.pin();
        let works = |digest: &&Digest| secrets.get(*digest).is_none_or(|holder| now.mono < holder.until);
        held.secrets.iter().filter(works).count()
    }

    /// Holds a key anew, or for the first time. Only within an act.
    pub(super) fn hold(&self, names: Names, held: Held) {
        self.keys.pin().insert(names, Arc::new(held));
    }

    /// Lets a secret open a key up to a moment. Only within an act.
    pub(super) fn admit(&self, digest: Digest, (tenant, id): Names, until: u64) {
        self.secrets.pin().insert(digest, Arc::new(Holder { tenant, id, until }));
    }

    /// Ends a secret at a moment, unless it ends before. Only within an act.
    pub(super) fn end(&self, digest: Digest, names: Names, at: u64) {
        let until = self.secrets.pin().get(&digest).map_or(at, |holder| holder.until.min(at));
        self.admit(digest, names, until);
    }

    /// Forgets the oldest ended secrets of a key beyond [`MAX_SECRETS`]; those of the policy have to be remembered.
    pub(super) fn trim(&self, plan: &Plan, held: &mut Held, now: Now) {
        let secrets = self.secrets.pin();
        let mut spare = held.secrets.len().saturating_sub(MAX_SECRETS);
        held.secrets.retain(|digest| {
            let ended = secrets.get(digest).is_some_and(|holder| now.mono >= holder.until);
            let forget = spare > 0 && ended && !plan.keys.contains_key(digest);
            if forget {
                spare -= 1;
                secrets.remove(digest);
            }
            !forget
        });
    }

    /// Makes room for one more key and gives how many went: where none would fit, those that have ended are forgotten,
    /// but for the policy's. Their children stay refused, for a parent that is gone never stands.
    pub(super) fn make_room(&self, plan: &Plan, now: Now) -> Option<usize> {
        let keys = self.keys.pin();
        let before = keys.len();
        if before < MAX_KEYS {
            return Some(0);
        }
        let secrets = self.secrets.pin();
        keys.retain(|(tenant, id), held| {
            let expired = held.plan.as_ref().and_then(|key| key.expires).is_some_and(|at| now.wall >= at);
            let in_policy = plan.tenants.get(tenant).is_some_and(|tenant| tenant.keys.contains_key(id));
            let keep = in_policy || held.plan.is_none() || !(held.revoked || expired);
            if !keep {
                held.secrets.iter().filter(|digest| !plan.keys.contains_key(digest)).for_each(|digest| {
                    secrets.remove(digest);
                });
            }
            keep
        });
        Some(before - keys.len()).filter(|gone| *gone > 0)
    }
}
