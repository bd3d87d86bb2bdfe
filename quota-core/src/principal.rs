//! The principal: who asks, as the gateway has verified it.
//!
//! Floor 0. Invariant: a principal never holds a key, only a key's id.

use std::sync::{Arc, LazyLock};

/// The authenticated asker.
///
/// It comes from `Gate::authenticate`, from `Gate::principal_from_claims`, or from [`Principal::builder`] where the
/// gateway knows it in another way. Cloning costs one reference count.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Principal(Arc<Named>);

/// The fields, and what every request asks of them: their hash by keys of this process, and whether they are well formed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Named {
    hash: u64,
    well_formed: bool,
    fields: Fields,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Fields {
    tenant: Arc<str>,
    app: Option<Arc<str>>,
    env: Option<Arc<str>>,
    user: Option<Arc<str>>,
    lane: Option<Arc<str>>,
    key: Option<Arc<str>>,
    names_users: bool,
}

/// The longest name of a tenant, app, user, … in bytes; longer ones are cut off by a refusal, not shortened.
pub const MAX_NAME: usize = 256;

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

    fn of(fields: Fields) -> Principal {
        static KEYS: LazyLock<ahash::RandomState> = LazyLock::new(ahash::RandomState::new);
        Principal(Arc::new(Named { hash: KEYS.hash_one(&fields), well_formed: fields.are_well_formed(), fields }))
    }

    /// A hash of all fields, equal for equal principals as long as the process lives.
    pub(crate) fn quick_hash(&self) -> u64 {
        self.0.hash
    }

    /// The party that owns the quota.
    pub fn tenant(&self) -> &str {
        &self.0.fields.tenant
    }

    /// The application of the tenant.
    pub fn app(&self) -> Option<&str> {
        self.0.fields.app.as_deref()
    }

    /// The environment, for instance `prod`.
    pub fn env(&self) -> Option<&str> {
        self.0.fields.env.as_deref()
    }

    /// The user of the tenant.
    pub fn user(&self) -> Option<&str> {
        self.0.fields.user.as_deref()
    }

    /// The lane (class of queue) that its requests go to unless they say otherwise.
    pub fn lane(&self) -> Option<&str> {
        self.0.fields.lane.as_deref()
    }

    /// The id of the key that was presented; never the key.
    pub fn key(&self) -> Option<&str> {
        self.0.fields.key.as_deref()
    }

    /// The same principal acting for a user of the tenant, where it may name one.
    ///
    /// A principal may name users if its key says `names_users: true` (or its builder did). Otherwise the name is
    /// not trusted and the principal comes back unchanged.
    pub fn on_behalf_of(&self, user: &str) -> Principal {
        if !self.0.fields.names_users || user.is_empty() {
            return self.clone();
        }
        Principal::of(Fields { user: Some(user.into()), ..self.0.fields.clone() })
    }

    /// Whether every name is within [`MAX_NAME`] and the tenant's is not empty.
    pub(crate) fn is_well_formed(&self) -> bool {
        self.0.well_formed
    }
}

impl Fields {
    fn are_well_formed(&self) -> bool {
        let Fields { tenant, app, env, user, lane, key, names_users: _ } = self;
        let optional = [app, env, user, lane, key];
        !tenant.is_empty()
            && tenant.len() <= MAX_NAME
            && optional.into_iter().flatten().all(|name| name.len() <= MAX_NAME)
    }
}

/// Builds a [`Principal`] from verified claims.
#[derive(Debug)]
pub struct PrincipalBuilder(Fields);

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
        Principal::of(self.0)
    }
}
