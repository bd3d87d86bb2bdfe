//! Policy: the document that people write, checked and compiled.
//!
//! Floor 1. Invariant: a policy either loads whole or reports everything that is wrong with it.
//!
//! `node` reads the text, `fields`, `limits` and `document` what it says, `compile`, `build` and `acts` make the plan of
//! it, `doubts` finds what is allowed and probably not meant.

mod acts;
mod build;
mod compile;
mod document;
mod document_price;
mod doubts;
mod error;
mod fields;
mod limits;
mod node;
pub mod plan;
pub mod price;
mod schema;

use std::path::Path;
use std::sync::Arc;

use sha2::{Digest, Sha256};

pub use self::build::MAX_COMPILED;
use self::document::Document;
pub use self::error::{ErrorKind, MAX_ERRORS, PolicyError, PolicyErrors};
use self::error::{Origin, Report};
pub use self::node::{MAX_BYTES, MAX_DEPTH, MAX_NODES};
use self::plan::Plan;

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
        Policy::load(text, "policy")
    }

    /// Loads a policy from a file of YAML or JSON.
    ///
    /// # Errors
    /// The file can't be read, or as [`from_yaml`](Policy::from_yaml).
    pub fn from_file(path: impl AsRef<Path>) -> Result<Policy, PolicyErrors> {
        let path = path.as_ref();
        let name = path.display().to_string();
        match read(path) {
            Ok(text) => Policy::load(&text, &name),
            Err(why) => {
                let mut report = Report::default();
                report.add(&Origin::default(), ErrorKind::Unreadable, why);
                Err(report.finish(&name))
            }
        }
    }

    fn load(text: &str, name: &str) -> Result<Policy, PolicyErrors> {
        let mut report = Report::default();
        let node = node::parse(text, &mut report);
        let document = node.and_then(|node| fields::read(&node, &mut report, document::document));
        let compiled = document.map(|document| (compile::compile(&document, &mut report), document));
        match compiled {
            Some((plan, document)) if report.is_empty() => Ok(Policy {
                warnings: doubts::warnings(&document, &plan).into(),
                document: Arc::new(document),
                plan: Arc::new(plan),
                digest: hex(&Sha256::digest(text.as_bytes())).into(),
            }),
            _ => Err(report.finish(name)),
        }
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

/// Reads a file of at most [`MAX_BYTES`].
fn read(path: &Path) -> Result<String, String> {
    use std::io::Read;
    let mut text = String::new();
    // One byte more than is allowed, so that a file that is too long is told as such.
    let file = std::fs::File::open(path).map_err(|why| why.to_string())?;
    file.take(MAX_BYTES as u64 + 1).read_to_string(&mut text).map_err(|why| why.to_string())?;
    Ok(text)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
