//! The JSON Schema of a policy.
//!
//! Floor 1. Invariant: it is made by the functions that read a policy, run on their other side.

use serde_json::{Value, json};

use super::{document, fields};

/// The schema of the whole document.
pub(crate) fn schema() -> Value {
    let (top, mut definitions) = fields::describe(document::document);
    // Any record may be left empty, but not all of the document.
    definitions["policy"]["type"] = "object".into();
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "quota-core policy",
        "description": "All quotas, prices and queues of a gateway. Keys that start with `x-` are comments.",
        "$ref": top["$ref"],
        "$defs": definitions,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// The kept schema is the present one. `QUOTA_WRITE_SCHEMA=1` writes it anew.
    #[test]
    fn the_kept_schema_is_current() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("policy.schema.json");
        let present = serde_json::to_string_pretty(&schema()).unwrap() + "\n";
        if std::env::var_os("QUOTA_WRITE_SCHEMA").is_some() {
            std::fs::write(&path, &present).unwrap();
        }
        let kept = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(kept == present, "policy.schema.json is out of date; run this test with QUOTA_WRITE_SCHEMA=1");
    }

    #[test]
    fn every_reference_is_defined() {
        fn walk(value: &Value, schema: &Value) {
            match value {
                Value::Object(map) => {
                    if let Some(Value::String(target)) = map.get("$ref") {
                        let found = schema.pointer(target.trim_start_matches('#'));
                        assert!(found.is_some_and(Value::is_object), "{target}");
                    }
                    map.values().for_each(|value| walk(value, schema));
                }
                Value::Array(items) => items.iter().for_each(|value| walk(value, schema)),
                _ => {}
            }
        }
        let schema = schema();
        walk(&schema, &schema);
    }
}
