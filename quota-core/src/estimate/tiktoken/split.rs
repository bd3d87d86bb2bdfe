//! Splits a text into the pieces that tokens don't go beyond.
//!
//! Floor 1. Invariant: the pieces put together are the text, and each byte is looked at a bounded number of times.
//!
//! The published patterns end a run of blanks before the blank of the word behind it by looking ahead. Here the run is
//! matched whole, and its last character is given back, so that an automaton without a stack is enough.

use regex_automata::meta::{Cache, Regex};
use regex_automata::util::pool::Pool;
use regex_automata::{Anchored, Input};

/// The pattern of `o200k_base`, without looking ahead.
pub(super) const O200K: &str = concat!(
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"|\p{N}{1,3}",
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]*",
    r"|\s*[\r\n]+",
    r"|\s+",
);

/// The pattern of `cl100k_base`, without looking ahead.
pub(super) const CL100K: &str = concat!(
    r"'(?i:[sdmt]|ll|ve|re)",
    r"|[^\r\n\p{L}\p{N}]?\p{L}+",
    r"|\p{N}{1,3}",
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*",
    r"|\s+$",
    r"|\s*[\r\n]",
    r"|\s+",
);

type NewCache = Box<dyn Fn() -> Cache + Send + Sync + std::panic::UnwindSafe + std::panic::RefUnwindSafe>;

/// A pattern, ready for use by many threads.
pub(super) struct Splitter {
    pattern: Regex,
    caches: Pool<Cache, NewCache>,
}

impl Splitter {
    /// `None` if the pattern is none.
    pub(super) fn new(pattern: &str) -> Option<Splitter> {
        let pattern = Regex::new(pattern).ok()?;
        let own = pattern.clone();
        Some(Splitter { pattern, caches: Pool::new(Box::new(move || own.create_cache())) })
    }

    /// Calls with each piece, in order; `None` if the pattern did not fit somewhere, which these two do everywhere.
    pub(super) fn split<'a>(&self, text: &'a str, mut take: impl FnMut(&'a str)) -> Option<()> {
        let mut cache = self.caches.get();
        let mut input = Input::new(text).anchored(Anchored::Yes);
        while input.start() < text.len() {
            let start = input.start();
            let end = self.pattern.search_half_with(&mut cache, &input)?.offset();
            let piece = text.get(start..end).filter(|piece| !piece.is_empty())?;
            let piece = if end < text.len() { without_last_blank(piece) } else { piece };
            take(piece);
            input.set_start(start + piece.len());
        }
        Some(())
    }
}

/// A run of blanks, but not of line breaks, leaves its last one to what follows, unless it is the only one.
fn without_last_blank(piece: &str) -> &str {
    let mut rest = piece.chars();
    match rest.next_back() {
        Some(last) if last.is_whitespace() && !matches!(last, '\r' | '\n') && !rest.as_str().is_empty() => {
            rest.as_str()
        }
        _ => piece,
    }
}
