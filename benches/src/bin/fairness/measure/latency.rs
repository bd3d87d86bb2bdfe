//! Percentiles.

/// The value below which this share of the values lies (nearest rank), in seconds where they are nanoseconds.
pub fn percentile(values: &mut [u64], share: f64) -> f64 {
    if values.is_empty() {
        return f64::NAN;
    }
    values.sort_unstable();
    let rank = (share * values.len() as f64).ceil().max(1.0) as usize;
    values[rank.min(values.len()) - 1] as f64 / 1e9
}
