//! Amounts and money: integers with stated bounds.
//!
//! Floor 0. Invariant: an amount never exceeds [`MAX_AMOUNT`], so it is exact in a Lua number, in a JavaScript number,
//! and packed in a word beside a period number.

use std::fmt;
use std::str::FromStr;

/// The largest amount of any meter: 2^52 − 1.
///
/// In money (units of 1e-8 USD) that is some 45 million dollars.
pub const MAX_AMOUNT: u64 = (1 << 52) - 1;

/// What is counted.
///
/// The discriminants are stable: they index [`Amounts`] and are stored in journals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Meter {
    /// Requests.
    Requests = 0,
    /// Input tokens, cached ones included.
    Input = 1,
    /// Output tokens, reasoning included.
    Output = 2,
    /// Input plus output tokens.
    Total = 3,
    /// Money in units of 1e-8 USD.
    Money = 4,
    /// Requests in flight.
    InFlight = 5,
    /// Open streams.
    Streams = 6,
    /// Steps of an agent's run: calls of a model.
    Steps = 7,
    /// Calls of tools in an agent's run.
    ToolCalls = 8,
    /// Seconds since an agent's run began.
    RunTime = 9,
}

impl Meter {
    /// All meters, in the order of their discriminants.
    pub const ALL: [Meter; 10] = [
        Meter::Requests,
        Meter::Input,
        Meter::Output,
        Meter::Total,
        Meter::Money,
        Meter::InFlight,
        Meter::Streams,
        Meter::Steps,
        Meter::ToolCalls,
        Meter::RunTime,
    ];

    /// The name in documents, journals and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Meter::Requests => "requests",
            Meter::Input => "input_tokens",
            Meter::Output => "output_tokens",
            Meter::Total => "tokens",
            Meter::Money => "usd",
            Meter::InFlight => "in_flight",
            Meter::Streams => "streams",
            Meter::Steps => "steps",
            Meter::ToolCalls => "tool_calls",
            Meter::RunTime => "run_seconds",
        }
    }

    /// The meter of a name.
    pub fn from_name(name: &str) -> Option<Meter> {
        Meter::ALL.into_iter().find(|meter| meter.name() == name)
    }

    /// Whether nothing of it stays charged when a lease ends: a slot is given back whole, and the clock of a run is only
    /// looked at.
    pub const fn is_held(self) -> bool {
        matches!(self, Meter::InFlight | Meter::Streams | Meter::RunTime)
    }

    /// Whether only runs of agents are limited by it.
    pub const fn is_of_runs(self) -> bool {
        matches!(self, Meter::Steps | Meter::ToolCalls | Meter::RunTime)
    }

    /// The amount as a person reads it: dollars for money, a count for the rest.
    pub fn show(self, amount: u64) -> String {
        match self {
            Meter::Money => Usd::from_units(amount).to_string(),
            _ => amount.to_string(),
        }
    }
}

/// One amount per meter, for instance what a request used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Amounts([u64; Meter::ALL.len()]);

impl Amounts {
    /// The amount of one meter.
    pub const fn get(&self, meter: Meter) -> u64 {
        self.0[meter as usize]
    }

    /// Sets the amount of one meter, cut at [`MAX_AMOUNT`].
    pub fn set(&mut self, meter: Meter, amount: u64) {
        self.0[meter as usize] = amount.min(MAX_AMOUNT);
    }

    /// The same without gauges, which are held and never charged.
    pub fn counted(mut self) -> Amounts {
        for meter in Meter::ALL.into_iter().filter(|meter| meter.is_held()) {
            self.set(meter, 0);
        }
        self
    }

    /// The same with one amount replaced.
    pub fn with(mut self, meter: Meter, amount: u64) -> Amounts {
        self.set(meter, amount);
        self
    }
}

/// Money in units of 1e-8 USD; at most [`MAX_AMOUNT`] units.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Usd(u64);

impl Usd {
    /// No money.
    pub const ZERO: Usd = Usd(0);
    /// Units in a dollar.
    pub const UNITS: u64 = 100_000_000;

    /// Money from units of 1e-8 USD, cut at [`MAX_AMOUNT`].
    pub const fn from_units(units: u64) -> Usd {
        Usd(if units > MAX_AMOUNT { MAX_AMOUNT } else { units })
    }

