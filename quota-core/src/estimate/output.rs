//! The output ceiling: the most that a request can produce, as far as anything bounds it.
//!
//! Floor 1. Invariant: no product wraps, and what a request asks for never raises a ceiling.

/// Output of one choice where neither the request nor a ceiling bounds it, in tokens.
///
/// Some four pages of text: far above the median answer, and far below a model's longest.
pub const DEFAULT_OUTPUT: u64 = 4096;

/// The most output tokens that a request can use, over all its choices.
///
/// `asked` is the request's own bound of one choice, `per_choice` are the ceilings of one choice (the model's longest
/// output), `total` those of the whole request (the tenant's). Each choice is cut at the smallest of `per_choice`, then
/// multiplied by `choices` (0 counts as 1; saturating), then cut at the smallest of `total`. A request that states
/// nothing is reckoned at [`DEFAULT_OUTPUT`] per choice, or less where a ceiling is lower: never at the whole of a
/// large ceiling.
pub fn output_ceiling(asked: Option<u64>, choices: u64, per_choice: &[Option<u64>], total: &[Option<u64>]) -> u64 {
    let smallest = |ceilings: &[Option<u64>]| ceilings.iter().flatten().copied().min().unwrap_or(u64::MAX);
    let one = asked.unwrap_or(DEFAULT_OUTPUT).min(smallest(per_choice));
    one.saturating_mul(choices.max(1)).min(smallest(total))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ceilings() {
        for (asked, choices, per_choice, total, want) in [
            (Some(500), 1, Some(16_384), None, 500),
            (Some(500), 4, Some(16_384), None, 2_000),
            (Some(999_999_999), 1, Some(16_384), None, 16_384),
            (Some(999_999_999), 3, Some(16_384), None, 49_152),
            (Some(999_999_999), 3, Some(16_384), Some(20_000), 20_000),
            (Some(u64::MAX), u64::MAX, None, Some(7), 7),
            (Some(u64::MAX), u64::MAX, None, None, u64::MAX),
            (Some(0), 5, None, None, 0),
            (None, 1, None, None, DEFAULT_OUTPUT),
            (None, 2, Some(1_000), None, 2_000),
            (None, 2, None, Some(5_000), 5_000),
            (Some(10), 0, None, None, 10),
        ] {
            assert_eq!(output_ceiling(asked, choices, &[None, per_choice], &[total]), want, "{asked:?} x {choices}");
        }
    }
}
