//! Tenants: those of a plan by their names, a few bytes for each beside its name.
//!
//! Floor 1. Invariant: a name has one tenant, in the order of the document; it is found by its name and not by a hash.

use std::ops::Index;
use std::sync::Arc;

use hashbrown::HashTable;

use super::plan::TenantPlan;

/// The tenants of a plan, in the order of the document.
#[derive(Debug, Clone, Default)]
pub struct Tenants {
    plans: Vec<TenantPlan>,
    /// Places in `plans`, by name. In a table of its own, which may be half empty without taking much.
    places: HashTable<u32>,
    keys: ahash::RandomState,
}

const _: () = assert!(size_of::<TenantPlan>() <= 24);

impl Tenants {
    pub(super) fn with_capacity(tenants: usize) -> Tenants {
        Tenants {
            plans: Vec::with_capacity(tenants),
            places: HashTable::with_capacity(tenants),
            keys: ahash::RandomState::new(),
        }
    }

    /// Adds a tenant, or puts it in the place of one of the same name.
    pub(super) fn insert(&mut self, tenant: TenantPlan) {
        if let Some(known) = self.get_mut(&tenant.name) {
            *known = tenant;
            return;
        }
        let Tenants { plans, places, keys } = self;
        let place = plans.len() as u32;
        plans.push(tenant);
        let hash = |place: &u32| keys.hash_one(&*plans[*place as usize].name);
        places.insert_unique(hash(&place), place, hash);
    }

    fn place(&self, name: &str) -> Option<usize> {
        let place = self.places.find(self.keys.hash_one(name), |place| *self.plans[*place as usize].name == *name);
        place.map(|place| *place as usize)
    }

    /// The tenant of a name.
    pub fn get(&self, name: &str) -> Option<&TenantPlan> {
        self.place(name).map(|place| &self.plans[place])
    }

    pub(super) fn get_mut(&mut self, name: &str) -> Option<&mut TenantPlan> {
        self.place(name).map(|place| &mut self.plans[place])
    }

    /// Whether there is one of this name.
    pub fn contains_key(&self, name: &str) -> bool {
        self.place(name).is_some()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.plans.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.plans.is_empty()
    }

    /// Their names.
    pub fn keys(&self) -> impl ExactSizeIterator<Item = &Arc<str>> {
        self.plans.iter().map(|tenant| &tenant.name)
    }

    /// All of them.
    pub fn values(&self) -> std::slice::Iter<'_, TenantPlan> {
        self.plans.iter()
    }

    /// All of them, with their names.
    pub fn iter(&self) -> Iter<'_> {
        self.into_iter()
    }
}

/// Tenants and their names.
pub type Iter<'a> = std::iter::Map<std::slice::Iter<'a, TenantPlan>, fn(&TenantPlan) -> (&Arc<str>, &TenantPlan)>;

impl<'a> IntoIterator for &'a Tenants {
    type Item = (&'a Arc<str>, &'a TenantPlan);
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.plans.iter().map(|tenant| (&tenant.name, tenant))
    }
}

impl Index<&str> for Tenants {
    type Output = TenantPlan;

    fn index(&self, name: &str) -> &TenantPlan {
        match self.get(name) {
            Some(tenant) => tenant,
            None => panic!("no tenant `{name}`"),
        }
    }
}

impl PartialEq for Tenants {
    fn eq(&self, other: &Tenants) -> bool {
        self.len() == other.len() && self.iter().all(|(name, tenant)| other.get(name) == Some(tenant))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenants(names: &[&str]) -> Tenants {
        let mut tenants = Tenants::with_capacity(0);
        for name in names {
            tenants.insert(TenantPlan { name: (*name).into(), kind: Arc::default() });
        }
        tenants
    }

    #[test]
    fn a_tenant_is_found_by_its_name() {
        let names: Vec<String> = (0..3000).map(|n| format!("t{n}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let all = tenants(&names);
        assert!(all.keys().map(|name| &**name).eq(names.iter().copied()), "in their order");
        for name in names {
            assert_eq!((&*all[name].name, all.contains_key(name)), (name, true));
        }
        assert!(all.get("t3000").is_none() && all.get("").is_none());
    }

    #[test]
    fn the_last_of_a_name_is_the_one() {
        let mut all = tenants(&["a", "b"]);
        let kind = Arc::new(super::super::plan::TenantKind { cost_center: Some("c".into()), ..Default::default() });
        all.insert(TenantPlan { name: "a".into(), kind });
        assert_eq!((all.len(), all["a"].cost_center.as_deref()), (2, Some("c")));
        assert!(all != tenants(&["a", "b"]) && tenants(&["b", "a"]) == tenants(&["a", "b"]));
        assert!(tenants(&["a"]) != tenants(&["b"]) && tenants(&["a"]) != tenants(&["a", "b"]));
    }
}
