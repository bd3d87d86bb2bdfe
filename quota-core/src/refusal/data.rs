//! Refusals and balances as data, to be answered by another process than the one that decided.
//!
//! Floor 2. Invariant: what is written is read again as the same; times are nanoseconds, money is units of 1e-8 USD.

use std::time::Duration;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The most characters of an unknown code that an error shows.
const SHOWN: usize = 64;

fn code_of<'de, T, D: Deserializer<'de>>(from: D, what: &str, find: fn(&str) -> Option<T>) -> Result<T, D::Error> {
    let code = String::deserialize(from)?;
    find(&code).ok_or_else(|| D::Error::custom(format!("no {what} `{}`", code.chars().take(SHOWN).collect::<String>())))
}

pub(super) mod reason {
    use super::*;
    use crate::reason::Reason;

    pub(crate) fn serialize<S: Serializer>(reason: &Reason, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(reason.code())
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Reason, D::Error> {
        code_of(from, "reason", Reason::from_code)
    }
}

pub(super) mod meter {
    use super::*;
    use crate::units::Meter;

    pub(crate) fn serialize<S: Serializer>(meter: &Meter, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(meter.name())
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Meter, D::Error> {
        code_of(from, "meter", Meter::from_name)
    }
}

/// Nanoseconds, or a word.
pub(super) mod wait {
    use super::*;
    use crate::meter::Wait;

    #[derive(Serialize, Deserialize)]
    #[serde(untagged, expecting = "a wait is nanoseconds, `unknown` or `never`")]
    enum Told {
        Nanos(u64),
        Word(Word),
    }

    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Word {
        Unknown,
        Never,
    }

    pub(crate) fn serialize<S: Serializer>(wait: &Wait, to: S) -> Result<S::Ok, S::Error> {
        let told = match wait {
            Wait::After(time) => Told::Nanos(nanos(*time)),
            Wait::Unknown => Told::Word(Word::Unknown),
            Wait::Never => Told::Word(Word::Never),
        };
        told.serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Wait, D::Error> {
        Ok(match Told::deserialize(from)? {
            Told::Nanos(nanos) => Wait::After(Duration::from_nanos(nanos)),
            Told::Word(Word::Unknown) => Wait::Unknown,
            Told::Word(Word::Never) => Wait::Never,
        })
    }
}

/// Nanoseconds, or nothing.
pub(super) mod time {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(time: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
        time.map(nanos).serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
        Ok(Option::<u64>::deserialize(from)?.map(Duration::from_nanos))
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::{Balance, Refusal};
    use crate::meter::Wait;
    use crate::reason::Reason;

    fn refusal(change: impl FnOnce(&mut Value)) -> Result<Refusal, String> {
        let mut value = json!({
            "reason": "budget_exceeded", "tenant": "acme", "model": "m", "wait": "unknown", "request_id": "r",
            "shortages": [{"scope": "tenant:acme", "limit": "daily_budget_usd", "meter": "usd", "hard": 5, "used": 4,
                           "asked": 2, "wait": 7, "shared": false}],
            "fits": {"max_output_tokens": 3, "models": ["small"]}, "detail": "x",
        });
        change(&mut value);
        serde_json::from_value(value).map_err(|error| error.to_string())
    }

    #[test]
    fn a_refusal_is_read_as_it_was_written() {
        let read = refusal(|_| ()).unwrap();
        assert_eq!((read.reason, read.wait), (Reason::BudgetExceeded, Wait::Unknown));
        assert_eq!(read.shortages[0].wait.millis(), Some(1));
        for wait in [json!("never"), json!("unknown"), json!(0), json!(u64::MAX)] {
            let read = refusal(|value| value["wait"] = wait.clone()).unwrap();
            let written = serde_json::to_value(&read).unwrap();
            assert_eq!(written["wait"], wait);
            assert_eq!(serde_json::from_value::<Refusal>(written).unwrap(), read);
        }
        let balance = json!({"scope": "tenant:acme", "limit": "rpm", "meter": "requests", "hard": 60, "soft": null, "used": 1,
                             "remaining": 59, "resets_in_ns": 5, "rolling": true, "window_ns": null});
        let read: Balance = serde_json::from_value(balance.clone()).unwrap();
        assert_eq!(serde_json::to_value(&read).unwrap(), balance);
    }

    #[test]
    fn what_is_no_refusal_says_why() {
        for (name, value, want) in [
            ("reason", json!("no_such"), "no reason `no_such`"),
            ("reason", json!("x".repeat(1000)), &*format!("no reason `{}`", "x".repeat(64))),
            ("wait", json!(-1), "a wait is nanoseconds, `unknown` or `never`"),
            ("wait", json!("soon"), "a wait is nanoseconds, `unknown` or `never`"),
            ("weight", json!(1), "unknown field `weight`, expected one of"),
            ("tenant", json!(5), "invalid type: integer `5`, expected a string"),
        ] {
            let error = refusal(|all| all[name] = value).unwrap_err();
            assert!(error.starts_with(want), "{error}");
        }
        let error = refusal(|value| value["shortages"][0]["meter"] = json!("cents")).unwrap_err();
        assert_eq!(error, "no meter `cents`");
        assert!(refusal(|value| *value = json!({})).unwrap_err().starts_with("missing field `reason`"));
    }
}