    /// Units of 1e-8 USD.
    pub const fn units(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Usd {
    /// Plain decimal without trailing zeros: `0.04`, `12`, `0.00000001`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        decimal(f, self.0 as u128, 8)
    }
}

impl fmt::Debug for Usd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "${self}")
    }
}

impl FromStr for Usd {
    type Err = NotDecimal;

    /// Reads a plain or scientific decimal exactly; digits finer than 1e-8 are an error, never rounded in silence.
    fn from_str(text: &str) -> Result<Usd, NotDecimal> {
        let units = parse_decimal(text, 8)?;
        if units > MAX_AMOUNT as u128 {
            return Err(NotDecimal::TooLarge);
        }
        Ok(Usd(units as u64))
    }
}

/// An exact amount of money in picodollars (1e-12 USD), as computed from integer prices; never rounded.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Pico(pub u128);

impl Pico {
    /// Rounded up to a unit of 1e-8 USD, cut at [`MAX_AMOUNT`] units. The one rounding of a request.
    pub fn to_usd(self) -> Usd {
        // Nearly every sum is far below 2^64, where dividing is ten times cheaper.
        match u64::try_from(self.0) {
            Ok(pico) => Usd::from_units(pico.div_ceil(10_000)),
            Err(_) => Usd(self.0.div_ceil(10_000).min(MAX_AMOUNT as u128) as u64),
        }
    }
}

impl fmt::Display for Pico {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        decimal(f, self.0, 12)
    }
}

impl fmt::Debug for Pico {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "${self}")
    }
}

/// Why a text is not a decimal of the wanted kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotDecimal {
    /// Not a decimal number at all: empty, words, NaN, an infinity.
    #[error("is not a decimal number")]
    Malformed,
    /// Below zero.
    #[error("is negative")]
    Negative,
    /// More digits after the point than the unit has.
    #[error("is finer than the smallest unit")]
    TooFine,
    /// Above the bound.
    #[error("is too large")]
    TooLarge,
}

/// Reads a decimal (`12`, `0.5`, `1.25e-07`) as an integer of 10^-`scale`, exactly.
///
/// Cost: linear in the text; texts over 64 bytes are refused as malformed.
///
/// # Errors
/// [`NotDecimal`] tells what is wrong.
pub fn parse_decimal(text: &str, scale: u32) -> Result<u128, NotDecimal> {
    let (digits, exponent, negative) = split_decimal(text)?;
    if digits == 0 {
        return Ok(0);
    }
    if negative {
        return Err(NotDecimal::Negative);
    }
    let shift = exponent + scale as i64;
    if shift >= 0 {
        let factor = 10u128.checked_pow(u32::try_from(shift).unwrap_or(u32::MAX)).ok_or(NotDecimal::TooLarge)?;
        return digits.checked_mul(factor).ok_or(NotDecimal::TooLarge);
    }
    let divisor = 10u128.checked_pow(u32::try_from(-shift).unwrap_or(u32::MAX)).ok_or(NotDecimal::TooFine)?;
    if digits % divisor != 0 {
        return Err(NotDecimal::TooFine);
    }
    Ok(digits / divisor)
}

/// As [`parse_decimal`], rounding half to even where the text is finer; tells whether it rounded.
///
/// # Errors
/// [`NotDecimal`], never `TooFine`.
pub fn parse_decimal_rounded(text: &str, scale: u32) -> Result<(u128, bool), NotDecimal> {
    match parse_decimal(text, scale) {
        Ok(value) => Ok((value, false)),
        Err(NotDecimal::TooFine) => {
            let (digits, exponent, _) = split_decimal(text)?;
            let drop = u32::try_from(-(exponent + scale as i64)).unwrap_or(u32::MAX);
            let Some(divisor) = 10u128.checked_pow(drop) else {
                return Ok((0, true));
            };
            let (quotient, rest) = (digits / divisor, digits % divisor);
            let up = match (rest * 2).cmp(&divisor) {
                std::cmp::Ordering::Less => false,
                std::cmp::Ordering::Equal => quotient % 2 == 1,
                std::cmp::Ordering::Greater => true,
            };
            Ok((quotient + up as u128, true))
        }
        Err(other) => Err(other),
    }
}

