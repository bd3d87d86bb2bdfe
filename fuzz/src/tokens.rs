//! A text of any bytes: the first byte chooses the tokenizer and how often the text is repeated, the second the model.
//! It is counted, and reserved no more than a token a byte of what the model's normaliser can make of it, and no less than a
//! quarter of the exact count.

use quota_core::estimate::{InputEstimate, Tokenizer, count_text};

const TOKENIZERS: [Tokenizer; 3] = [Tokenizer::Heuristic, Tokenizer::O200kBase, Tokenizer::Cl100kBase];

/// A model of every family, with how many bytes its normaliser can make of one outside ASCII.
const MODELS: [(&str, u64); 8] = [
    ("gpt-4o", 1),
    ("gpt-4", 1),
    ("house-model", 1),
    ("claude-sonnet-4", 11),
    ("gemini-2.5-pro", 11),
    ("llama-3.3", 11),
    ("qwen3", 11),
    ("deepseek-v3", 11),
];

/// Counts a text.
pub fn run(bytes: &[u8]) {
    let [how, model, text @ ..] = bytes else { return };
    let tokenizer = TOKENIZERS[*how as usize % TOKENIZERS.len()];
    let model = MODELS[*model as usize % MODELS.len()];
    let times = if *how >= 192 { 64 } else { 1 };
    let text = String::from_utf8_lossy(text).repeat(times);
    let estimate = sound(&text, tokenizer, model);
    if estimate.exact {
        let of_the_same_family = MODELS[(tokenizer == Tokenizer::Cl100kBase) as usize];
        let guessed = sound(&text, Tokenizer::Heuristic, of_the_same_family);
        assert!(guessed.reserve * 4 >= estimate.expected, "{guessed:?} for {}", estimate.expected);
    }
}

fn sound(text: &str, tokenizer: Tokenizer, (model, growth): (&str, u64)) -> InputEstimate {
    let estimate = count_text(text, tokenizer, model);
    assert!(estimate.expected <= estimate.reserve, "{estimate:?}");
    let ascii = text.bytes().filter(u8::is_ascii).count() as u64;
    let most = ascii + (text.len() as u64 - ascii) * growth + 1;
    assert!(estimate.reserve <= most, "{estimate:?} for {} bytes", text.len());
    assert!(!estimate.exact || (estimate.expected == estimate.reserve && tokenizer != Tokenizer::Heuristic));
    assert_eq!(count_text(text, tokenizer, model), estimate, "the second time");
    estimate
}
