//! Answers without their content: what is left is small, and has the usage.
//!
//! Floor 1. Invariant: no member is left out that any dialect has its usage in; what is skipped is not kept.

use std::fmt;

use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::{Map, Value};

/// The members of an answer that hold what was asked for.
const CONTENT: [&str; 6] = ["candidates", "choices", "content", "data", "embeddings", "output"];

/// The JSON object of an answer, without the members that hold its content: reading those takes most of the time, and of
/// embeddings some sixteen times their memory. `None` if it is no JSON object.
pub fn without_content(answer: &[u8]) -> Option<Value> {
    let mut json = serde_json::Deserializer::from_slice(answer);
    let members = json.deserialize_map(Members).ok()?;
    json.end().ok().map(|()| Value::Object(members))
}

struct Members;

impl<'de> Visitor<'de> for Members {
    type Value = Map<String, Value>;

    fn expecting(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        text.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut all: A) -> Result<Map<String, Value>, A::Error> {
        let mut members = Map::new();
        while let Some(name) = all.next_key::<String>()? {
            if CONTENT.contains(&&*name) {
                all.next_value::<IgnoredAny>()?;
            } else {
                members.insert(name, all.next_value()?);
            }
        }
        Ok(members)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn content_is_left_out_and_the_rest_is_as_it_was() {
        let answer =
            br#" {"id":"a","choices":[{"message":{"content":"\ud83d\ude00"}}],"usage":{"prompt_tokens":1,"x":[2.5]}} "#;
        assert_eq!(without_content(answer), Some(json!({ "id": "a", "usage": { "prompt_tokens": 1, "x": [2.5] } })));
        let embeddings = br#"{"data":[{"embedding":[0.1,-2e-3]}],"usage":{"prompt_tokens":1}}"#;
        assert_eq!(without_content(embeddings), Some(json!({ "usage": { "prompt_tokens": 1 } })));
        // Of the same name twice the last one counts, as with any other reader.
        assert_eq!(without_content(br#"{"a":1,"a":2}"#), Some(json!({ "a": 2 })));
    }

    #[test]
    fn what_is_no_object_is_none() {
        for answer in ["", "[]", "7", "{", r#"{"data":[}"#, r#"{"a":1} x"#, r#"{"data":1,}"#] {
            assert_eq!(without_content(answer.as_bytes()), None, "{answer}");
        }
    }
}
