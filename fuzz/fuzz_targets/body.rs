//! A request body of any JSON: the first byte chooses the dialect. What is read has an estimate.

#![no_main]

use libfuzzer_sys::fuzz_target;
use quota_core::estimate::{Estimator, Standard, Tokenizer, body};
use serde_json::Value;

fuzz_target!(|input: (u8, &[u8])| {
    let (dialect, json) = input;
    let Ok(value) = serde_json::from_slice::<Value>(json) else { return };
    let request = match dialect % 6 {
        0 => body::openai_chat(value),
        1 => body::openai_completions(value),
        2 => body::openai_embeddings(value),
        3 => body::openai_responses(value),
        4 => body::anthropic_messages(value),
        _ => body::gemini_generate_content("gemini-2.5-pro", value, dialect > 127),
    };
    match request {
        Ok(request) => {
            let estimate = Standard.estimate(&request, Tokenizer::Heuristic);
            assert!(estimate.expected <= estimate.reserve);
            assert!(request.choices > 0);
        }
        Err(invalid) => assert!(invalid.found.len() < 1024 && invalid.field.len() < 1024, "{invalid:?}"),
    }
});
