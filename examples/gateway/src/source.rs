//! Where the policy comes from: a file, or the built-in one.

use std::path::PathBuf;

use quota_core::Policy;
use quota_core::policy::price_list::PriceList;

/// The policy of a gateway that is given none.
const DEFAULT: &str = include_str!("../default-policy.yaml");

/// The key that the built-in policy's first tenant is tried out with.
pub const DEMO_KEY: &str = "demo-acme-key";

/// All keys of the built-in policy with their ids.
pub const DEMO_KEYS: [(&str, &str); 3] =
    [(DEMO_KEY, "acme-app"), ("demo-acme-batch-key", "acme-batch"), ("demo-hobby-key", "hobby")];

/// The files that a policy is loaded from.
#[derive(Debug, Clone, Default)]
pub struct Source {
    /// The policy's file; the built-in one if `None`.
    pub policy: Option<PathBuf>,
    /// A price list for models without a price of their own.
    pub prices: Option<PathBuf>,
}

impl Source {
    /// Loads the policy, whole or not at all.
    ///
    /// # Errors
    /// Everything that is wrong with the policy, one line each, or with the price list.
    pub fn load(&self) -> Result<Policy, String> {
        let policy = match &self.policy {
            Some(file) => Policy::from_file(file).map_err(|errors| errors.to_string())?,
            None => Policy::from_yaml(DEFAULT).map_err(|errors| errors.to_string())?,
        };
        let Some(file) = &self.prices else { return Ok(policy) };
        let wrong = |why: String| format!("{}: {why}", file.display());
        let text = std::fs::read_to_string(file).map_err(|why| wrong(why.to_string()))?;
        Ok(policy.with_prices(PriceList::litellm(&text).map_err(|why| wrong(why.to_string()))?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quota_core::{Decision, Gate, Principal, Request};

    #[test]
    fn the_built_in_policy_is_sound_and_its_keys_open_it() {
        let policy = Source::default().load().unwrap();
        assert_eq!(policy.warnings(), []);
        let gate = Gate::new(policy);
        for (key, id) in DEMO_KEYS {
            assert_eq!(gate.authenticate(key).unwrap().key(), Some(id));
        }
    }

    #[test]
    fn a_price_list_fills_what_the_policy_leaves_open() {
        let file = |name: &str, text: &str| {
            let path = std::env::temp_dir().join(format!("gateway-{}-{name}", std::process::id()));
            std::fs::write(&path, text).unwrap();
            Some(path)
        };
        let policy = file("policy.yaml", "tenants: {acme: {daily_budget_usd: 1, models: {m: {}}}}");
        let list = r#"{"m": {"mode": "chat", "input_cost_per_token": 1e-06, "output_cost_per_token": 2e-06}}"#;
        let mut source = Source { policy, prices: None };
        let admits = |source: &Source| {
            let (gate, who) = (Gate::new(source.load().unwrap()), Principal::builder("acme").build());
            matches!(gate.admit(&who, &Request::chat("m").max_output_tokens(1)), Decision::Allow(_))
        };
        assert!(!admits(&source));
        source.prices = file("prices.json", list);
        assert!(admits(&source));
        std::fs::write(source.prices.as_ref().unwrap(), "[]").unwrap();
        assert!(source.load().unwrap_err().contains("prices.json: the price list is not a JSON object"));
        for path in [source.policy, source.prices].into_iter().flatten() {
            std::fs::remove_file(path).unwrap();
        }
    }
}
