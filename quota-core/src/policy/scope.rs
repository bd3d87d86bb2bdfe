//! Scopes: which of a policy's limits hold where.
//!
//! Floor 1. Invariant: what is shown is what the gate runs; a scope that the policy does not have is told, never empty.

use std::borrow::Cow;

use super::Policy;
use super::plan::Limit;

/// A scope of a policy by what it belongs to. With nothing set it is what all tenants share.
///
/// `model`, `app`, `key`, `users` and `runs` are those of the tenant, of which one at most is set; `model` without a tenant is
/// the model's own scope, which all tenants share. `"*"` is any model that the tenant does not name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ScopeOf<'a> {
    /// The tenant.
    pub tenant: Option<&'a str>,
    /// The model.
    pub model: Option<&'a str>,
    /// The app of the tenant.
    pub app: Option<&'a str>,
    /// The id of a key of the tenant that the policy has.
    pub key: Option<&'a str>,
    /// Each user of the tenant.
    pub users: bool,
    /// Each run of the tenant's agents.
    pub runs: bool,
    /// The cost centre, by itself.
    pub cost_center: Option<&'a str>,
}

/// A scope that a policy does not have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NoScope(String);

impl Policy {
    /// The limits of one scope, in the order of the document; those of the scopes around it hold too. Empty where the
    /// policy limits nothing there.
    ///
    /// ```
    /// use quota_core::policy::{Policy, ScopeOf};
    ///
    /// let policy = Policy::from_yaml("tenants: {acme: {rpm: 60, models: {small: {tpm: 9000}}}}")?;
    /// let of_model = ScopeOf { tenant: Some("acme"), model: Some("small"), ..ScopeOf::default() };
    /// let limit = &policy.limits(of_model).unwrap()[0];
    /// assert_eq!((&*limit.name, limit.hard, limit.window.to_string()), ("tpm", 9000, "rolling 60 s".to_owned()));
    /// # Ok::<(), quota_core::policy::PolicyErrors>(())
    /// ```
    ///
    /// # Errors
    /// There is no such scope, or what is set names none.
    pub fn limits(&self, of: ScopeOf<'_>) -> Result<Cow<'_, [Limit]>, NoScope> {
        let plan = self.plan();
        let no = |what: String| NoScope(what);
        let narrower = [of.model.is_some(), of.app.is_some(), of.key.is_some(), of.users, of.runs];
        let set = narrower.iter().filter(|set| **set).count();
        if let Some(center) = of.cost_center {
            if of.tenant.is_some() || set > 0 {
                return Err(no("a cost centre is a scope by itself".into()));
            }
            let limits = plan.cost_centers.get(center).ok_or_else(|| no(format!("no cost centre `{center}`")))?;
            return Ok(Cow::Borrowed(limits));
        }
        if set > 1 {
            return Err(no("one of model, app, key, users and runs names a scope, not several".into()));
        }
        let Some(name) = of.tenant else {
            return match of.model {
                Some(model) => {
                    let model = plan.models.get(model).ok_or_else(|| no(format!("no model `{model}`")))?;
                    Ok(Cow::Borrowed(&model.limits))
                }
                None if set > 0 => Err(no("apps, keys, users and runs are a tenant's: which?".into())),
                None => Ok(Cow::Borrowed(&plan.global)),
            };
        };
        let tenant = plan.tenants.get(name).ok_or_else(|| no(format!("no tenant `{name}`")))?;
        let none = |what: &str, which: &str| no(format!("the tenant `{name}` has no {what} `{which}`"));
        let limits = if let Some(model) = of.model {
            let named = if model == "*" { tenant.any_model.as_ref() } else { tenant.models.get(model) };
            &named.ok_or_else(|| none("model", model))?.limits
        } else if let Some(app) = of.app {
            tenant.apps.get(app).ok_or_else(|| none("limited app", app))?
        } else if let Some(key) = of.key {
            &tenant.keys.get(key).ok_or_else(|| none("key", key))?.limits
        } else if of.runs {
            return Ok(Cow::Owned(tenant.agent_runs.limits()));
        } else if of.users {
            &tenant.users
        } else {
            &tenant.limits
        };
        Ok(Cow::Borrowed(limits))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_is_found_or_told_to_be_none() {
        let policy = Policy::from_yaml(
            "global: {rps: 9}
models: {m: {tpm: 8}}
cost_centers: {legal: {monthly_budget_usd: 5}}
tenants: {blue: {rpm: 7, users: {rpm: 2}, apps: {bot: {rpm: 3}}, agent_runs: {max_steps: 4}, models: {m: {rpm: 6}, '*': {rpm: 1}}}}",
        )
        .unwrap();
        let (blue, m) = (ScopeOf { tenant: Some("blue"), ..ScopeOf::default() }, Some("m"));
        for (of, want) in [
            (ScopeOf::default(), 9),
            (ScopeOf { model: m, ..ScopeOf::default() }, 8),
            (ScopeOf { cost_center: Some("legal"), ..ScopeOf::default() }, 500_000_000),
            (blue, 7),
            (ScopeOf { model: m, ..blue }, 6),
            (ScopeOf { model: Some("*"), ..blue }, 1),
            (ScopeOf { app: Some("bot"), ..blue }, 3),
            (ScopeOf { users: true, ..blue }, 2),
            (ScopeOf { runs: true, ..blue }, 4),
        ] {
            assert_eq!(policy.limits(of).unwrap()[0].hard, want, "{of:?}");
        }
        for (of, want) in [
            (ScopeOf { tenant: Some("red"), ..blue }, "no tenant `red`"),
            (ScopeOf { model: Some("x"), ..blue }, "the tenant `blue` has no model `x`"),
            (ScopeOf { key: Some("k"), ..blue }, "the tenant `blue` has no key `k`"),
            (ScopeOf { app: Some("cat"), ..blue }, "the tenant `blue` has no limited app `cat`"),
            (ScopeOf { model: Some("x"), ..ScopeOf::default() }, "no model `x`"),
            (ScopeOf { cost_center: Some("x"), ..ScopeOf::default() }, "no cost centre `x`"),
            (ScopeOf { cost_center: Some("legal"), ..blue }, "a cost centre is a scope by itself"),
            (ScopeOf { users: true, ..ScopeOf::default() }, "apps, keys, users and runs are a tenant's: which?"),
            (
                ScopeOf { users: true, model: m, ..blue },
                "one of model, app, key, users and runs names a scope, not several",
            ),
        ] {
            assert_eq!(policy.limits(of).unwrap_err().to_string(), want);
        }
    }
}
