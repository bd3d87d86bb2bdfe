//! Classes: what has a price of its own, and what a missing price falls back to.
//!
//! Floor 1. Invariant: following [`PriceClass::falls_back_to`] ends.

use crate::usage::Usage;

/// Classes of a price.
pub(super) const CLASSES: usize = PriceClass::ALL.len();

/// What has a price of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum PriceClass {
    /// Input tokens: text, what tools inject, and whatever is not told apart.
    Input,
    /// Input tokens read from a cache.
    CacheRead,
    /// Input tokens written to a cache for five minutes, the default retention.
    CacheWrite5m,
    /// Input tokens written to a cache for an hour.
    CacheWrite1h,
    /// Input tokens written to a cache for another time.
    CacheWriteOther,
    /// Audio tokens of the input.
    InputAudio,
    /// Image tokens of the input.
    InputImage,
    /// Video tokens of the input.
    InputVideo,
    /// Output tokens.
    Output,
    /// Output tokens of thinking.
    Reasoning,
    /// Audio tokens of the output.
    OutputAudio,
    /// Image tokens of the output.
    OutputImage,
    /// The request itself.
    Request,
    /// One web search.
    WebSearch,
    /// One second of audio that goes in.
    AudioSecond,
    /// One second of audio that comes out.
    OutputAudioSecond,
}

/// What a number in a document is the price of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Per {
    /// A million units.
    Million,
    /// One unit.
    One,
}

impl PriceClass {
    /// Every class, in the order of cost lines.
    pub const ALL: [PriceClass; 16] = [
        PriceClass::Input,
        PriceClass::CacheRead,
        PriceClass::CacheWrite5m,
        PriceClass::CacheWrite1h,
        PriceClass::CacheWriteOther,
        PriceClass::InputAudio,
        PriceClass::InputImage,
        PriceClass::InputVideo,
        PriceClass::Output,
        PriceClass::Reasoning,
        PriceClass::OutputAudio,
        PriceClass::OutputImage,
        PriceClass::Request,
        PriceClass::WebSearch,
        PriceClass::AudioSecond,
        PriceClass::OutputAudioSecond,
    ];

    /// The name in documents and in cost lines.
    pub const fn key(self) -> &'static str {
        match self {
            PriceClass::Input => "input",
            PriceClass::CacheRead => "cached_input",
            PriceClass::CacheWrite5m => "cache_write",
            PriceClass::CacheWrite1h => "cache_write_1h",
            PriceClass::CacheWriteOther => "cache_write_other",
            PriceClass::InputAudio => "input_audio",
            PriceClass::InputImage => "input_image",
            PriceClass::InputVideo => "input_video",
            PriceClass::Output => "output",
            PriceClass::Reasoning => "reasoning",
            PriceClass::OutputAudio => "output_audio",
            PriceClass::OutputImage => "output_image",
            PriceClass::Request => "per_request",
            PriceClass::WebSearch => "web_search",
            PriceClass::AudioSecond => "audio_second",
            PriceClass::OutputAudioSecond => "output_audio_second",
        }
    }

    /// The class of a document's key, and what its number is per: a million for tokens, one for the rest. Also takes
    /// `cache_read` for `cached_input` and `cache_write_5m` for `cache_write`.
    pub fn from_key(key: &str) -> Option<(PriceClass, Per)> {
        let key = match key {
            "cache_read" => "cached_input",
            "cache_write_5m" => "cache_write",
            other => other,
        };
        let class = PriceClass::ALL.into_iter().find(|class| class.key() == key)?;
        Some((class, if class.is_token() { Per::Million } else { Per::One }))
    }

    /// The class whose price it has when it has none of its own.
    pub const fn falls_back_to(self) -> Option<PriceClass> {
        match self {
            PriceClass::CacheRead
            | PriceClass::CacheWrite5m
            | PriceClass::InputAudio
            | PriceClass::InputImage
            | PriceClass::InputVideo => Some(PriceClass::Input),
            PriceClass::CacheWrite1h | PriceClass::CacheWriteOther => Some(PriceClass::CacheWrite5m),
            PriceClass::Reasoning | PriceClass::OutputAudio | PriceClass::OutputImage => Some(PriceClass::Output),
            _ => None,
        }
    }

    /// Whether the units are tokens.
    pub const fn is_token(self) -> bool {
        (self as u8) < PriceClass::Request as u8
    }

    /// Whether the units are input tokens.
    pub(super) const fn is_input(self) -> bool {
        (self as u8) < PriceClass::Output as u8
    }

    /// Whether it is a price of audio by time, whose usage is counted in milliseconds.
    pub(super) const fn is_time(self) -> bool {
        matches!(self, PriceClass::AudioSecond | PriceClass::OutputAudioSecond)
    }

    /// Whether the price it falls back to is a guess. Thinking is output where no list says otherwise.
    pub(super) const fn guesses(self) -> bool {
        !matches!(self, PriceClass::Reasoning)
    }

    /// Units of this class in a usage: tokens, requests, searches, or milliseconds.
    pub(super) const fn units(self, usage: &Usage) -> u64 {
        match self {
            PriceClass::Input => usage.input_uncached,
            PriceClass::CacheRead => usage.input_cache_read,
            PriceClass::CacheWrite5m => usage.input_cache_write_5m,
            PriceClass::CacheWrite1h => usage.input_cache_write_1h,
            PriceClass::CacheWriteOther => usage.input_cache_write_other,
            PriceClass::InputAudio => usage.input_audio,
            PriceClass::InputImage => usage.input_image,
            PriceClass::InputVideo => usage.input_video,
            PriceClass::Output => usage.output_text,
            PriceClass::Reasoning => usage.output_reasoning,
            PriceClass::OutputAudio => usage.output_audio,
            PriceClass::OutputImage => usage.output_image,
            PriceClass::Request => usage.requests,
            PriceClass::WebSearch => usage.web_searches,
            PriceClass::AudioSecond | PriceClass::OutputAudioSecond => usage.audio_millis,
        }
    }
}

impl Per {
    /// Decimal places of a number per this, in picodollars for one.
    pub(super) const fn scale(self) -> u32 {
        match self {
            Per::Million => 6,
            Per::One => 12,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_back_and_fallbacks_end() {
        for (at, class) in PriceClass::ALL.into_iter().enumerate() {
            assert_eq!(class as usize, at);
            assert_eq!(PriceClass::from_key(class.key()).unwrap().0, class);
            let ends = std::iter::successors(Some(class), |class| class.falls_back_to()).count();
            assert!(ends <= 3, "{class:?}");
        }
        assert_eq!(PriceClass::from_key("cache_read"), Some((PriceClass::CacheRead, Per::Million)));
        assert_eq!(PriceClass::from_key("cache_write_5m"), Some((PriceClass::CacheWrite5m, Per::Million)));
        assert_eq!(PriceClass::from_key("per_request"), Some((PriceClass::Request, Per::One)));
        assert_eq!(PriceClass::from_key("inputs"), None);
    }
}
