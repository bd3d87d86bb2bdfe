//! Keys: making, rotating and revoking them while the gate runs.
//!
//! Floor 3. Invariant: an act changes everything or nothing, is journaled once, and shows a secret to nobody but who
//! asked for it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use smallvec::smallvec;

use super::keyring::{Held, Keyring, MAX_KEYS, MAX_SECRETS};
use super::{Gate, Shared};
use crate::journal::{Event, KeyAct, KeyChange};
use crate::key::{Digest, Secret};
use crate::policy::keys::{key_limits, wider};
use crate::policy::plan::{KeyPlan, Plan, TenantPlan};
use crate::policy::{MAX_KEY_DEPTH, PolicyErrors};
use crate::principal::MAX_NAME;
use crate::reason::Reason;
use crate::store::Store;
use crate::time::{Now, show_instant};

/// What a key that is to be made may do; what is left open, its parent or its tenant decides.
///
/// ```
/// use quota_core::{Gate, Policy, gate::KeySpec};
///
/// let gate = Gate::new(Policy::from_yaml("tenants: {acme: {rpm: 60, models: {small: {}}}}")?);
/// let spec = KeySpec { app: Some("bot".into()), limits: "rpm: 5".into(), ..KeySpec::new("acme") };
/// let issued = gate.issue_key(spec, "ops@example.org")?;
/// println!("{}: {:?}", issued.id, issued.secret); // key_…: Secret(hidden)
/// let who = gate.authenticate(issued.secret.expose()).unwrap();
/// assert_eq!((who.tenant(), who.app(), who.key()), ("acme", Some("bot"), Some(&*issued.id)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeySpec {
    /// The tenant that it belongs to.
    pub tenant: Arc<str>,
    /// Its id, unique in the tenant; one is made where it is `None`.
    pub id: Option<Arc<str>>,
    /// The id of the key of the same tenant that it narrows: whose limits hold too, and whose end is its end.
    pub parent: Option<Arc<str>>,
    /// The app that it stands for.
    pub app: Option<Arc<str>>,
    /// The environment that it stands for.
    pub env: Option<Arc<str>>,
    /// The user that it stands for.
    pub user: Option<Arc<str>>,
    /// The lane of its requests.
    pub lane: Option<Arc<str>>,
    /// Whether it may name the user that it acts for.
    pub names_users: bool,
    /// Unix nanoseconds from which it is refused.
    pub expires: Option<u64>,
    /// The models that it may use; `None` for all of its parent's, or of its tenant's.
    pub models: Option<HashSet<Arc<str>>>,
    /// Its own limits: a mapping in the words of the policy's `keys`, for instance `rpm: 5`. Empty for none. Days begin
    /// in the tenant's time zone.
    pub limits: String,
}

impl KeySpec {
    /// A key of a tenant that may do all that the tenant may.
    pub fn new(tenant: impl Into<Arc<str>>) -> KeySpec {
        KeySpec { tenant: tenant.into(), ..KeySpec::default() }
    }
}

/// A new secret. It is nowhere else: whoever drops it has to rotate the key.
#[derive(Debug)]
pub struct Issued {
    /// The id of the key that it opens.
    pub id: Arc<str>,
    /// The secret.
    pub secret: Secret,
    /// Unix nanoseconds from which the key is refused, by its own expiry or a parent's.
    pub expires: Option<u64>,
}

/// How a key stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyState {
    /// It works.
    Active,
    /// It, or a parent, has expired.
    Expired,
    /// It, or a parent, has been revoked.
    Revoked,
}

/// What there is to know of a key.
#[derive(Debug, Clone)]
pub struct KeyView {
    /// Its record.
    pub plan: Arc<KeyPlan>,
    /// How it stands.
    pub state: KeyState,
    /// Whether the policy has it; otherwise it was made at run time and lives as long as the gate.
    pub in_policy: bool,
    /// How many secrets open it: more than one while a rotation overlaps.
    pub secrets: usize,
}

/// Why a key was not made, rotated or revoked. Nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The policy names no such tenant.
    #[error("no tenant `{0}`")]
    TenantUnknown(Arc<str>),
    /// The tenant has no key of this id, neither in the policy nor made at run time.
    #[error("no key `{0}`")]
    KeyUnknown(Arc<str>),
    /// The tenant has a key of this id; also where the same key is made a second time.
    #[error("there is a key `{0}` already")]
    IdTaken(Arc<str>),
    /// The key, or a parent, has expired or been revoked.
    #[error("the key `{0}` has expired or been revoked, or a parent of it has")]
    Ended(Arc<str>),
    /// A field of the specification means nothing: what was found, and what is allowed.
    #[error("{0}")]
    Invalid(String),
    /// The limits of the specification are none.
    #[error("{0}")]
    Limits(PolicyErrors),
    /// A child would be wider than its parent: in what.
    #[error("wider than its parent: {0}")]
    Wider(String),
    /// The key has as many secrets as one may have at the same time; the oldest has to end first.
    #[error("the key `{0}` has {MAX_SECRETS} secrets that work; the oldest has to end first")]
    SecretsFull(Arc<str>),
    /// As many keys are held beside the policy's as may be, and none of them has ended.
    #[error("{MAX_KEYS} keys are held beside the policy's, the most there may be")]
    KeysFull,
    /// The operating system gave no random bits.
    #[error("the operating system gave no random bits")]
    NoRandom,
}

