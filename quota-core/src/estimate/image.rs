//! Pictures, sound and documents: tokens from their size, never from the length of their encoding.
//!
//! Floor 1. Invariant: a size that is not known counts as the largest that the family's rule allows.
//!
//! Figures: OpenAI's, Anthropic's and Google's vision documentation; where it is silent on a model, litellm 1.110.

use base64::Engine as _;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use base64::engine::{DecodePaddingMode, general_purpose::STANDARD};

use super::family::{Family, bare, starts_with};
use crate::request::Image;

/// How a family prices a picture.
#[derive(Debug, Clone, Copy)]
enum Rule {
    /// A base, and so much per square of 512 pixels after fitting in 2048 × 2048 and 768 on the shorter side.
    Tiles { base: u64, tile: u64 },
    /// Patches of 32 pixels, at most so many, times hundredths.
    Patches { hundredths: u64, most: u64, side: u64 },
    /// Patches of 28 pixels or pixels / 750, whichever is more, after fitting into a side; at most so many tokens.
    Pixels { side: u64, most: u64 },
    /// 258 for a small picture or for each square of 768 pixels, fitted in 3072 × 3072.
    Squares,
    /// The same for every picture.
    Flat(u64),
}

/// Models by what their names start with; the longest start that fits decides.
const RULES: &[(&str, Rule)] = &[
    ("chatgpt-4o", Rule::Tiles { base: 85, tile: 170 }),
    ("gemini-3", Rule::Flat(1120)),
    ("gpt-4.1-mini", Rule::Patches { hundredths: 162, most: 6144, side: u64::MAX }),
    ("gpt-4.1-nano", Rule::Patches { hundredths: 246, most: 1536, side: u64::MAX }),
    ("gpt-4o-mini", Rule::Tiles { base: 2833, tile: 5667 }),
    ("gpt-5", Rule::Tiles { base: 70, tile: 140 }),
    ("gpt-5-mini", Rule::Patches { hundredths: 162, most: 1536, side: u64::MAX }),
    ("gpt-5-nano", Rule::Patches { hundredths: 246, most: 1536, side: u64::MAX }),
    ("gpt-5.2", Rule::Patches { hundredths: 120, most: 6144, side: 2048 }),
    ("gpt-5.3", Rule::Patches { hundredths: 120, most: 6144, side: 2048 }),
    ("gpt-5.4", Rule::Patches { hundredths: 120, most: 2500, side: 2048 }),
    ("gpt-5.5", Rule::Patches { hundredths: 120, most: 2500, side: 2048 }),
    ("gpt-5.6", Rule::Patches { hundredths: 120, most: 2500, side: 2048 }),
    ("o1", Rule::Tiles { base: 75, tile: 150 }),
    ("o3", Rule::Tiles { base: 75, tile: 150 }),
    ("o4-mini", Rule::Patches { hundredths: 172, most: 1536, side: u64::MAX }),
];

/// Tokens of one picture.
///
/// Low detail counts only where a rule has one (the base of a tile model); elsewhere the picture counts in full.
pub fn image_tokens(image: Image, model: &str) -> u64 {
    let size = image.size.filter(|(width, height)| *width > 0 && *height > 0);
    match rule(model) {
        Rule::Tiles { base, .. } if image.low_detail => base,
        Rule::Tiles { base, tile } => base + tile * size.map_or(8, tiles),
        Rule::Patches { hundredths, most, side } => {
            (size.map_or(most, |size| patches(size, most, side)) * hundredths).div_ceil(100)
        }
        Rule::Pixels { side, most } => size.map_or(most, |size| pixels(size, side).min(most)),
        Rule::Squares => 258 * size.map_or(16, squares),
        Rule::Flat(tokens) => tokens,
    }
}

fn rule(model: &str) -> Rule {
    let name = bare(model);
    let fits = RULES.iter().filter(|(start, _)| starts_with(name, start));
    if let Some((_, rule)) = fits.max_by_key(|(start, _)| start.len()) {
        return *rule;
    }
    match Family::of(model) {
        Family::O200k | Family::Cl100k => Rule::Tiles { base: 85, tile: 170 },
        Family::Gemini => Rule::Squares,
        Family::Claude if version(name) < (4, 7) => Rule::Pixels { side: 1568, most: 1600 },
        // No public rule: reckoned as the largest of the known ones.
        Family::Claude | Family::Llama | Family::Qwen | Family::DeepSeek => Rule::Pixels { side: 2576, most: 4784 },
    }
}

