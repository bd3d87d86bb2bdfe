//! A request body of any JSON: the first byte chooses the dialect. What is read has an estimate, by every tokenizer.

use quota_core::estimate::{Estimator, Standard, Tokenizer, body};
use serde_json::Value;

/// Reads and estimates a body.
pub fn run(bytes: &[u8]) {
    let Some((dialect, json)) = bytes.split_first() else { return };
    let Ok(value) = serde_json::from_slice::<Value>(json) else { return };
    let request = match dialect % 6 {
        0 => body::openai_chat(value),
        1 => body::openai_completions(value),
        2 => body::openai_embeddings(value),
        3 => body::openai_responses(value),
        4 => body::anthropic_messages(value),
        _ => body::gemini_generate_content("gemini-2.5-pro", value, *dialect > 127),
    };
    match request {
        Ok(request) => {
            for tokenizer in [Tokenizer::Heuristic, Tokenizer::O200kBase, Tokenizer::Cl100kBase] {
                let estimate = Standard.estimate(&request, tokenizer);
                assert!(estimate.expected <= estimate.reserve, "{estimate:?} by {tokenizer:?}");
            }
            assert!(request.choices > 0);
        }
        Err(invalid) => assert!(invalid.found.len() < 1024 && invalid.field.len() < 1024, "{invalid:?}"),
    }
}
