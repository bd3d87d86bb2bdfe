//! Plain: windows of ASCII, priced as [`heuristic`](super::heuristic) prices their runs, but all bytes at once.
//!
//! Floor 1. Invariant: a window costs what its runs cost one by one, to the thousandth.
//!
//! Where a word ends cannot be foretold, so that a loop over runs spends most of its time on wrong guesses of the processor. Here
//! each byte adds what it costs behind the one before, from a table, and what depends on more than two bytes is
//! counted over the whole window by loops without a branch, which compilers turn into vector instructions.

use super::family::Weights;
use super::heuristic::{
    AFTER_DIGIT, BLANKS, CAMEL, CAPITALS, Class, INFIX, LONG, LONG_WORD, MARK, MARK_ALONE, MARK_RUN_ON, WORD,
    blank_again, class, mark_again,
};
use super::pairs;

/// Bytes of a window.
pub(super) const WINDOW: usize = 128;

/// How far back and ahead a condition looks.
const BACK: usize = 6;
const AHEAD: usize = 2;
const SEEN: usize = BACK + WINDOW + AHEAD;

/// What a window costs, in thousandths of a token, and how many bytes of it were priced.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Price {
    pub(super) bytes: usize,
    /// Pairs of letters, whose price depends on the family.
    pub(super) letters: u64,
    pub(super) expected: u64,
    pub(super) extra: u64,
}

/// The unit of the table: all that it holds is a multiple.
const UNIT: u64 = 10;

/// By a byte (high) and the one before (low): what it costs, but for what depends on others; the price of a pair of letters
/// in the lower half, all else in the upper one, both in units.
static STEP: [u32; 1 << 15] = {
    let mut table = [0; 1 << 15];
    let mut at = 0;
    while at < table.len() {
        let (before, byte) = ((at & 0xFF) as u8, (at >> 8) as u8);
        let (mut letters, mut rest) = (0, 0);
        match (class(before), class(byte)) {
            (Class::Beyond, _) => {}
            (Class::Letter, Class::Letter) if byte & 0x20 == 0 && before & 0x20 != 0 => rest = WORD,
            (Class::Letter, Class::Letter) => letters = pair(before, byte),
            (Class::Digit, Class::Letter) => rest = WORD + AFTER_DIGIT,
            (_, Class::Letter) => rest = WORD,
            (Class::Mark, Class::Mark) => rest = mark_again(before, byte),
            (_, Class::Mark) => rest = MARK,
            (Class::Blank, Class::Blank) => rest = blank_again(before, byte),
            (_, Class::Control) => rest = 1000,
            _ => {}
        }
        assert!(letters % UNIT == 0 && rest % UNIT == 0);
        table[at] = (letters / UNIT + ((rest / UNIT) << 16)) as u32;
        at += 1;
    }
    table
};

/// A letter behind another one of its word.
const fn pair(before: u8, letter: u8) -> u64 {
    pairs::letters(before, letter) + if letter & 0x20 == 0 { CAPITALS } else { 0 }
}

/// The priced bytes of a window by class, `YES` or `NO` each; what lies around them is of no class, but for the byte
/// before.
struct Classes {
    letter: [u8; SEEN],
    upper: [u8; SEEN],
    digit: [u8; SEEN],
    space: [u8; SEEN],
    blank: [u8; SEEN],
    mark: [u8; SEEN],
    /// Letters and digits, those behind the priced bytes too.
    solid: [u8; SEEN],
    /// What a single blank before it does not belong to, behind the priced bytes too.
    apart: [u8; SEEN],
}

/// A window, the byte before it and the one behind it.
pub(super) type Bytes = [u8; 1 + WINDOW + 1];

const YES: u8 = 0xFF;
const NO: u8 = 0;

/// From `WINDOW - n` on: `YES` for the byte before and the first `n`, `NO` for the rest.
static OWN: [u8; 2 * (1 + WINDOW) + 1] = {
    let mut own = [NO; 2 * (1 + WINDOW) + 1];
    let mut at = 0;
    while at <= WINDOW {
        own[at] = YES;
        at += 1;
    }
    own
};

