//! Exact counts of `o200k_base` and `cl100k_base`, through tiktoken-rs.
//!
//! Floor 1. Invariant: only texts whose count takes nearly linear time are counted; special tokens in them are plain text.

use tiktoken_rs::{CoreBPE, cl100k_base_singleton, o200k_base_singleton};

use super::Tokenizer;

/// The longest run of blanks that is counted exactly: the splitting pattern looks ahead over them, and fails on about a
/// million (tiktoken-rs 0.12).
const BLANKS: usize = 1024;

/// The longest stretch that the splitting pattern may leave whole (letters, or punctuation) and that is counted exactly,
/// in bytes: merging costs more than linear time in it.
const STRETCH: usize = 64 * 1024;

/// Tokens of a text, or `None` if the tokenizer is none of these or the count could take long for the text's length.
///
/// The first call of a process for a vocabulary loads it (some tenths of a second).
pub(super) fn count(text: &str, tokenizer: Tokenizer) -> Option<u64> {
    let load: fn() -> &'static CoreBPE = match tokenizer {
        Tokenizer::O200kBase => o200k_base_singleton,
        Tokenizer::Cl100kBase => cl100k_base_singleton,
        Tokenizer::Heuristic => return None,
    };
    is_quick(text).then(|| load().count_ordinary(text) as u64)
}

/// Whether a text splits into short pieces.
fn is_quick(text: &str) -> bool {
    let (mut blanks, mut stretch, mut last) = (0, 0, Kind::Digit);
    for c in text.chars() {
        let kind = Kind::of(c);
        blanks = if kind == Kind::Blank { blanks + 1 } else { 0 };
        // Digits are split by threes; what is beyond ASCII may go on with anything.
        stretch =
            if kind == Kind::Beyond || (kind == last && kind != Kind::Digit) { stretch + c.len_utf8() } else { 0 };
        if blanks > BLANKS || stretch > STRETCH {
            return false;
        }
        last = if kind == Kind::Beyond { last } else { kind };
    }
    true
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Blank,
    Digit,
    Letter,
    Mark,
    Beyond,
}

impl Kind {
    fn of(c: char) -> Kind {
        match c {
            '0'..='9' => Kind::Digit,
            'a'..='z' | 'A'..='Z' => Kind::Letter,
            _ if c.is_whitespace() => Kind::Blank,
            _ if c.is_ascii() => Kind::Mark,
            _ => Kind::Beyond,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_quick_texts_are_counted() {
        for (text, want) in [
            ("hello world".to_owned(), Some(2)),
            (String::new(), Some(0)),
            ("<|endoftext|>".to_owned(), Some(7)),
            (" ".repeat(BLANKS), Some(8)),
            (" ".repeat(BLANKS + 1), None),
            ("\u{3000}\n".repeat(BLANKS), None),
            ("0".repeat(9_999), Some(3_333)),
            ("a".repeat(STRETCH + 2), None),
            ("=".repeat(STRETCH + 2), None),
            ("你".repeat(STRETCH), None),
            ("!🙂".repeat(STRETCH), None),
            ("A".repeat(STRETCH), Some(8_192)),
            ("a\u{301}".repeat(9_999), Some(19_998)),
        ] {
            assert_eq!(count(&text, Tokenizer::O200kBase), want, "{} bytes", text.len());
        }
    }
}
