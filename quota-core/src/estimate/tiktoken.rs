//! Exact counts of `o200k_base` and `cl100k_base`, with the vocabularies that tiktoken-rs carries.
//!
//! Floor 1. Invariant: a count is the tokenizer's own, takes nearly linear time on any text and never panics; special tokens
//! in it are plain text.
//!
//! The crate's own counting splits by a pattern that looks ahead, on a stack that a million blanks exhaust, and merges
//! long pieces in more than linear time. [`split`] and [`merge`] do the same without.

mod merge;
mod split;

use std::sync::OnceLock;

use tiktoken_rs::{CoreBPE, cl100k_base, o200k_base};

use self::merge::Vocabulary;
use self::split::{CL100K, O200K, Splitter};
use super::Tokenizer;

/// How texts are counted in one of the encodings.
struct Encoding {
    splitter: Splitter,
    vocabulary: Vocabulary,
}

/// Tokens of a text, or `None` if the tokenizer is none of these.
///
/// The first call of a process for a vocabulary loads it (some tenths of a second).
pub(super) fn count(text: &str, tokenizer: Tokenizer) -> Option<u64> {
    static LOADED: [OnceLock<Option<Encoding>>; 2] = [OnceLock::new(), OnceLock::new()];
    let encoding = match tokenizer {
        Tokenizer::O200kBase => LOADED[0].get_or_init(|| Encoding::load(o200k_base().ok()?, O200K)),
        Tokenizer::Cl100kBase => LOADED[1].get_or_init(|| Encoding::load(cl100k_base().ok()?, CL100K)),
        Tokenizer::Heuristic => return None,
    };
    encoding.as_ref()?.count(text)
}

impl Encoding {
    fn load(bpe: CoreBPE, pattern: &str) -> Option<Encoding> {
        let tokens = (0..).map_while(|rank| bpe.decode_bytes(&[rank]).ok());
        Some(Encoding { splitter: Splitter::new(pattern)?, vocabulary: Vocabulary::new(tokens) })
    }

    fn count(&self, text: &str) -> Option<u64> {
        let mut sum = 0;
        self.splitter.split(text, |piece| sum += self.vocabulary.count(piece.as_bytes()))?;
        Some(sum)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tiktoken_rs::{cl100k_base_singleton, o200k_base_singleton};

    use super::*;

    fn assert_exact(text: &str) {
        for (tokenizer, bpe) in
            [(Tokenizer::O200kBase, o200k_base_singleton()), (Tokenizer::Cl100kBase, cl100k_base_singleton())]
        {
            let shown: String = text.chars().take(80).collect();
            assert_eq!(count(text, tokenizer), Some(bpe.count_ordinary(text) as u64), "{tokenizer:?} {shown:?}");
        }
    }

    #[test]
    fn counts_are_those_of_the_crate() {
        for text in [
            "",
            "hello world",
            "<|endoftext|>",
            "I'LL say 'twas she'd've 'ſ",
            " \n\n  x\t\ty \r\n z\u{85} \u{3000}\u{3000}a  ",
            "\n  ",
            "  1234567 ٣٤٥٦ ¼½ ⅷ",
            "DžDŽdž ʰʰA ÀÉ e\u{301}E\u{301}\u{302}x",
            "你好，世界。 こんにちは 안녕하세요 ภาษาไทย हिन्दी",
            "👩\u{200d}👩\u{200d}👧 ///\r\n/// ::\n\n",
        ] {
            assert_exact(text);
            assert_exact(&text.repeat(50));
        }
        for length in [1, 2, 3, 31, 63, 64, 65, 127, 1000, 5000] {
            for piece in ["a", "A", "=", " ", "\n", "\u{301}", "你", "7", "abcab", "ſß"] {
                assert_exact(&piece.repeat(length));
            }
        }
    }

    #[test]
    fn hostile_texts_are_counted() {
        let spaces = " ".repeat(1_600_000);
        for tokenizer in [Tokenizer::O200kBase, Tokenizer::Cl100kBase] {
            assert!(count(&spaces, tokenizer) >= Some(12_500));
        }
        for (piece, times, want) in [("a", 100_000, 12_500), ("7", 99_999, 33_333)] {
            assert_eq!(count(&piece.repeat(times), Tokenizer::O200kBase), Some(want), "{piece}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_counted_as_by_the_crate(text in any::<String>()) {
            assert_exact(&text);
        }

        #[test]
        fn words_and_blanks_are_counted_as_by_the_crate(
            text in "([a-zA-Z']{1,40}|[ \\t\\r\\n\u{85}\u{a0}]{1,4}|[0-9]{1,5}|[!-/]{1,4}|[а-яА-Я]{1,9}|\\PC{1,4}|你|e\u{301}){0,60}"
        ) {
            assert_exact(&text);
        }
    }
}
