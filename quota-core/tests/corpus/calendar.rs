//! Cases of kind `calendar`: the period of a unit in a zone that holds an instant.
//!
//! Its first and its last nanosecond belong to it; the nanoseconds beside them to the periods before and after.

use quota_core::time::{Calendar, Unit, parse_instant, show_instant};
use serde_json::Value;

pub fn run(case: &Value) -> Result<(), String> {
    let text = |key: &str| case[key].as_str().ok_or(format!("no text `{key}`"));
    let instant = |key: &str| parse_instant(text(key)?).map_err(|e| e.to_string());
    let count = |key: &str| case[key].as_u64().ok_or(format!("no count `{key}`"));
    let unit = match text("unit")? {
        "seconds" => Unit::Seconds(count("seconds")? as u32),
        "day" => Unit::Day,
        "week" => Unit::Week,
        "month" => Unit::Month { start_day: count("start_day")? as u8 },
        other => return Err(format!("no unit `{other}`")),
    };
    let calendar = Calendar::new(unit, text("zone")?).map_err(|e| e.to_string())?;
    let (holds, start, end) = (instant("holds")?, instant("start")?, instant("end")?);
    let found = calendar.period(holds);
    if (found.start, found.end) != (start, end) {
        return Err(format!("from {} to {}", show_instant(found.start), show_instant(found.end)));
    }
    let number = |at: u64| calendar.period(at).number;
    let numbers = [number(start - 1), number(start), number(end - 1), number(end)];
    let want = [found.number - 1, found.number, found.number, found.number + 1];
    if numbers != want {
        return Err(format!("numbered {numbers:?} at its edges, not {want:?}"));
    }
    if let Some(hours) = case["hours"].as_f64()
        && (end - start) as f64 / 3.6e12 != hours
    {
        return Err(format!("{} hours", (end - start) as f64 / 3.6e12));
    }
    Ok(())
}
