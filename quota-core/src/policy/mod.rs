//! Policy: the document that people write, checked and compiled.
//!
//! Floor 1. Invariant: a policy either loads whole or reports everything that is wrong with it.
//!
//! `node` reads the text (`json` one that has to be JSON), `fields`, `limits` and `document` what it says, `compile`, `build`, `keys`, `claims` and
//! `acts` make the plan of it, `doubts` finds what is allowed and probably not meant.

mod acts;
mod build;
pub mod claims;
mod compile;
mod document;
mod document_price;
mod doubts;
mod error;
mod fields;
mod json;
pub(crate) mod keys;
mod limits;
mod node;
pub mod plan;
pub mod price;
pub mod price_list;
mod schema;
mod scope;
mod tenants;

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use sha2::{Digest, Sha256};

pub use self::build::{MAX_COMPILED, MAX_OVERRIDES};
use self::document::Document;
pub use self::error::{ErrorKind, MAX_ERRORS, PolicyError, PolicyErrors};
use self::error::{Origin, Report};
pub use self::keys::{MAX_KEY_DEPTH, MAX_KEY_LIMITS};
pub use self::node::{MAX_BYTES, MAX_DEPTH, MAX_NODES};
use self::plan::{ModelPlan, Plan};
use self::price_list::{MAX_LIST_BYTES, PriceList};
pub use self::scope::{NoScope, ScopeOf};

/// The document of all quotas, prices and queues, checked and compiled. Immutable; cloning costs a few reference counts.
///
/// ```
/// use quota_core::policy::Policy;
///
/// let policy = Policy::from_yaml("tenants: {acme: {models: {gpt-large: {rpm: 120}}}}")?;
/// assert_eq!(policy.plan().tenants["acme"].models["gpt-large"].limits[0].hard, 120);
///
/// let errors = Policy::from_yaml("tenants: {acme: {rmp: 120}}").unwrap_err();
/// assert_eq!(errors.to_string(), "policy:1:18 tenants.acme.rmp: unknown key; did you mean `rpm`?");
/// # Ok::<(), quota_core::policy::PolicyErrors>(())
/// ```
#[derive(Debug, Clone)]
pub struct Policy {
    document: Arc<Document>,
    plan: Arc<Plan>,
    warnings: Arc<[PolicyError]>,
    digest: Arc<str>,
}

impl Policy {
    /// Loads a policy from YAML or JSON.
    ///
    /// Cost: linear in the text and in what it compiles into, bounded by [`MAX_BYTES`], [`MAX_NODES`], [`MAX_DEPTH`] and
    /// [`MAX_COMPILED`].
    ///
    /// # Errors
    /// Everything that is wrong with the document, in one report.
    pub fn from_yaml(text: &str) -> Result<Policy, PolicyErrors> {
        Policy::load(text, text, "policy")
    }

    /// Loads a policy from JSON, and from nothing else.
    ///
    /// # Errors
    /// The text is no JSON, or as [`from_yaml`](Policy::from_yaml).
    pub fn from_json(text: &str) -> Result<Policy, PolicyErrors> {
        let yaml = json::as_yaml(text).map_err(|error| PolicyErrors::one("policy", error))?;
        Policy::load(&yaml, text, "policy")
    }

    /// Loads a policy from a file of YAML or JSON, and the `price_list` that it names.
    ///
    /// # Errors
    /// A file can't be read, the price list is none, or as [`from_yaml`](Policy::from_yaml).
    pub fn from_file(path: impl AsRef<Path>) -> Result<Policy, PolicyErrors> {
        let path = path.as_ref();
        let name = path.display().to_string();
        let no = |error| PolicyErrors::one(&name, error);
        let text = read(path, MAX_BYTES).map_err(|why| no(Origin::default().error(ErrorKind::Unreadable, why)))?;
        let policy = Policy::load(&text, &text, &name)?;
        let Some(file) = &policy.document.price_list else { return Ok(policy) };
        match prices(&path.parent().unwrap_or(Path::new("")).join(&*file.value)) {
            Ok(list) => Ok(policy.with_prices(list)),
            Err((kind, why)) => Err(no(file.at.error(kind, format!("`{}`: {why}", file.value)))),
        }
    }

    /// Loads what is to be read, `written` being how it came.
    fn load(yaml: &str, written: &str, name: &str) -> Result<Policy, PolicyErrors> {
        let mut report = Report::default();
        let node = node::parse(yaml, &mut report);
        let document = node.and_then(|node| fields::read(&node, &mut report, document::document));
        let compiled = document.map(|document| (compile::compile(&document, &mut report), document));
        match compiled {
            Some((plan, document)) if report.is_empty() => Ok(Policy {
                warnings: doubts::warnings(&document, &plan, document.price_list.is_some()).into(),
                document: Arc::new(document),
                plan: Arc::new(plan),
                digest: hex(&Sha256::digest(written.as_bytes())).into(),
            }),
            _ => Err(report.finish(name)),
        }
    }

    /// The same policy with a list's price for each model that has none of its own, by its exact name; an alias has its
    /// upstream's. Where a tenant may use any model, those of the list that the document doesn't name are added.
    ///
    /// A second list fills what the first left open.
    pub fn with_prices(mut self, prices: PriceList) -> Policy {
        let plan = Arc::make_mut(&mut self.plan);
        for model in plan.models.values_mut().filter(|model| model.price.is_none()) {
            let name = model.upstream.as_ref().unwrap_or(&model.name);
            if let Some(listed) = prices.get(name) {
                Arc::make_mut(model).price = Some(listed.price.clone());
            }
        }
        if plan.tenants.values().any(|tenant| tenant.any_model.is_some()) {
            for (name, listed) in prices.models() {
                let model = || ModelPlan { price: Some(listed.price.clone()), ..ModelPlan::unknown(name.clone()) };
                plan.models.entry(name.clone()).or_insert_with(|| Arc::new(model()));
            }
        }
        self.warnings = doubts::warnings(&self.document, &self.plan, false).into();
        self
    }

    /// What the gate runs.
    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// What is allowed and probably not meant, at most [`MAX_ERRORS`] of it: a tenant that nothing limits, a money limit on
    /// a model without a price, a step that nothing calls for.
    pub fn warnings(&self) -> &[PolicyError] {
        &self.warnings
    }

    /// The SHA-256 of the document's text, in lower-case hex.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// The JSON Schema of the document, made from the functions that read it.
    pub fn schema() -> serde_json::Value {
        schema::schema()
    }
}

/// Reads a file of at most so many bytes, and one more, so that what is too long is told as such by who reads the text.
fn read(path: &Path, most: usize) -> Result<String, String> {
    let mut text = String::new();
    let file = File::open(path).map_err(|why| why.to_string())?;
    file.take(most as u64 + 1).read_to_string(&mut text).map_err(|why| why.to_string())?;
    Ok(text)
}

fn prices(path: &Path) -> Result<PriceList, (ErrorKind, String)> {
    let text = read(path, MAX_LIST_BYTES).map_err(|why| (ErrorKind::Unreadable, why))?;
    PriceList::litellm(&text).map_err(|why| (ErrorKind::BadValue, why.to_string()))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
