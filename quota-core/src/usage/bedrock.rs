//! Amazon Bedrock's dialect: fresh input, cache reads and cache writes stand side by side.
//!
//! Floor 1. Invariant: the parts add up to `totalTokens`; a total that differs is an anomaly.

use serde_json::Value;

use super::Usage;
use super::report::{Counts, Unusable};
use super::wire::Wire;

/// The names by one of which the dialect is known.
pub(super) const NAMES: [&str; 2] = ["inputTokens", "outputTokens"];

/// `ConverseStream`, each event of the binary frames as a line of JSON.
pub(super) const WIRE: Wire = Wire { lines: true, visible: &[b"text", b"input"], closes, ..Wire::SSE };

/// Converse: `inputTokens`, `cacheReadInputTokens`, `cacheWriteInputTokens`, `outputTokens`.
///
/// What is written without a word about how long has the default retention of five minutes.
pub(super) fn converse(report: &Counts<'_>) -> Result<Usage, Unusable> {
    let mut usage = Usage { input_uncached: report.need("inputTokens")?, ..Usage::default() };
    usage.output_text = report.need("outputTokens")?;
    usage.input_cache_read = report.any(&["cacheReadInputTokens", "cacheReadInputTokenCount"])?;
    let written = report.any(&["cacheWriteInputTokens", "cacheWriteInputTokenCount"])?;
    let mut hour = 0;
    for item in report.list(&["cacheDetails"])? {
        if item.text("ttl") == Some("1h") {
            hour = item.any(&["inputTokens"])?;
        }
    }
    usage.input_cache_write_1h = hour.min(written);
    usage.input_cache_write_5m = written - usage.input_cache_write_1h;
    let odd = report.may("totalTokens")?.is_some_and(|total| total != usage.total());
    usage.anomalies = odd as u32 + (hour > written) as u32;
    Ok(usage)
}

/// Only the `metadata` event has usage, and it is the last.
fn closes(_: &Value) -> bool {
    true
}
