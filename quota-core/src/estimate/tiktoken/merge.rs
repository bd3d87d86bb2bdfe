//! Merges the bytes of a piece into tokens: of all pairs the one of the lowest rank first, and of equal ones the first.
//!
//! Floor 1. Invariant: a piece of `n` bytes takes `O(n log n)`.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

/// The longest piece in which the next pair is looked for from end to end; a heap takes longer to set up.
const SHORT: usize = 64;

/// No pair of the vocabulary.
const NONE: u32 = u32::MAX;

/// Tokens by their bytes.
pub(super) struct Vocabulary {
    /// Of up to [`WORD`] bytes, by these bytes as numbers: nothing is looked up elsewhere to compare them.
    words: HashMap<[u64; 2], u32, ahash::RandomState>,
    /// Of more bytes.
    longer: HashMap<Vec<u8>, u32, ahash::RandomState>,
    /// Of two bytes, by both: every merge begins with those.
    pairs: Box<[u32]>,
    /// The bytes of the longest token.
    longest: usize,
}

/// The most bytes that stand in two numbers with their length.
const WORD: usize = 15;

impl Vocabulary {
    /// Of tokens in the order of their ranks. All single bytes have to be among them.
    pub(super) fn new(tokens: impl Iterator<Item = Vec<u8>>) -> Vocabulary {
        let (mut words, mut longer) = (HashMap::default(), HashMap::default());
        let mut longest = 0;
        for (token, rank) in tokens.zip(0..) {
            longest = longest.max(token.len());
            match word(&token) {
                Some(word) => words.insert(word, rank),
                None => longer.insert(token, rank),
            };
        }
        let pair = |pair: u16| words.get(&[pair as u64, 2 << 56]).copied().unwrap_or(NONE);
        let pairs = (0..=u16::MAX).map(pair).collect();
        Vocabulary { words, longer, pairs, longest }
    }

    fn rank(&self, bytes: &[u8]) -> u32 {
        if let [one, other] = *bytes {
            return self.pairs[u16::from_le_bytes([one, other]) as usize];
        }
        let found = match word(bytes) {
            Some(word) => self.words.get(&word),
            None if bytes.len() <= self.longest => self.longer.get(bytes),
            None => None,
        };
        found.copied().unwrap_or(NONE)
    }

    /// Tokens of a piece.
    pub(super) fn count(&self, piece: &[u8]) -> u64 {
        if piece.len() <= 1 || self.rank(piece) != NONE {
            return !piece.is_empty() as u64;
        }
        if piece.len() <= SHORT { self.merge_short(piece) } else { self.merge_long(piece) }
    }

    fn merge_short(&self, piece: &[u8]) -> u64 {
        // By where a token begins: where the next one and the one before do, and its rank with the next one. A token that was
        // merged into the one before has no rank.
        let length = piece.len();
        let mut next: [u8; SHORT + 1] = std::array::from_fn(|at| at as u8 + 1);
        let mut before: [u8; SHORT + 1] = std::array::from_fn(|at| (at as u8).saturating_sub(1));
        let mut all = [NONE; SHORT];
        let ranks = &mut all[..length];
        for (rank, pair) in ranks.iter_mut().zip(piece.windows(2)) {
            *rank = self.rank(pair);
        }
        let mut tokens = length as u64;
        while let Some(lowest) = ranks.iter().copied().min().filter(|rank| *rank != NONE) {
            let at = ranks.iter().position(|rank| *rank == lowest).unwrap_or(0);
            let gone = next[at] as usize;
            ranks[gone] = NONE;
            next[at] = next[gone];
            before[next[at] as usize] = at as u8;
            tokens -= 1;
            for start in [at, before[at] as usize] {
                let middle = next[start] as usize;
                let whole = piece.get(start..next[middle.min(SHORT)] as usize).filter(|_| middle < length);
                ranks[start] = whole.map_or(NONE, |whole| self.rank(whole));
            }
        }
        tokens
    }

    fn merge_long(&self, piece: &[u8]) -> u64 {
        // By where a token begins: where it ends, where the one before begins, and the rank of it with the next one. A token
        // that was merged into the one before has no rank.
        let length = piece.len();
        let mut ends: Vec<usize> = (1..=length).collect();
        let mut before: Vec<usize> = (0..length).map(|at| at.saturating_sub(1)).collect();
        let mut ranks: Vec<u32> = piece.windows(2).map(|pair| self.rank(pair)).chain([NONE]).collect();
        let pairs = ranks.iter().zip(0..).filter(|(rank, _)| **rank != NONE);
        let mut heap: BinaryHeap<Reverse<(u32, usize)>> = pairs.map(|(rank, at)| Reverse((*rank, at))).collect();
        let mut tokens = length as u64;
        while let Some(Reverse((rank, at))) = heap.pop() {
            // The pair may have changed since.
            if ranks[at] != rank {
                continue;
            }
            let gone = ends[at];
            ends[at] = ends[gone];
            ranks[gone] = NONE;
            tokens -= 1;
            if ends[at] < length {
                before[ends[at]] = at;
            }
            let neighbours = [Some(at), (at > 0).then(|| before[at])];
            for start in neighbours.into_iter().flatten() {
                let next = ends[start];
                ranks[start] = if next < length { self.rank(&piece[start..ends[next]]) } else { NONE };
                if ranks[start] != NONE {
                    heap.push(Reverse((ranks[start], start)));
                }
            }
        }
        tokens
    }
}

/// Up to [`WORD`] bytes as two numbers, the last byte of which is the length.
fn word(bytes: &[u8]) -> Option<[u64; 2]> {
    let length = bytes.len();
    let first = |word: &[u8; 8]| u64::from_le_bytes(*word);
    let (low, high) = match (bytes.first_chunk(), bytes.last_chunk()) {
        // What the last eight bytes share with the first ones is shifted out, in two steps as it may be all.
        (Some(head), Some(tail)) if length <= WORD => (first(head), first(tail) >> 8 >> (8 * (WORD - length))),
        (None, None) => match (bytes.first_chunk(), bytes.last_chunk()) {
            (Some(head), Some(tail)) => {
                let tail = u32::from_le_bytes(*tail) as u64 >> (8 * (8 - length));
                (u32::from_le_bytes(*head) as u64 | tail << 32, 0)
            }
            _ => (bytes.iter().rev().fold(0, |low, byte| low << 8 | *byte as u64), 0),
        },
        _ => return None,
    };
    Some([low, high | (length as u64) << 56])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_their_bytes() {
        for length in 0..=WORD {
            let bytes: Vec<u8> = (1..=length as u8).collect();
            let mut all = [0; 16];
            all[..length].copy_from_slice(&bytes);
            all[15] = length as u8;
            let (words, _) = all.as_chunks::<8>();
            assert_eq!(
                word(&bytes),
                Some([u64::from_le_bytes(words[0]), u64::from_le_bytes(words[1])]),
                "{length} bytes"
            );
        }
        assert_eq!(word(&[1; WORD + 1]), None);
    }
}