/// The first number of a name and the one right after it; dates are no versions.
fn version(name: &str) -> (u64, u64) {
    let mut numbers = name.split(['-', '.', '@', ':']).map(|part| part.parse().ok().filter(|n| *n < 100));
    let first = numbers.by_ref().flatten().next().unwrap_or(0);
    (first, numbers.next().flatten().unwrap_or(0))
}

/// Cuts a size down by the same factor on both sides so that neither is longer than `side`; at least one pixel.
fn fit((width, height): (u64, u64), side: u64) -> (u64, u64) {
    let long = width.max(height);
    if long <= side {
        return (width, height);
    }
    ((width * side).div_ceil(long), (height * side).div_ceil(long))
}

fn tiles((width, height): (u32, u32)) -> u64 {
    let (width, height) = fit((width as u64, height as u64), 2048);
    let short = width.min(height);
    let shrink = |side: u64| if short > 768 { (side * 768).div_ceil(short) } else { side };
    shrink(width).div_ceil(512) * shrink(height).div_ceil(512)
}

fn patches((width, height): (u32, u32), most: u64, side: u64) -> u64 {
    let (width, height) = fit((width as u64, height as u64), side);
    (width.div_ceil(32).saturating_mul(height.div_ceil(32))).min(most)
}

fn pixels((width, height): (u32, u32), side: u64) -> u64 {
    let (width, height) = fit((width as u64, height as u64), side);
    (width.div_ceil(28) * height.div_ceil(28)).max((width * height).div_ceil(750))
}

fn squares((width, height): (u32, u32)) -> u64 {
    if width <= 384 && height <= 384 {
        return 1;
    }
    let (width, height) = fit((width as u64, height as u64), 3072);
    width.div_ceil(768) * height.div_ceil(768)
}

/// Tokens of sound of so many encoded bytes, whose length in time is not known: a token per 1,600 bytes, at least 300.
pub(super) fn audio_tokens(bytes: u64) -> u64 {
    (bytes / 1600).max(300)
}

/// Tokens of a document of so many encoded bytes: a page per 32 KiB begun, at most 100 pages, each its text and its picture
/// at 3,000 tokens. The number of pages is a guess, not a bound: only the provider opens the file.
pub(super) fn document_tokens(bytes: u64) -> u64 {
    bytes.div_ceil(32 * 1024).clamp(1, 100) * 3000
}

/// Base64 as clients write it: padded or not; a cut piece may end anywhere.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// Width and height of a picture from the head of its base64 data or `data:` URL; `None` for a remote address, for data
/// that is no picture, and where no size stands in the first 48 KiB.
///
/// Cost: bounded; at most that head is decoded.
pub fn header_size(data: &str) -> Option<(u32, u32)> {
    let encoded = payload(data)?.as_bytes();
    // A PNG, GIF or WebP tells at once; a JPEG may have its camera's notes before its size.
    [2048, 65_536].into_iter().find_map(|head| {
        let head = &encoded[..encoded.len().min(head) / 4 * 4];
        let bytes = STANDARD.decode(head).or_else(|_| LENIENT.decode(head)).ok()?;
        let size = imagesize::blob_size(&bytes).ok()?;
        let size = (u32::try_from(size.width).ok()?, u32::try_from(size.height).ok()?);
        (size.0 > 0 && size.1 > 0).then_some(size)
    })
}

/// The base64 of a `data:` URL, or of bare data; `None` for another address.
fn payload(data: &str) -> Option<&str> {
    if !starts_with(data, "data:") {
        // The letters before an address's `://` are few.
        let head = &data.as_bytes()[..data.len().min(32)];
        return (!head.windows(3).any(|window| window == b"://")).then_some(data);
    }
    // The comma stands after a short list of parameters; not to look for it through megabytes.
    let head = data.as_bytes().iter().take(256).position(|byte| *byte == b',')?;
    data.get(head + 1..)
}

