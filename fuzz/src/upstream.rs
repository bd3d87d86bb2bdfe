//! What an upstream answers, of any bytes: lines of headers, and an error's body after the first empty line. The first
//! eight bytes are the time, the next two the status.

use std::time::Duration;

use quota_core::time::Now;
use quota_core::usage::upstream::{UpstreamError, UpstreamLimits, wait};

/// Reads headers, waits and an error.
pub fn run(bytes: &[u8]) {
    let Some((wall, rest)) = bytes.split_first_chunk() else { return };
    let Some((status, rest)) = rest.split_first_chunk() else { return };
    let (now, status) = (Now::at(u64::from_le_bytes(*wall)), u16::from_le_bytes(*status));
    let text = String::from_utf8_lossy(rest);
    let (head, body) = text.split_once("\n\n").unwrap_or((&text, ""));
    let headers: Vec<(&str, &str)> = head.lines().filter_map(|line| line.split_once(':')).collect();

    let told = UpstreamLimits::read(headers.iter().copied(), now);
    let shouted: Vec<String> = headers.iter().map(|(name, _)| name.to_ascii_uppercase()).collect();
    let values = headers.iter().map(|(_, value)| *value);
    let again = UpstreamLimits::read(shouted.iter().map(|name| &**name).zip(values.clone()), now);
    assert_eq!(told, again, "names are taken in any case");
    for value in values {
        // An instant is no later than the time can be told, a span is what is written.
        let waits = wait(value, now);
        assert!(waits.is_none_or(|time| time <= Duration::from_nanos(u64::MAX)), "{waits:?}");
        assert_eq!(waits, wait(&format!(" {value}\t"), now), "blanks around it");
    }

    let body = serde_json::from_str(body).ok();
    let error = UpstreamError::read(status, body.as_ref(), now);
    assert!(error.code.is_none_or(|code| !code.is_empty() && code.len() <= 64));
}
