//! Comparing usages: whether an ending repeats the first one.
//!
//! Floor 1. Invariant: every field is compared; the first that differs is named.

use super::Usage;

impl Usage {
    /// The first field that differs, with its value here and there; `None` if all are equal.
    pub fn first_difference(&self, other: &Usage) -> Option<(&'static str, String, String)> {
        // Taken apart whole, so that a new field can't be left out.
        let Usage {
            input_uncached,
            input_cache_read,
            input_cache_write_5m,
            input_cache_write_1h,
            input_cache_write_other,
            input_audio,
            input_image,
            input_video,
            output_text,
            output_reasoning,
            output_audio,
            output_image,
            requests,
            audio_millis,
            web_searches,
            search_units,
            pages,
            images,
            provider_cost,
            service_tier,
            input_missing,
            anomalies: _, // How a report was read, not what it says.
        } = self;
        let counts = [
            ("input_uncached", *input_uncached, other.input_uncached),
            ("input_cache_read", *input_cache_read, other.input_cache_read),
            ("input_cache_write_5m", *input_cache_write_5m, other.input_cache_write_5m),
            ("input_cache_write_1h", *input_cache_write_1h, other.input_cache_write_1h),
            ("input_cache_write_other", *input_cache_write_other, other.input_cache_write_other),
            ("input_audio", *input_audio, other.input_audio),
            ("input_image", *input_image, other.input_image),
            ("input_video", *input_video, other.input_video),
            ("output_text", *output_text, other.output_text),
            ("output_reasoning", *output_reasoning, other.output_reasoning),
            ("output_audio", *output_audio, other.output_audio),
            ("output_image", *output_image, other.output_image),
            ("requests", *requests, other.requests),
            ("audio_millis", *audio_millis, other.audio_millis),
            ("web_searches", *web_searches, other.web_searches),
            ("search_units", *search_units, other.search_units),
            ("pages", *pages, other.pages),
            ("images", *images, other.images),
            ("input_missing", *input_missing as u64, other.input_missing as u64),
        ];
        let count = counts.into_iter().find(|(_, first, second)| first != second);
        let cost = || differ("provider_cost", provider_cost, &other.provider_cost);
        let tier = || differ("service_tier", service_tier, &other.service_tier);
        count.map(|(name, first, second)| (name, first.to_string(), second.to_string())).or_else(cost).or_else(tier)
    }
}

fn differ<T: PartialEq + ToString>(
    name: &'static str,
    first: &Option<T>,
    second: &Option<T>,
) -> Option<(&'static str, String, String)> {
    let show = |value: &Option<T>| value.as_ref().map_or_else(|| "none".into(), T::to_string);
    (first != second).then(|| (name, show(first), show(second)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Pico;

    #[test]
    fn names_the_first_field_that_differs() {
        let first = Usage::tokens(10, 5);
        assert_eq!(first.first_difference(&first.clone()), None);
        let other = Usage { output_text: 6, web_searches: 1, ..first.clone() };
        assert_eq!(first.first_difference(&other), Some(("output_text", "5".into(), "6".into())));
        let cost = Usage { provider_cost: Some(Pico(2_500_000_000)), ..first.clone() };
        assert_eq!(first.first_difference(&cost), Some(("provider_cost", "none".into(), "0.0025".into())));
        let tier = Usage { service_tier: Some("flex".into()), ..first.clone() };
        assert_eq!(first.first_difference(&tier), Some(("service_tier", "none".into(), "flex".into())));
    }
}