/// `YES` or `NO`, without a branch.
fn flag(is: bool) -> u8 {
    0u8.wrapping_sub(is as u8)
}

/// Prices the runs that end within a window, the byte before which is of ASCII and of another class than its first one.
/// So many of its bytes are of ASCII; the next one is not, unless they are all.
pub(super) fn price(bytes: &Bytes, plain: usize, weights: &Weights) -> Price {
    let cut = cut(bytes, plain);
    if cut == 0 {
        return Price::default();
    }
    let classes = Classes::of(bytes, cut);
    let Classes { letter, upper, space, blank, mark, solid, apart, .. } = &classes;
    // Where a word starts behind a small letter, and where one goes on.
    let (mut camel, mut on) = ([NO; SEEN], [NO; SEEN]);
    for at in BACK..BACK + WINDOW {
        let starts = upper[at] & !upper[at - 1];
        let behind = letter[at] & letter[at - 1];
        camel[at] = behind & starts;
        on[at] = behind & !starts;
    }
    let [mut alone, mut runs, mut singles, mut infix, mut run_on, mut shorts] = [0u8; 6];
    for at in BACK..BACK + WINDOW {
        let single = space[at] & !blank[at - 1] & !blank[at + 1];
        let four = mark[at] & mark[at - 1] & mark[at - 2] & mark[at - 3];
        let other = flag(bytes[at - BACK + 1] != bytes[at - BACK]);
        let short = camel[at] & !(on[at + 1] & on[at + 2]);
        alone = alone.wrapping_sub(mark[at] & blank[at - 1] & !mark[at + 1]);
        runs = runs.wrapping_sub(blank[at] & !blank[at - 1] & !single);
        singles = singles.wrapping_sub(single & apart[at + 1]);
        infix = infix.wrapping_sub(mark[at] & solid[at - 1] & solid[at + 1]);
        run_on = run_on.wrapping_sub(four & other);
        shorts = shorts.wrapping_sub(short);
    }
    let (letters, rest) = steps(bytes, cut);
    Price {
        bytes: cut,
        letters: letters + long_words(bytes, cut, &on),
        expected: rest
            + alone as u64 * (MARK_ALONE - MARK)
            + runs as u64 * BLANKS
            + singles as u64 * 1000
            + classes.digits(cut, weights.digits) * 1000,
        extra: infix as u64 * INFIX + run_on as u64 * MARK_RUN_ON + shorts as u64 * CAMEL,
    }
}

/// Where the last run begins that does not end within the plain bytes.
fn cut(bytes: &Bytes, plain: usize) -> usize {
    if plain < WINDOW {
        return plain;
    }
    let kind = |at: usize| class(bytes[at + 1]);
    let mut cut = WINDOW;
    while cut > 0 && kind(cut) == kind(cut - 1) {
        cut -= 1;
    }
    cut
}

/// The steps of the priced bytes: pairs of letters, and the rest.
fn steps(bytes: &Bytes, cut: usize) -> (u64, u64) {
    let step = |pair: u64| STEP[pair as usize & 0x7FFF];
    let (before, behind) = (&bytes[..cut], &bytes[1..=cut]);
    let ((words, rest), (next, rest_behind)) = (before.as_chunks::<8>(), behind.as_chunks::<8>());
    let mut sum = 0;
    // Pairs are cut out of words of eight, which takes less than to put them together.
    for (word, next) in words.iter().zip(next) {
        let (word, next) = (u64::from_le_bytes(*word), u64::from_le_bytes(*next));
        sum += step(word) + step(next) + step(word >> 16) + step(next >> 16);
        sum += step(word >> 32) + step(next >> 32) + step(word >> 48) + step(next >> 48);
    }
    for (before, byte) in rest.iter().zip(rest_behind) {
        sum += step(*before as u64 | (*byte as u64) << 8);
    }
    ((sum & 0xFFFF) as u64 * UNIT, (sum >> 16) as u64 * UNIT)
}