impl KeyError {
    /// The stable code of this fault in every language.
    pub fn code(&self) -> &'static str {
        match self {
            KeyError::TenantUnknown(_) => "tenant_unknown",
            KeyError::KeyUnknown(_) => "key_unknown",
            KeyError::IdTaken(_) => "key_id_taken",
            KeyError::Ended(_) => "key_ended",
            KeyError::Invalid(_) => "key_invalid",
            KeyError::Limits(_) => "key_limits_invalid",
            KeyError::Wider(_) => "key_wider",
            KeyError::SecretsFull(_) => "key_secrets_full",
            KeyError::KeysFull => "keys_full",
            KeyError::NoRandom => "no_random",
        }
    }

    /// Whether the same act may succeed later without anybody changing anything.
    pub fn is_retryable(&self) -> bool {
        matches!(self, KeyError::SecretsFull(_) | KeyError::KeysFull | KeyError::NoRandom)
    }
}

impl<S: Store> Gate<S> {
    /// Makes a key, with the only sight of its secret. It works from the next request on and lives as long as the gate;
    /// to keep it, write its id and the SHA-256 of its secret into the policy, whose record then counts.
    ///
    /// With a `parent` it is a child key, which only narrows: whatever the parent and its parents fix stays, their
    /// limits hold too, and it ends with them. Called twice, it makes two keys, or fails if it names the id.
    ///
    /// # Errors
    /// Tenant or parent unknown or ended, id taken, a field or the limits invalid, wider than the parent, or
    /// [`MAX_KEYS`] reached, after those that had ended were forgotten.
    pub fn issue_key(&self, spec: KeySpec, author: impl Into<Arc<str>>) -> Result<Issued, KeyError> {
        let shared = self.shared();
        let (secret, id) = (Secret::of(random()?), spec.id.clone().map_or_else(made_id, Ok)?);
        let act_alone = shared.keyring.acts.lock();
        let (now, plan) = shared.moment();
        let tenant = plan.tenants.get(&spec.tenant).ok_or_else(|| KeyError::TenantUnknown(spec.tenant.clone()))?;
        let parents = shared.keyring.parents(tenant, spec.parent.as_ref(), now)?;
        let key = record(spec, id, &plan, tenant, now)?;
        let above: Vec<&KeyPlan> = parents.iter().map(|parent| &**parent).collect();
        let told = wider(&key, &above);
        if !told.is_empty() {
            return Err(KeyError::Wider(told.join("; ")));
        }
        if tenant.keys.contains_key(&key.id) || shared.keyring.held(&key.tenant, &key.id).is_some() {
            return Err(KeyError::IdTaken(key.id));
        }
        shared.room(&plan, now)?;
        let expires = above.iter().copied().chain([&key]).filter_map(|key| key.expires).min();
        let (id, names) = (key.id.clone(), (key.tenant.clone(), key.id.clone()));
        let digest = Digest::of(secret.expose());
        let act = KeyAct::Issued { parent: key.parent.clone(), expires };
        let held = Held { plan: Some(Arc::new(key)), revoked: false, secrets: smallvec![digest] };
        shared.keyring.hold(names.clone(), held);
        shared.keyring.admit(digest, names.clone(), u64::MAX);
        drop(act_alone);
        shared.changed(names, act, author.into(), now);
        Ok(Issued { id, secret, expires })
    }

