//! The principal: who asks, as the gateway has verified it.
//!
//! Floor 0. Invariant: a principal never holds a key, only a key's id.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, LazyLock};

/// The authenticated asker.
///
/// It comes from `Gate::authenticate`, from `Gate::principal_from_claims`, or from [`Principal::builder`] where the
/// gateway knows it in another way. Cloning costs one reference count.
#[derive(Clone, PartialEq, Eq)]
pub struct Principal(Arc<Named>);

/// The names, and what every request asks of them: their hash by keys of this process, and whether they are well formed.
/// Many are remembered, so they are close together: in one text, of which each name is a part.
#[derive(PartialEq, Eq)]
struct Named {
    hash: u64,
    text: Box<str>,
    /// Where each name ends in the text, in the order of [`Name`].
    ends: [u16; NAMES],
    /// Layout: a bit for each name that it has, and above them `NAMES_USERS` and `WELL_FORMED`.
    marks: u8,
}

const _: () = assert!(size_of::<Named>() <= 40);

/// The names of a principal, by their places.
#[derive(Clone, Copy)]
enum Name {
    Tenant,
    App,
    Env,
    User,
    Lane,
    Key,
}

const NAMES: usize = Name::Key as usize + 1;
const NAMES_USERS: u8 = 1 << NAMES;
const WELL_FORMED: u8 = 2 << NAMES;

/// The longest name of a tenant, app, user, … in bytes. Requests of a principal with a longer one are refused; it is not shortened, but
/// of one of more than 4,096 bytes the beginning alone is kept.
pub const MAX_NAME: usize = 256;

/// Bytes that are kept of a name which is too long, so that it can be shown.
const MAX_KEPT: usize = 16 * MAX_NAME;

const _: () = assert!(NAMES * MAX_KEPT <= u16::MAX as usize);

impl Named {
    fn of(names: [Option<&str>; NAMES], names_users: bool) -> Named {
        static KEYS: LazyLock<ahash::RandomState> = LazyLock::new(ahash::RandomState::new);
        let has_tenant = names[Name::Tenant as usize].is_some_and(|tenant| !tenant.is_empty());
        let well_formed = has_tenant && names.iter().flatten().all(|name| name.len() <= MAX_NAME);
        let names = names.map(|name| name.map(kept));
        let mut text = String::with_capacity(names.iter().flatten().map(|name| name.len()).sum());
        let mut marks = if names_users { NAMES_USERS } else { 0 } | if well_formed { WELL_FORMED } else { 0 };
        let mut ends = [0; NAMES];
        for (place, name) in names.iter().enumerate() {
            marks |= u8::from(name.is_some()) << place;
            text.push_str(name.unwrap_or_default());
            ends[place] = text.len() as u16;
        }
        Named { hash: KEYS.hash_one((names, marks)), text: text.into(), ends, marks }
    }

    #[inline]
    fn get(&self, name: Name) -> Option<&str> {
        let place = name as usize;
        let from = place.checked_sub(1).map_or(0, |before| self.ends[before]);
        (self.marks & 1 << place != 0).then(|| &self.text[from as usize..self.ends[place] as usize])
    }
}

/// What is kept of a name: all of one that is not too long.
fn kept(name: &str) -> &str {
    let mut ends = (0..=MAX_KEPT.min(name.len())).rev();
    &name[..ends.find(|end| name.is_char_boundary(*end)).unwrap_or(0)]
}

impl Hash for Principal {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash.hash(state);
    }
}

impl fmt::Debug for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Principal")
            .field("tenant", &self.tenant())
            .field("app", &self.app())
            .field("env", &self.env())
            .field("user", &self.user())
            .field("lane", &self.lane())
            .field("key", &self.key())
            .finish_non_exhaustive()
    }
}

impl Principal {
    /// A principal of a tenant; the other fields are optional.
    pub fn builder(tenant: impl Into<Arc<str>>) -> PrincipalBuilder {
        PrincipalBuilder(Fields {
            tenant: tenant.into(),
            app: None,
            env: None,
            user: None,
            lane: None,
            key: None,
            names_users: false,
        })
    }

    /// A hash of all fields, equal for equal principals as long as the process lives.
    #[inline]
    pub(crate) fn quick_hash(&self) -> u64 {
        self.0.hash
    }

    /// The party that owns the quota.
    #[inline]
    pub fn tenant(&self) -> &str {
        self.0.get(Name::Tenant).unwrap_or_default()
    }

    /// The application of the tenant.
    pub fn app(&self) -> Option<&str> {
        self.0.get(Name::App)
    }

    /// The environment, for instance `prod`.
    pub fn env(&self) -> Option<&str> {
        self.0.get(Name::Env)
    }

    /// The user of the tenant.
    pub fn user(&self) -> Option<&str> {
        self.0.get(Name::User)
    }

    /// The lane (class of queue) that its requests go to unless they say otherwise.
    pub fn lane(&self) -> Option<&str> {
        self.0.get(Name::Lane)
    }

    /// The id of the key that was presented; never the key.
    #[inline]
    pub fn key(&self) -> Option<&str> {
        self.0.get(Name::Key)
    }

    /// The same principal acting for a user of the tenant, where it may name one.
    ///
    /// A principal may name users if its key says `names_users: true` (or its builder did). Otherwise the name is
    /// not trusted and the principal comes back unchanged.
    pub fn on_behalf_of(&self, user: &str) -> Principal {
        let names_users = self.0.marks & NAMES_USERS != 0;
        if !names_users || user.is_empty() {
            return self.clone();
        }
        let names = [Some(self.tenant()), self.app(), self.env(), Some(user), self.lane(), self.key()];
        Principal(Arc::new(Named::of(names, names_users)))
    }