impl Classes {
    fn of(bytes: &Bytes, cut: usize) -> Classes {
        let none = [0; SEEN];
        let mut classes = Classes {
            letter: none,
            upper: none,
            digit: none,
            space: none,
            blank: none,
            mark: none,
            solid: none,
            apart: none,
        };
        let own: &Bytes = OWN[WINDOW - cut..].first_chunk().unwrap_or(&[NO; 1 + WINDOW + 1]);
        for (at, (&byte, own)) in bytes.iter().zip(own).enumerate() {
            let to = at + BACK - 1;
            let letter = flag((byte | 0x20).wrapping_sub(b'a') < 26);
            let digit = flag(byte.wrapping_sub(b'0') < 10);
            let space = flag(byte == b' ');
            let blank = space | flag(byte == b'\t') | flag(byte == b'\n') | flag(byte == b'\r');
            let printed = flag(byte.wrapping_sub(b'!') < 94);
            classes.letter[to] = letter & own;
            classes.upper[to] = letter & own & flag(byte & 0x20 == 0);
            classes.digit[to] = digit & own;
            classes.space[to] = space & own;
            classes.blank[to] = blank & own;
            classes.mark[to] = printed & own & !(letter | digit);
            classes.solid[to] = letter | digit;
            classes.apart[to] = digit | flag(byte < 0x80) & !(printed | blank);
        }
        classes
    }

    /// Tokens of the digits, which go by so many.
    fn digits(&self, cut: usize, by: u64) -> u64 {
        let digit = &self.digit;
        let [mut first, mut fourth, mut seventh, mut all] = [0u8; 4];
        for at in BACK..BACK + WINDOW {
            let four = digit[at] & digit[at - 1] & digit[at - 2] & digit[at - 3];
            first = first.wrapping_sub(digit[at] & !digit[at - 1]);
            fourth = fourth.wrapping_sub(four & !digit[at - 4]);
            seventh |= four & digit[at - 4] & digit[at - 5] & digit[at - 6];
            all = all.wrapping_sub(digit[at]);
        }
        if by == 1 {
            return all as u64;
        }
        if seventh == 0 {
            return first as u64 + fourth as u64;
        }
        let (mut groups, mut length) = (0, 0);
        for &digit in &digit[BACK..BACK + cut] {
            groups += (digit == YES && length % by == 0) as u64;
            length = if digit == YES { length + 1 } else { 0 };
        }
        groups
    }
}

/// What long words cost beyond their pairs, by where words go on.
fn long_words(bytes: &Bytes, cut: usize, on: &[u8; SEEN]) -> u64 {
    // Any `LONG` in a row hold four whole groups of four in a row.
    const { assert!(LONG >= 4 * 4 + 3) };
    let on = &on[BACK..BACK + WINDOW];
    let mut whole = [0u32; WINDOW / 4];
    for (whole, four) in whole.iter_mut().zip(on.as_chunks::<4>().0) {
        *whole = 0u32.wrapping_sub((u32::from_le_bytes(*four) == u32::MAX) as u32);
    }
    let mut any = 0;
    for at in 3..whole.len() {
        any |= whole[at] & whole[at - 1] & whole[at - 2] & whole[at - 3];
    }
    if any == 0 {
        return 0;
    }
    let (mut more, mut length) = (0, 0);
    for (step, on) in bytes[..cut + 1].windows(2).zip(on) {
        length = if *on == YES { length + 1 } else { 0 };
        if length >= LONG {
            more += LONG_WORD.saturating_sub(pair(step[0], step[1]));
        }
    }
    more
}

#[cfg(test)]
mod tests {
    use super::super::family::Family;
    use super::super::heuristic::Tally;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_window_costs_what_its_runs_do(text in "(([a-z]{1,9}|[A-Za-z]{1,30}|[0-9]{1,12}|[ -/]{1,5}|[\\x00-\\x7f]{0,9}|é|你)[ \n]?){0,120}") {
            for family in [Family::O200k, Family::Qwen] {
                let [mut windows, mut runs] = [Tally::default(); 2];
                windows.text(&text, family);
                runs.add(&text, family, usize::MAX);
                prop_assert_eq!(windows, runs);
            }
        }
    }
}