    /// Gives a key another secret under the same id, so that both open the same accounts. The earlier secrets work for
    /// `overlap` more, or as long as an earlier rotation said if that is less; with 0, not from the next request on.
    ///
    /// A key of the policy can be rotated too, as long as the gate lives; after that, the policy's digest counts again.
    /// Called twice, it rotates twice.
    ///
    /// # Errors
    /// Tenant or key unknown, the key ended, more than four secrets at once, or [`MAX_KEYS`] reached.
    pub fn rotate_key(
        &self,
        tenant: &str,
        id: &str,
        overlap: Duration,
        author: impl Into<Arc<str>>,
    ) -> Result<Issued, KeyError> {
        let shared = self.shared();
        let secret = Secret::of(random()?);
        let act_alone = shared.keyring.acts.lock();
        let (now, plan) = shared.moment();
        let owner = plan.tenants.get(tenant).ok_or_else(|| KeyError::TenantUnknown(tenant.into()))?;
        let mut expires: Option<u64> = None;
        let standing =
            shared.keyring.standing(owner, id, now, |key| expires = [expires, key.expires].into_iter().flatten().min());
        match standing {
            Ok(true) => {}
            Ok(false) => return Err(KeyError::KeyUnknown(id.into())),
            Err(_) => return Err(KeyError::Ended(id.into())),
        }
        let names = (owner.name.clone(), Arc::from(id));
        if shared.keyring.held(tenant, id).is_none() {
            shared.room(&plan, now)?;
        }
        let mut held = shared.take_up(&plan, owner, id);
        let overlap = u64::try_from(overlap.as_nanos()).unwrap_or(u64::MAX);
        if overlap > 0 && shared.keyring.working(&held, now) >= MAX_SECRETS {
            return Err(KeyError::SecretsFull(names.1));
        }
        let digest = Digest::of(secret.expose());
        // The new one first: there is no moment at which none works.
        shared.keyring.admit(digest, names.clone(), u64::MAX);
        for earlier in &held.secrets {
            shared.keyring.end(*earlier, names.clone(), now.mono.saturating_add(overlap));
        }
        held.secrets.push(digest);
        shared.keyring.trim(&plan, &mut held, now);
        shared.keyring.hold(names.clone(), held);
        drop(act_alone);
        shared.changed(names.clone(), KeyAct::Rotated { overlap }, author.into(), now);
        Ok(Issued { id: names.1, secret, expires })
    }

    /// Revokes a key with all its secrets, and its children with it, from the next request on: by
    /// [`authenticate`](Gate::authenticate), and by [`admit`](Gate::admit) for principals that were made before. What
    /// was admitted goes on and settles as usual.
    ///
    /// It can't be undone. A key of the policy is revoked as long as the gate lives, whatever is reloaded; say so in
    /// the policy as well. `false`, and nothing is journaled, if it had been revoked.
    ///
    /// # Errors
    /// Tenant or key unknown. There is always room to revoke a key.
    pub fn revoke_key(&self, tenant: &str, id: &str, author: impl Into<Arc<str>>) -> Result<bool, KeyError> {
        let shared = self.shared();
        let act_alone = shared.keyring.acts.lock();
        let (now, plan) = shared.moment();
        let owner = plan.tenants.get(tenant).ok_or_else(|| KeyError::TenantUnknown(tenant.into()))?;
        let in_policy = owner.keys.get(id);
        if in_policy.is_none() && shared.keyring.held(tenant, id).is_none() {
            return Err(KeyError::KeyUnknown(id.into()));
        }
        let held = shared.take_up(&plan, owner, id);
        if held.revoked || in_policy.is_some_and(|key| key.revoked) {
            return Ok(false);
        }
        let names = (owner.name.clone(), Arc::from(id));
        shared.keyring.hold(names.clone(), Held { revoked: true, ..held });
        drop(act_alone);
        shared.changed(names, KeyAct::Revoked, author.into(), now);
        Ok(true)
    }

    /// The keys of a tenant, those of the policy and those made at run time, in the order of their ids; empty for a
    /// tenant that the policy does not name. There is no secret and no digest in it.
    ///
    /// Cost: a pass over all keys that were made at run time.
    pub fn keys(&self, tenant: &str) -> Vec<KeyView> {
        let shared = self.shared();
        let (now, plan) = shared.moment();
        let Some(tenant) = plan.tenants.get(tenant) else { return Vec::new() };
        let mut found: HashMap<Arc<str>, (Arc<KeyPlan>, Held)> = HashMap::new();
        for (id, held) in shared.keyring.all_of(&tenant.name) {
            if let Some(key) = tenant.keys.get(&id).or(held.plan.as_ref()) {
                found.insert(id, (key.clone(), (*held).clone()));
            }
        }
        for (digest, key) in plan.keys.iter().filter(|(_, key)| key.tenant == tenant.name) {
            let (_, held) = found.entry(key.id.clone()).or_insert_with(|| (key.clone(), Held::default()));
            if !held.secrets.contains(digest) {
                held.secrets.push(*digest);
            }
        }
        let view = |(plan, held): (Arc<KeyPlan>, Held)| KeyView {
            state: match shared.keyring.standing(tenant, &plan.id, now, |_| ()) {
                Ok(_) => KeyState::Active,
                Err(Reason::KeyExpired) => KeyState::Expired,
                Err(_) => KeyState::Revoked,
            },
            in_policy: tenant.keys.contains_key(&plan.id),
            secrets: shared.keyring.working(&held, now),
            plan,
        };
        let mut keys: Vec<KeyView> = found.into_values().map(view).collect();
        keys.sort_by(|a, b| a.plan.id.cmp(&b.plan.id));
        keys
    }
}