/// Bytes that base64 data or a `data:` URL stands for.
pub(super) fn encoded_bytes(data: &str) -> u64 {
    payload(data).map_or(0, |encoded| encoded.len() as u64 / 4 * 3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_prices() {
        for (model, size, low_detail, want) in [
            ("gpt-4o", Some((4096, 8192)), true, 85),
            ("gpt-4o", Some((1024, 1024)), false, 765),
            ("gpt-4o", Some((2048, 4096)), false, 1105),
            ("gpt-4o", Some((512, 512)), false, 255),
            ("gpt-4o", Some((1, 1)), false, 255),
            ("gpt-4o", None, false, 1445),
            ("gpt-4o", Some((0, 9)), false, 1445),
            ("gpt-4o", Some((u32::MAX, u32::MAX)), false, 765),
            ("gpt-4o", Some((u32::MAX, 1)), false, 765),
            ("gpt-4o-mini", Some((1024, 1024)), false, 2833 + 4 * 5667),
            ("openai/gpt-4o-2024-08-06", Some((1024, 1024)), false, 765),
            ("gpt-5", Some((1024, 1024)), false, 630),
            ("o3", Some((1024, 1024)), false, 675),
            ("gpt-5-mini", Some((1024, 1024)), false, 1659),
            ("gpt-5-mini", Some((4096, 4096)), false, 2489),
            ("o4-mini", None, false, 2642),
            ("gpt-5.2", Some((4096, 4096)), false, 4916),
            ("claude-3-5-sonnet-20241022", Some((1000, 1000)), false, 1334),
            ("claude-3-5-sonnet-20241022", Some((8000, 8000)), false, 1600),
            ("claude-opus-4-20250514", None, false, 1600),
            ("claude-opus-4-7", None, false, 4784),
            ("gemini-2.5-pro", Some((384, 384)), false, 258),
            ("gemini-2.5-pro", Some((385, 384)), false, 258),
            ("gemini-2.5-pro", Some((1536, 800)), false, 1032),
            ("gemini-3-pro", Some((5, 5)), false, 1120),
            ("house-model", None, false, 1445),
        ] {
            assert_eq!(image_tokens(Image { size, low_detail }, model), want, "{model} {size:?}");
        }
    }

    fn png(width: u32, height: u32) -> Vec<u8> {
        let mut bytes = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR".to_vec();
        bytes.extend(width.to_be_bytes());
        bytes.extend(height.to_be_bytes());
        bytes.extend([8, 6, 0, 0, 0, 0, 0, 0, 0]);
        bytes
    }

    fn jpeg(width: u16, height: u16, notes: usize) -> Vec<u8> {
        let mut bytes = vec![0xff, 0xd8];
        for _ in 0..notes {
            bytes.extend([0xff, 0xe1, 0x40, 0x00]);
            bytes.extend([0; 0x3ffe]);
        }
        bytes.extend([0xff, 0xc0, 0, 17, 8]);
        bytes.extend(height.to_be_bytes());
        bytes.extend(width.to_be_bytes());
        bytes.extend([3, 1, 0x22, 0, 2, 0x11, 1, 3, 0x11, 1]);
        bytes
    }

    #[test]
    fn the_head_tells_the_size() {
        let mut large = png(1024, 768);
        large.resize(300_000, 0);
        for (bytes, want) in [
            (png(3, 4), Some((3, 4))),
            (large, Some((1024, 768))),
            (png(0, 4), None),
            (jpeg(640, 480, 0), Some((640, 480))),
            (jpeg(640, 480, 2), Some((640, 480))),
            (jpeg(640, 480, 9), None),
            (vec![0; 100_000], None),
            (vec![], None),
        ] {
            let data = STANDARD.encode(&bytes);
            assert_eq!(header_size(&data), want, "{} bytes", bytes.len());
            assert_eq!(header_size(&format!("data:image/png;base64,{data}")), want, "{} bytes", bytes.len());
        }
        for data in ["https://example.org/a.png", "data:", "data:image/png;base64", "data:,é", "é", "%%%%"] {
            assert_eq!(header_size(data), None, "{data}");
        }
    }

    #[test]
    fn sound_and_documents_have_prices() {
        assert_eq!(audio_tokens(0), 300);
        assert_eq!(audio_tokens(1_600_000), 1000);
        assert_eq!(document_tokens(0), 3000);
        assert_eq!(document_tokens(100_000), 12_000);
        assert_eq!(document_tokens(u64::MAX), 300_000);
    }
}
