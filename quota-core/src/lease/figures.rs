//! Figures: a usage as a lease keeps it.
//!
//! Floor 2. Invariant: what was kept is given back field by field.

use crate::units::{Amounts, Usd};
use crate::usage::Usage;

/// The counts that nearly every report has and no others, or a whole report: a lease is remembered for long after it has
/// ended, and a report takes seven times as much memory as these.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Figures {
    /// One request of tokens: of the input those that did not come from a cache and those that did, of the output those that
    /// are no thinking and those that are.
    Plain([u64; 4]),
    /// Any other.
    Whole(Box<Usage>),
}

impl Figures {
    pub(crate) fn of(usage: &Usage) -> Figures {
        // Taken apart whole, so that a new field can't be lost.
        match *usage {
            Usage {
                input_uncached: input,
                input_cache_read: cache_read,
                input_cache_write_5m: 0,
                input_cache_write_1h: 0,
                input_cache_write_other: 0,
                input_audio: 0,
                input_image: 0,
                input_video: 0,
                output_text: output,
                output_reasoning: reasoning,
                output_audio: 0,
                output_image: 0,
                requests: 1,
                audio_millis: 0,
                web_searches: 0,
                search_units: 0,
                pages: 0,
                images: 0,
                provider_cost: None,
                service_tier: None,
                input_missing: false,
                anomalies: 0,
            } => Figures::Plain([input, cache_read, output, reasoning]),
            _ => Figures::Whole(Box::new(usage.clone())),
        }
    }

    pub(crate) fn usage(&self) -> Usage {
        match self {
            &Figures::Plain([input, cache_read, output, reasoning]) => {
                let usage = Usage::tokens(input, output);
                Usage { input_cache_read: cache_read, output_reasoning: reasoning, ..usage }
            }
            Figures::Whole(usage) => (**usage).clone(),
        }
    }

    pub(crate) fn requests(&self) -> u64 {
        match self {
            Figures::Plain(_) => 1,
            Figures::Whole(usage) => usage.requests,
        }
    }

    pub(crate) fn input_total(&self) -> u64 {
        match self {
            Figures::Plain([input, cache_read, ..]) => input.saturating_add(*cache_read),
            Figures::Whole(usage) => usage.input_total(),
        }
    }

    pub(crate) fn output_total(&self) -> u64 {
        match self {
            Figures::Plain([.., output, reasoning]) => output.saturating_add(*reasoning),
            Figures::Whole(usage) => usage.output_total(),
        }
    }

    pub(crate) fn input_missing(&self) -> bool {
        matches!(self, Figures::Whole(usage) if usage.input_missing)
    }

    /// As [`Usage::amounts`].
    pub(crate) fn amounts(&self, cost: Usd) -> Amounts {
        Usage::amounts_of(self.requests(), self.input_total(), self.output_total(), cost)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::units::Pico;

    fn count() -> impl Strategy<Value = u64> {
        prop_oneof![4 => Just(0), 1 => any::<u64>()]
    }

    proptest! {
        #[test]
        fn what_was_kept_is_given_back(counts in prop::collection::vec(count(), 18), requests in 0u64..3, rare in 0u32..6) {
            let usage = Usage {
                input_uncached: counts[0],
                input_cache_read: counts[1],
                input_cache_write_5m: counts[2],
                input_cache_write_1h: counts[3],
                input_cache_write_other: counts[4],
                input_audio: counts[5],
                input_image: counts[6],
                input_video: counts[7],
                output_text: counts[8],
                output_reasoning: counts[9],
                output_audio: counts[10],
                output_image: counts[11],
                requests,
                audio_millis: counts[12],
                web_searches: counts[13],
                search_units: counts[14],
                pages: counts[15],
                images: counts[16],
                provider_cost: (rare == 1).then_some(Pico(0)),
                service_tier: (rare == 2).then(String::new),
                input_missing: rare == 3,
                anomalies: (rare == 4) as u32,
            };
            let figures = Figures::of(&usage);
            prop_assert_eq!(&figures.usage(), &usage);
            let (input, output) = (figures.input_total(), figures.output_total());
            prop_assert_eq!((input, output), (usage.input_total(), usage.output_total()));
            prop_assert_eq!((figures.requests(), figures.input_missing()), (usage.requests, usage.input_missing));
            prop_assert_eq!(figures.amounts(Usd::from_units(7)), usage.amounts(Usd::from_units(7)));
        }
    }

    #[test]
    fn an_ordinary_report_is_kept_as_four_counts() {
        let usage = Usage { input_cache_read: 3, output_reasoning: 4, ..Usage::tokens(1, 2) };
        let plain = Figures::Plain([1, 3, 2, 4]);
        assert_eq!(Figures::of(&usage), plain);
        assert!(matches!(Figures::of(&Usage::not_run()), Figures::Whole(_)));
    }
}