    /// Whether every name is within [`MAX_NAME`] and the tenant's is not empty.
    pub(crate) fn is_well_formed(&self) -> bool {
        self.0.marks & WELL_FORMED != 0
    }
}

/// Builds a [`Principal`] from verified claims.
#[derive(Debug)]
pub struct PrincipalBuilder(Fields);

#[derive(Debug)]
struct Fields {
    tenant: Arc<str>,
    app: Option<Arc<str>>,
    env: Option<Arc<str>>,
    user: Option<Arc<str>>,
    lane: Option<Arc<str>>,
    key: Option<Arc<str>>,
    names_users: bool,
}

macro_rules! setters {
    ($($(#[$doc:meta])* $name:ident),*) => {$(
        $(#[$doc])*
        pub fn $name(mut self, $name: impl Into<Arc<str>>) -> Self {
            self.0.$name = Some($name.into());
            self
        }
    )*};
}

impl PrincipalBuilder {
    setters! {
        /// The application of the tenant.
        app,
        /// The environment.
        env,
        /// The user of the tenant.
        user,
        /// The lane that its requests go to.
        lane,
        /// The id of the key that was presented.
        key
    }

    /// Sets or leaves open every name at once.
    pub(crate) fn named(
        mut self,
        app: Option<Arc<str>>,
        env: Option<Arc<str>>,
        user: Option<Arc<str>>,
        lane: Option<Arc<str>>,
        key: Option<Arc<str>>,
    ) -> Self {
        self.0 = Fields { app, env, user, lane, key, ..self.0 };
        self
    }

    /// Lets the principal name the user it acts for, see [`Principal::on_behalf_of`].
    pub fn names_users(mut self, may: bool) -> Self {
        self.0.names_users = may;
        self
    }

    /// The principal.
    pub fn build(self) -> Principal {
        let Fields { tenant, app, env, user, lane, key, names_users } = &self.0;
        let [app, env, user, lane, key] = [app, env, user, lane, key].map(Option::as_deref);
        Principal(Arc::new(Named::of([Some(tenant), app, env, user, lane, key], *names_users)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(who: &Principal) -> [Option<&str>; 6] {
        [Some(who.tenant()), who.app(), who.env(), who.user(), who.lane(), who.key()]
    }

    #[test]
    fn every_name_is_the_one_that_was_given() {
        let whole = Principal::builder("t").app("").env("é").user("u").lane("l").key("k").build();
        assert_eq!(names(&whole), [Some("t"), Some(""), Some("é"), Some("u"), Some("l"), Some("k")]);
        let bare = Principal::builder("tenant").build();
        assert_eq!(names(&bare), [Some("tenant"), None, None, None, None, None]);
        assert!(whole.is_well_formed() && bare.is_well_formed());
        for shown in ["tenant: \"t\"", "app: Some(\"\")", "key: Some(\"k\")"] {
            assert!(format!("{whole:?}").contains(shown), "{whole:?}");
        }
    }

    #[test]
    fn two_are_equal_if_all_of_their_names_are() {
        // The same text in all of them, or none.
        let some = [
            Principal::builder("ab").build(),
            Principal::builder("a").app("b").build(),
            Principal::builder("a").env("b").build(),
            Principal::builder("a").user("b").build(),
            Principal::builder("a").lane("b").build(),
            Principal::builder("a").key("b").build(),
            Principal::builder("a").key("b").app("").build(),
            Principal::builder("a").key("b").names_users(true).build(),
        ];
        for (place, one) in some.iter().enumerate() {
            for (other_place, other) in some.iter().enumerate() {
                assert_eq!(one == other, place == other_place, "{one:?} {other:?}");
                assert_eq!(one.quick_hash() == other.quick_hash(), place == other_place, "{one:?} {other:?}");
            }
        }
        let again = Principal::builder("a").user("b").build();
        assert!(again == some[3] && again.quick_hash() == some[3].quick_hash());
    }

    #[test]
    fn a_user_is_named_by_who_may() {
        let may = Principal::builder("t").user("old").key("k").names_users(true).build();
        assert_eq!(names(&may.on_behalf_of("new")), [Some("t"), None, None, Some("new"), None, Some("k")]);
        assert_eq!(names(&may.on_behalf_of("new").on_behalf_of("newer"))[3], Some("newer"));
        assert_eq!(may.on_behalf_of(""), may);
        let may_not = Principal::builder("t").user("old").build();
        assert_eq!(may_not.on_behalf_of("new"), may_not);
    }

    #[test]
    fn names_that_are_too_long_are_told_and_not_kept() {
        let long = "é".repeat(1 << 20);
        let at_most = "x".repeat(MAX_NAME);
        assert!(Principal::builder(at_most.as_str()).user(at_most.as_str()).build().is_well_formed());
        for who in [Principal::builder(long.as_str()).build(), Principal::builder("t").user(long.as_str()).build()] {
            assert!(!who.is_well_formed());
            assert!(who.0.text.len() <= MAX_KEPT + 1);
        }
        let user = Principal::builder("t").user(long.as_str()).key("k").build();
        assert!(long.starts_with(user.user().unwrap()) && user.user().unwrap().len() > MAX_NAME);
        assert_eq!(user.key(), Some("k"));
        assert!(!Principal::builder("").build().is_well_formed());
    }
}