impl<S: Store> Shared<S> {
    fn moment(&self) -> (Now, Arc<Plan>) {
        (self.clock.now(), self.wired(|wiring| wiring.plan.clone()))
    }

    /// Room for one more key; what was remembered of keys that had to go is forgotten as well.
    fn room(&self, plan: &Plan, now: Now) -> Result<(), KeyError> {
        if self.keyring.make_room(plan, now).ok_or(KeyError::KeysFull)? > 0 {
            self.wired(|wiring| wiring.forget());
        }
        Ok(())
    }

    /// What is held of a key that there is, with the policy's digest of it.
    fn take_up(&self, plan: &Plan, tenant: &TenantPlan, id: &str) -> Held {
        let mut held = self.keyring.held(&tenant.name, id).map_or_else(Held::default, |held| (*held).clone());
        let of_policy = plan.keys.iter().filter(|(_, key)| *key.id == *id && key.tenant == tenant.name);
        for (digest, _) in of_policy {
            if !held.secrets.contains(digest) {
                held.secrets.insert(0, *digest);
            }
        }
        held
    }

    /// Journals an act. After it, not within: a journal may be the host's own, and call the gate.
    fn changed(&self, (tenant, id): (Arc<str>, Arc<str>), act: KeyAct, author: Arc<str>, now: Now) {
        self.journal.append(Event::KeyChanged(Arc::new(KeyChange { tenant, id, act, author })), now);
    }
}

impl Keyring {
    /// The parents of a key to be made, the nearest first.
    fn parents(&self, tenant: &TenantPlan, parent: Option<&Arc<str>>, now: Now) -> Result<Vec<Arc<KeyPlan>>, KeyError> {
        let Some(id) = parent else { return Ok(Vec::new()) };
        match self.standing(tenant, id, now, |_| ()) {
            Ok(true) => {}
            Ok(false) => return Err(KeyError::KeyUnknown(id.clone())),
            Err(_) => return Err(KeyError::Ended(id.clone())),
        }
        let line = self.line(tenant, id);
        if line.len() >= MAX_KEY_DEPTH {
            let message = format!("parent: more than {MAX_KEY_DEPTH} keys from this one to its topmost parent");
            return Err(KeyError::Invalid(message));
        }
        Ok(line.into_vec())
    }
}

/// The record of a key that is to be made.
fn record(spec: KeySpec, id: Arc<str>, plan: &Plan, tenant: &TenantPlan, now: Now) -> Result<KeyPlan, KeyError> {
    let named = [("id", Some(&id)), ("app", spec.app.as_ref()), ("env", spec.env.as_ref())];
    for (what, name) in named.into_iter().chain([("user", spec.user.as_ref()), ("lane", spec.lane.as_ref())]) {
        let sound =
            |name: &&Arc<str>| !name.trim().is_empty() && name.len() <= MAX_NAME && !name.chars().any(char::is_control);
        if let Some(name) = name.filter(|name| !sound(name)) {
            let found = name.len();
            let message = format!("{what}: {found} bytes; allowed: 1 to {MAX_NAME} without control characters");
            return Err(KeyError::Invalid(message));
        }
    }
    if let Some(lane) = spec.lane.as_ref().filter(|lane| !plan.lanes.contains_key(*lane)) {
        return Err(KeyError::Invalid(format!("lane: `{lane}` is none of the policy's")));
    }
    let may = |model: &Arc<str>| tenant.any_model.is_some() || tenant.models.contains_key(model);
    if let Some(model) = spec.models.iter().flatten().filter(|model| model.len() > MAX_NAME || !may(model)).min() {
        let model: String = model.chars().take(64).collect();
        return Err(KeyError::Invalid(format!("models: `{model}` is none that the tenant may use")));
    }
    if let Some(expires) = spec.expires.filter(|at| *at <= now.wall) {
        return Err(KeyError::Invalid(format!("expires: {} is past", show_instant(expires))));
    }
    Ok(KeyPlan {
        limits: key_limits(&spec.limits, &tenant.timezone).map_err(KeyError::Limits)?,
        id,
        tenant: tenant.name.clone(),
        parent: spec.parent,
        app: spec.app,
        env: spec.env,
        user: spec.user,
        lane: spec.lane,
        names_users: spec.names_users,
        expires: spec.expires,
        revoked: false,
        models: spec.models,
    })
}

fn random<const N: usize>() -> Result<[u8; N], KeyError> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|_| KeyError::NoRandom)?;
    Ok(bytes)
}

/// An id of 72 random bits.
fn made_id() -> Result<Arc<str>, KeyError> {
    Ok(format!("key_{}", URL_SAFE_NO_PAD.encode(random::<9>()?)).into())
}
