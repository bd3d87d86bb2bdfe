//! Rate-limit headers: balances in OpenAI's, Anthropic's and the IETF's form.
//!
//! Floor 4. Invariant: what is shown as remaining is never below 0, and every value is printable ASCII.

use std::fmt::Write;
use std::time::Duration;

use crate::refusal::Balance;
use crate::respond::Headers;
use crate::time::{SECOND, show_instant};
use crate::units::Meter;

const REQUESTS: &[Meter] = &[Meter::Requests];
const TOKENS: &[Meter] = &[Meter::Total, Meter::Input, Meter::Output];
const INPUT: &[Meter] = &[Meter::Input];
const OUTPUT: &[Meter] = &[Meter::Output];

/// The most items in `RateLimit` and `RateLimit-Policy`; the tightest are kept.
pub const MAX_ITEMS: usize = 16;

/// The largest integer of a structured field (RFC 9651: 15 digits).
const MAX_INTEGER: u64 = 999_999_999_999_999;

/// The longest text in a header value, in bytes of the value.
const MAX_TEXT: usize = 256;

/// What an item of `RateLimit` or `RateLimit-Policy` mostly fits in, in bytes.
const ITEM: usize = 80;

/// `x-ratelimit-{limit,remaining,reset}-{requests,tokens}`: of each kind the balance with the least remaining.
///
/// Tokens are total, input and output tokens. A reset is a duration until the limit is full again. A kind without a
/// limit has no headers; money and gauges are not shown.
pub fn openai(balances: &[Balance]) -> Headers {
    let mut headers = Headers::new();
    for (meters, limit, remaining, reset) in [
        (REQUESTS, "x-ratelimit-limit-requests", "x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"),
        (TOKENS, "x-ratelimit-limit-tokens", "x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"),
    ] {
        let Some(balance) = tightest(balances, meters) else { continue };
        headers.push((limit, balance.hard.to_string()));
        headers.push((remaining, remains(balance).to_string()));
        if let Some(time) = balance.resets_in {
            headers.push((reset, duration(time)));
        }
    }
    headers
}

/// `anthropic-ratelimit-{requests,tokens,input-tokens,output-tokens}-{limit,remaining,reset}`: of each kind the balance
/// with the least remaining.
///
/// `tokens` is the tightest of total, input and output. A reset is an RFC 3339 instant, rounded up to the second, at
/// which the limit is full again; `now_wall` is the present in nanoseconds of Unix time.
pub fn anthropic(balances: &[Balance], now_wall: u64) -> Headers {
    let mut headers = Headers::new();
    for (meters, limit, remaining, reset) in [
        (
            REQUESTS,
            "anthropic-ratelimit-requests-limit",
            "anthropic-ratelimit-requests-remaining",
            "anthropic-ratelimit-requests-reset",
        ),
        (
            TOKENS,
            "anthropic-ratelimit-tokens-limit",
            "anthropic-ratelimit-tokens-remaining",
            "anthropic-ratelimit-tokens-reset",
        ),
        (
            INPUT,
            "anthropic-ratelimit-input-tokens-limit",
            "anthropic-ratelimit-input-tokens-remaining",
            "anthropic-ratelimit-input-tokens-reset",
        ),
        (
            OUTPUT,
            "anthropic-ratelimit-output-tokens-limit",
            "anthropic-ratelimit-output-tokens-remaining",
            "anthropic-ratelimit-output-tokens-reset",
        ),
    ] {
        let Some(balance) = tightest(balances, meters) else { continue };
        headers.push((limit, balance.hard.to_string()));
        headers.push((remaining, remains(balance).to_string()));
        if let Some(time) = balance.resets_in {
            let end = now_wall.saturating_add(nanos(time));
            headers.push((reset, show_instant(end.div_ceil(SECOND).saturating_mul(SECOND))));
        }
    }
    headers
}

