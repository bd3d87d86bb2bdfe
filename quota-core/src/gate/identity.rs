//! Identity: the principal of a key, and of claims that the host has verified.
//!
//! Floor 3. Invariant: what a key's parents fix, neither the key nor a claim changes.

use std::sync::Arc;

use serde_json::Value;

use super::keyring::Keyring;
use super::prepare::refusal;
use super::{Gate, Shared};
use crate::key::{Digest, MAX_KEY, presented};
use crate::policy::plan::{Plan, TenantPlan};
use crate::principal::Principal;
use crate::reason::Reason;
use crate::refusal::Refusal;
use crate::request::Request;
use crate::store::Store;
use crate::time::Now;

/// Why there is no principal.
struct Stranger {
    reason: Reason,
    /// The tenant, as far as it is known.
    tenant: Arc<str>,
    detail: Option<String>,
}

impl From<(Reason, &Arc<str>)> for Stranger {
    fn from((reason, tenant): (Reason, &Arc<str>)) -> Stranger {
        Stranger { reason, tenant: tenant.clone(), detail: None }
    }
}

/// The names of a principal beside its tenant's.
#[derive(Default)]
struct Names {
    app: Option<Arc<str>>,
    env: Option<Arc<str>>,
    user: Option<Arc<str>>,
    lane: Option<Arc<str>>,
    names_users: bool,
}

impl Names {
    /// Gives way to a key, and to its parents after it: the topmost key that fixes a name is right. `false` if there is
    /// no such key.
    fn under(&mut self, keyring: &Keyring, tenant: &TenantPlan, id: &str, now: Now) -> Result<bool, Reason> {
        keyring.standing(tenant, id, now, |key| {
            let fixed = [
                (&mut self.app, &key.app),
                (&mut self.env, &key.env),
                (&mut self.user, &key.user),
                (&mut self.lane, &key.lane),
            ];
            for (name, fixed) in fixed.into_iter().filter(|(_, fixed)| fixed.is_some()) {
                name.clone_from(fixed);
            }
            self.names_users &= key.names_users;
        })
    }

    fn principal(self, tenant: &Arc<str>, key: Option<Arc<str>>) -> Principal {
        let Names { app, env, user, lane, names_users } = self;
        Principal::builder(tenant.clone()).named(app, env, user, lane, key).names_users(names_users).build()
    }
}

impl<S: Store> Gate<S> {
    /// The principal of a bearer key (with or without `Bearer ` before it).
    ///
    /// The key is looked up by its SHA-256 digest and kept nowhere, and no answer is remembered: what is issued, rotated
    /// or revoked counts from the next call on. Cost: no lock; a hash of the key, and a look-up for each of its parents.
    ///
    /// # Errors
    /// A refusal, which is counted and not journaled: unknown, expired or revoked; the same where it is so with a parent of the key.
    pub fn authenticate(&self, bearer: &str) -> Result<Principal, Arc<Refusal>> {
        let shared = self.shared();
        let now = shared.clock.now();
        let found = shared.wired(|wiring| key_holder(&shared.keyring, &wiring.plan, presented(bearer), now));
        found.map_err(|stranger| shared.turned_away(stranger))
    }

    /// The principal that claims name, by the `claims` section of the policy.
    ///
    /// The claims must have been verified by the host (signature, expiry, audience, issuer): nothing here can. A claim
    /// that names a key of the tenant, in the policy or issued, puts the principal under that key: its limits and
    /// models hold, and what it fixes goes before the claims.
    ///
    /// # Errors
    /// A refusal: `claims_invalid` where the policy maps no claims, the tenant's claim is missing or names no tenant, a
    /// lane is none of the policy's, or a claim is not a text of 1 to [`MAX_NAME`](crate::principal::MAX_NAME) bytes;
    /// `key_expired`, `key_revoked` and `key_unknown` by the key that they name.
    pub fn principal_from_claims(&self, claims: &Value) -> Result<Principal, Arc<Refusal>> {
        let shared = self.shared();
        let now = shared.clock.now();
        let found = shared.wired(|wiring| claimed(&shared.keyring, &wiring.plan, claims, now));
        found.map_err(|stranger| shared.turned_away(stranger))
    }
}

fn key_holder(keyring: &Keyring, plan: &Plan, key: &str, now: Now) -> Result<Principal, Stranger> {
    let unknown: Arc<str> = "".into();
    if key.is_empty() || key.len() > MAX_KEY {
        return Err((Reason::KeyUnknown, &unknown).into());
    }
    let (tenant, id) = keyring.holder(plan, &Digest::of(key), now).map_err(|reason| (reason, &unknown))?;
    let owner = plan.tenants.get(&tenant).ok_or((Reason::TenantUnknown, &tenant))?;
    let mut names = Names { names_users: true, ..Names::default() };
    match names.under(keyring, owner, &id, now) {
        Ok(true) => Ok(names.principal(&owner.name, Some(id))),
        // Its secret is known, but a policy without the key is in force.
        Ok(false) => Err((Reason::KeyUnknown, &unknown).into()),
        Err(reason) => Err((reason, &tenant).into()),
    }
}

fn claimed(keyring: &Keyring, plan: &Plan, claims: &Value, now: Now) -> Result<Principal, Stranger> {
    let no = |detail: String| Stranger { reason: Reason::ClaimsInvalid, tenant: "".into(), detail: Some(detail) };
    let Some(map) = &plan.claims else { return Err(no("the policy maps no claims".into())) };
    let Some(tenant) = map.tenant.name(claims).map_err(no)? else {
        return Err(no(format!("claim `{}`, which names the tenant, is missing", map.tenant.claim)));
    };
    let Some(owner) = plan.tenants.get(&tenant) else {
        return Err(no(format!("claim `{}` names no tenant of the policy", map.tenant.claim)));
    };
    let name = |claim: &Option<crate::policy::claims::ClaimPlan>| match claim {
        Some(claim) => claim.name(claims).map_err(no),
        None => Ok(None),
    };
    let (app, env, user, lane, key) =
        (name(&map.app)?, name(&map.env)?, name(&map.user)?, name(&map.lane)?, name(&map.key)?);
    if let (Some(lane), Some(from)) = (&lane, &map.lane)
        && !plan.lanes.contains_key(lane)
    {
        return Err(no(format!("claim `{}` names no lane of the policy", from.claim)));
    }
    let mut names = Names { app, env, user, lane, names_users: false };
    if let (Some(key), Some(from)) = (&key, &map.key) {
        match names.under(keyring, owner, key, now) {
            Ok(true) => {}
            // Without its record nothing would limit it: a key that was taken out of the policy would be free.
            Ok(false) => {
                let detail = Some(format!("claim `{}` names no key of the tenant", from.claim));
                return Err(Stranger { detail, ..(Reason::KeyUnknown, &owner.name).into() });
            }
            Err(reason) => return Err((reason, &owner.name).into()),
        }
    }
    Ok(names.principal(&owner.name, key))
}

impl<S: Store> Shared<S> {
    /// Counts and gives the refusal of somebody who is no principal. It is not journaled: strangers can guess as often
    /// as they like, and an entry each would push out the rest.
    fn turned_away(&self, stranger: Stranger) -> Arc<Refusal> {
        let Stranger { reason, tenant, detail } = stranger;
        let refusal = Arc::new(Refusal { tenant, ..*refusal(reason, None, &Request::chat(""), detail) });
        self.tallies.strangers.rejected(reason);
        refusal
    }
}
