//! Kind `tokens`: counts of texts per encoding.

use quota_core::estimate::{Tokenizer, count_text};
use serde_json::Value;

pub fn run(case: &Value) -> Result<(), String> {
    let text = match case["text"].as_str() {
        Some(text) => text.to_owned(),
        None => case["repeat"].as_str().ok_or("no text")?.repeat(case["times"].as_u64().ok_or("no times")? as usize),
    };
    for (encoding, tokenizer, model) in
        [("o200k_base", Tokenizer::O200kBase, "gpt-4o"), ("cl100k_base", Tokenizer::Cl100kBase, "gpt-4")]
    {
        let want = case["counts"][encoding].as_u64().ok_or("no count")?;
        let counted = count_text(&text, tokenizer, model);
        if counted.exact && (counted.expected != want || counted.reserve != want) {
            return Err(format!("{encoding}: {counted:?}, want {want}"));
        }
        for estimate in [counted, count_text(&text, Tokenizer::Heuristic, model)] {
            if estimate.reserve * 100 < want * 95 || estimate.reserve < estimate.expected {
                return Err(format!("{encoding}: {estimate:?}, want at least 0.95 of {want}"));
            }
        }
    }
    Ok(())
}