/// `ratelimit-policy` and `ratelimit`, structured fields of draft-ietf-httpapi-ratelimit-headers (after draft 08).
///
/// A policy is named `scope/limit`, for instance `"tenant:acme/rpm"`; bytes that a structured string can't hold are
/// percent-encoded. `t` is the time until some quota comes back: for a rate one unit, for a budget the end of its
/// period. The unit is `requests` where none is given; token units are not registered with IANA. Money is not shown:
/// the fields have no unit for it. At most [`MAX_ITEMS`], tightest first; no balance, no headers.
pub fn ietf(balances: &[Balance]) -> Headers {
    let mut shown: Vec<&Balance> = balances.iter().filter(|balance| balance.meter != Meter::Money).collect();
    // The share that remains, compared without division. A limit of nothing counts as one of 1, else it would equal
    // every other and the order would be none.
    let whole = |balance: &Balance| balance.hard.max(1) as u128;
    shown.sort_by(|a, b| (remains(a) as u128 * whole(b)).cmp(&(remains(b) as u128 * whole(a))));
    shown.truncate(MAX_ITEMS);
    if shown.is_empty() {
        return Headers::new();
    }
    // Every answer has them: they are written in place, and a name once for both.
    let (mut policies, mut states) =
        (String::with_capacity(shown.len() * ITEM), String::with_capacity(shown.len() * ITEM));
    for (nth, balance) in shown.into_iter().enumerate() {
        if nth > 0 {
            policies.push_str(", ");
            states.push_str(", ");
        }
        let start = policies.len();
        push_name(&mut policies, balance);
        states.push_str(&policies[start..]);
        push_policy(&mut policies, balance);
        push_state(&mut states, balance);
    }
    vec![("ratelimit-policy", policies), ("ratelimit", states)]
}

fn push_policy(list: &mut String, balance: &Balance) {
    push_number(list, ";q=", balance.hard.min(MAX_INTEGER));
    if let Some(unit) = unit(balance.meter) {
        list.push_str(";qu=\"");
        list.push_str(unit);
        list.push('"');
    }
    if let Some(window) = balance.window {
        push_number(list, ";w=", window.div_ceil(SECOND).clamp(1, MAX_INTEGER));
    }
}

fn push_state(list: &mut String, balance: &Balance) {
    push_number(list, ";r=", remains(balance).min(MAX_INTEGER));
    if let Some(time) = more_in(balance) {
        push_number(list, ";t=", nanos(time).div_ceil(SECOND).min(MAX_INTEGER));
    }
}

fn push_number(list: &mut String, name: &str, number: u64) {
    list.push_str(name);
    // Writing to a text does not fail.
    let _ = write!(list, "{number}");
}

/// The unit of a meter, `None` for the default, `requests`.
fn unit(meter: Meter) -> Option<&'static str> {
    match meter {
        Meter::Requests => None,
        Meter::Input => Some("input-tokens"),
        Meter::Output => Some("output-tokens"),
        Meter::Total => Some("tokens"),
        Meter::Money => Some("usd"),
        Meter::InFlight => Some("concurrent-requests"),
        Meter::Streams => Some("concurrent-streams"),
        Meter::Steps => Some("steps"),
        Meter::ToolCalls => Some("tool-calls"),
        Meter::RunTime => Some("seconds"),
    }
}

/// The time until more than now remains.
fn more_in(balance: &Balance) -> Option<Duration> {
    let full = balance.resets_in?;
    let (true, Some(window)) = (balance.rolling, balance.window) else { return Some(full) };
    // One unit comes back every `window / hard`; debt comes back first, unseen.
    let units = balance.used.saturating_sub(balance.hard) as u128 + 1;
    let time = (units * window as u128).div_ceil(balance.hard.max(1) as u128);
    Some(Duration::from_nanos(u64::try_from(time).unwrap_or(u64::MAX)).min(full))
}