/// Splits a decimal text into its digits as an integer, the power of ten that they stand at, and the sign.
fn split_decimal(text: &str) -> Result<(u128, i64, bool), NotDecimal> {
    let text = text.trim();
    if text.is_empty() || text.len() > 64 {
        return Err(NotDecimal::Malformed);
    }
    let (negative, body) = match text.as_bytes()[0] {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let (mantissa, exponent) = match body.find(['e', 'E']) {
        Some(at) => (&body[..at], body[at + 1..].parse::<i32>().map_err(|_| NotDecimal::Malformed)? as i64),
        None => (body, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if whole.is_empty() && fraction.is_empty() {
        return Err(NotDecimal::Malformed);
    }
    let mut digits: u128 = 0;
    let mut dropped_zeros = 0;
    // Trailing zeros of the fraction carry no value; leaving them out keeps the digits inside 128 bits.
    let fraction = fraction.trim_end_matches('0');
    for byte in whole.bytes().chain(fraction.bytes()) {
        if !byte.is_ascii_digit() {
            return Err(NotDecimal::Malformed);
        }
        digits = digits.checked_mul(10).and_then(|d| d.checked_add((byte - b'0') as u128)).ok_or(if exponent < 0 {
            NotDecimal::TooFine
        } else {
            NotDecimal::TooLarge
        })?;
        dropped_zeros += 1;
    }
    debug_assert!(dropped_zeros <= 64);
    Ok((digits, exponent - fraction.len() as i64, negative))
}

/// Writes an integer of 10^-`scale` as a plain decimal without trailing zeros.
fn decimal(f: &mut fmt::Formatter<'_>, value: u128, scale: u32) -> fmt::Result {
    let one = 10u128.pow(scale);
    let (whole, fraction) = (value / one, value % one);
    if fraction == 0 {
        return write!(f, "{whole}");
    }
    let digits = format!("{fraction:0width$}", width = scale as usize);
    write!(f, "{whole}.{}", digits.trim_end_matches('0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_exact() {
        for (text, scale, want) in [
            ("0.04", 8, Ok(4_000_000)),
            ("300", 8, Ok(30_000_000_000)),
            ("500.00", 8, Ok(50_000_000_000)),
            ("1.25e-07", 12, Ok(125_000)),
            ("2.5", 6, Ok(2_500_000)),
            (".5", 1, Ok(5)),
            ("5.", 0, Ok(5)),
            ("0e400", 8, Ok(0)),
            ("1e400", 8, Err(NotDecimal::TooLarge)),
            ("1e-400", 8, Err(NotDecimal::TooFine)),
            ("0.0000000000000000000000001", 8, Err(NotDecimal::TooFine)),
            ("-1", 8, Err(NotDecimal::Negative)),
            ("-0", 8, Ok(0)),
            ("NaN", 8, Err(NotDecimal::Malformed)),
            ("inf", 8, Err(NotDecimal::Malformed)),
            ("", 8, Err(NotDecimal::Malformed)),
            (".", 8, Err(NotDecimal::Malformed)),
            ("1 0", 8, Err(NotDecimal::Malformed)),
            ("1e2e3", 8, Err(NotDecimal::Malformed)),
            ("99999999999999999999999999999999999999999999999999", 8, Err(NotDecimal::TooLarge)),
        ] {
            assert_eq!(parse_decimal(text, scale), want, "{text}");
        }
    }

    #[test]
    fn rounding_is_half_to_even_and_told() {
        assert_eq!(parse_decimal_rounded("2.0000000000000002e-07", 12), Ok((200_000, true)));
        assert_eq!(parse_decimal_rounded("0.5", 0), Ok((0, true)));
        assert_eq!(parse_decimal_rounded("1.5", 0), Ok((2, true)));
        assert_eq!(parse_decimal_rounded("1e-300", 12), Ok((0, true)));
        assert_eq!(parse_decimal_rounded("7", 2), Ok((700, false)));
    }

    #[test]
    fn money_shows_and_rounds_up_once() {
        assert_eq!("0.04".parse::<Usd>().unwrap().to_string(), "0.04");
        assert_eq!(Usd::from_units(1).to_string(), "0.00000001");
        assert_eq!(Pico(1).to_usd(), Usd::from_units(1));
        assert_eq!(Pico(10_000).to_usd(), Usd::from_units(1));
        assert_eq!(Pico(0).to_usd(), Usd::ZERO);
        assert_eq!(Pico(23_285_600_000).to_string(), "0.0232856");
        assert_eq!("45035997".parse::<Usd>(), Err(NotDecimal::TooLarge));
    }
}