/// The balance of these meters with the least remaining; of equal ones the one that is full again last.
fn tightest<'a>(balances: &'a [Balance], meters: &[Meter]) -> Option<&'a Balance> {
    let of_kind = balances.iter().filter(|balance| meters.contains(&balance.meter));
    of_kind.min_by_key(|balance| (remains(balance), std::cmp::Reverse(balance.resets_in)))
}

/// What is left, never more than the hard amount.
fn remains(balance: &Balance) -> u64 {
    balance.remaining.min(balance.hard)
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// A duration as Go writes it, rounded up to the millisecond: `0s`, `12ms`, `8.64s`, `6m0s`, `1h2m3s`.
fn duration(time: Duration) -> String {
    let millis = u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
    if millis > 0 && millis < 1000 {
        return format!("{millis}ms");
    }
    let (hours, minutes, seconds) = (millis / 3_600_000, millis / 60_000 % 60, millis / 1000 % 60);
    let mut text = match (hours, minutes) {
        (0, 0) => format!("{seconds}"),
        (0, _) => format!("{minutes}m{seconds}"),
        _ => format!("{hours}h{minutes}m{seconds}"),
    };
    if millis % 1000 != 0 {
        text.push_str(format!(".{:03}", millis % 1000).trim_end_matches('0'));
    }
    text.push('s');
    text
}

/// A limit's name as a structured string.
fn push_name(list: &mut String, Balance { scope, limit, .. }: &Balance) {
    list.push('"');
    if scope.len() + 1 + limit.len() <= MAX_TEXT && stands_as_it_is(scope) && stands_as_it_is(limit) {
        list.push_str(scope);
        list.push('/');
        list.push_str(limit);
    } else {
        let text = ascii(&format!("{scope}/{limit}"));
        list.push_str(&text.replace('\\', "\\\\").replace('"', "\\\""));
    }
    list.push('"');
}

/// Whether a text is printable ASCII without what a structured string escapes.
fn stands_as_it_is(text: &str) -> bool {
    let stands = |byte: u8| (b' '..=b'~').contains(&byte) & (byte != b'"') & (byte != b'\\');
    // Without an early end it is made into vector instructions.
    text.bytes().fold(true, |all, byte| all & stands(byte))
}

/// A text as the value of a header: printable ASCII as it is, every other byte percent-encoded, cut at 256 bytes.
pub(super) fn ascii(text: &str) -> String {
    let mut value = String::new();
    for byte in text.bytes() {
        let encoded = !(b' '..=b'~').contains(&byte);
        if value.len() + if encoded { 3 } else { 1 } > MAX_TEXT {
            break;
        }
        if encoded {
            value.push_str(&format!("%{byte:02X}"));
        } else {
            value.push(byte as char);
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    fn balance(scope: &str, limit: &str, meter: Meter, hard: u64, used: u64, resets_in: Duration) -> Balance {
        Balance {
            scope: scope.into(),
            limit: limit.into(),
            meter,
            hard,
            soft: None,
            used,
            remaining: hard.saturating_sub(used),
            resets_in: Some(resets_in),
            rolling: true,
            window: Some(60 * SECOND),
        }
    }

    #[test]
    fn durations_are_go_style() {
        for (nanos, want) in [
            (0, "0s"),
            (1, "1ms"),
            (12_000_000, "12ms"),
            (12_000_001, "13ms"),
            (999_000_000, "999ms"),
            (999_000_001, "1s"),
            (1_000_000_000, "1s"),
            (8_640_000_000, "8.64s"),
            (59_999_000_000, "59.999s"),
            (60_000_000_000, "1m0s"),
            (90_500_000_000, "1m30.5s"),
            (360_000_000_000, "6m0s"),
            (3_600_000_000_000, "1h0m0s"),
            (3_723_000_000_000, "1h2m3s"),
            (86_400_000_000_000, "24h0m0s"),
        ] {
            assert_eq!(duration(Duration::from_nanos(nanos)), want, "{nanos}");
        }
        assert_eq!(duration(Duration::MAX), "5124095576030h25m51.615s");
    }

    #[test]
    fn values_are_printable_ascii_whatever_the_names_hold() {
        for (text, want) in [
            ("req-1", "req-1"),
            ("a\r\nset-cookie: x=1", "a%0D%0Aset-cookie: x=1"),
            ("caf\u{e9}", "caf%C3%A9"),
            ("\0\u{7f}\t", "%00%7F%09"),
            ("\u{2028}", "%E2%80%A8"),
            ("", ""),
        ] {
            assert_eq!(ascii(text), want);
        }
        assert_eq!(ascii(&"x".repeat(10_000)).len(), MAX_TEXT);
        assert_eq!(ascii(&"\u{e9}".repeat(10_000)).len(), 255);
    }

    #[test]
    fn structured_strings_are_escaped_and_integers_clamped() {
        let hostile = balance(
            "tenant:a\"b\\c\r\nx",
            "r\u{f6}m",
            Meter::Total,
            crate::units::MAX_AMOUNT,
            0,
            Duration::from_secs(u64::MAX),
        );
        let headers = ietf(&[hostile]);
        let name = r#""tenant:a\"b\\c%0D%0Ax/r%C3%B6m""#;
        assert_eq!(
            headers,
            [
                ("ratelimit-policy", format!("{name};q=999999999999999;qu=\"tokens\";w=60")),
                ("ratelimit", format!("{name};r=999999999999999;t=1")),
            ]
        );
    }

    #[test]
    fn debt_shows_as_nothing_left_and_comes_back_first() {
        // 60 a minute with 5 of debt: the first unit to be seen comes after six seconds.
        let debt = balance("tenant:acme", "rpm", Meter::Requests, 60, 65, Duration::from_secs(65));
        let headers = ietf(std::slice::from_ref(&debt));
        assert_eq!(headers[1].1, "\"tenant:acme/rpm\";r=0;t=6");
        assert_eq!(openai(&[debt])[1], ("x-ratelimit-remaining-requests", "0".to_owned()));
    }

    #[test]
    fn the_tightest_balance_of_a_kind_is_shown() {
        let balances = [
            balance("tenant:acme", "tpm", Meter::Total, 1000, 100, Duration::from_secs(6)),
            balance("tenant:acme", "output_tpm", Meter::Output, 500, 300, Duration::from_secs(36)),
            balance("tenant:acme", "input_tpm", Meter::Input, 800, 0, Duration::ZERO),
        ];
        let headers = openai(&balances);
        assert_eq!(
            headers,
            [
                ("x-ratelimit-limit-tokens", "500".to_owned()),
                ("x-ratelimit-remaining-tokens", "200".to_owned()),
                ("x-ratelimit-reset-tokens", "36s".to_owned()),
            ]
        );
        assert!(openai(&[]).is_empty() && anthropic(&[], 0).is_empty() && ietf(&[]).is_empty());
    }

    #[test]
    fn the_list_is_bounded_and_keeps_the_tightest() {
        let balances: Vec<Balance> = (0..200)
            .map(|n| balance("tenant:acme", &format!("l{n}"), Meter::Requests, 1000, n, Duration::from_secs(1)))
            .collect();
        let headers = ietf(&balances);
        let nothing = balance("tenant:acme", "none", Meter::Requests, 0, 0, Duration::ZERO);
        assert!(ietf(&[balances[0].clone(), nothing])[1].1.starts_with("\"tenant:acme/none\";r=0"));
        for (name, value) in &headers {
            assert_eq!(value.split(", ").count(), MAX_ITEMS, "{name}");
            assert!(value.starts_with("\"tenant:acme/l199\";"), "{name}: {value}");
        }
    }

    #[test]
    fn a_reset_past_the_end_of_time_does_not_panic() {
        let balances = [balance("tenant:acme", "rpm", Meter::Requests, 1, 1, Duration::MAX)];
        assert_eq!(anthropic(&balances, u64::MAX).len(), 3);
    }
}
