//! Counts: JavaScript's numbers as whole ones.
//!
//! Invariant: a number that is not whole, or not exact, is an error and never rounded; a `BigInt` is one too.

use napi::bindgen_prelude::{FromNapiValue, ToNapiValue, TypeName, ValidateNapiValue};
use napi::{Env, Error, JsTypeError, Result, Status, ValueType, sys};

/// The largest number up to which all whole numbers are exact.
const MOST: u64 = 9_007_199_254_740_991;

/// A `TypeError`.
pub fn type_error(env: Env, message: impl Into<String>) -> Error {
    JsTypeError::from(Error::new(Status::InvalidArg, message.into())).into_unknown(env).into()
}

/// A whole number from 0 to `most`. What is none is a plain error, to which napi adds the name of the option that it was
/// found in; `lib/` makes a `TypeError` of it.
//
// SAFETY: `from_napi_value`'s contract, that both pointers are what Node has handed over, is the caller's as it is here.
#[allow(unsafe_code)]
unsafe fn whole(env: sys::napi_env, value: sys::napi_value, most: u64) -> Result<u64> {
    let wrong = |found: String| Err(Error::new(Status::InvalidArg, format!("a whole number is wanted, not {found}")));
    let kind = napi::type_of!(env, value)?;
    if kind != ValueType::Number {
        return wrong(match kind {
            ValueType::BigInt => "a BigInt: counts are numbers".to_owned(),
            other => other.to_string().to_lowercase(),
        });
    }
    let number = unsafe { f64::from_napi_value(env, value)? };
    if number.fract() != 0.0 || !(0.0..=most as f64).contains(&number) {
        return wrong(format!("{number}; it is from 0 to {most}"));
    }
    Ok(number as u64)
}

macro_rules! whole {
    ($($(#[$doc:meta])* $name:ident($inner:ty) up to $most:expr;)*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy)]
            pub struct $name(pub $inner);

            impl TypeName for $name {
                fn type_name() -> &'static str {
                    "number"
                }

                fn value_type() -> ValueType {
                    ValueType::Number
                }
            }

            impl ValidateNapiValue for $name {}

            impl FromNapiValue for $name {
                // SAFETY: the trait's contract is passed on as it is.
                #[allow(unsafe_code)]
                unsafe fn from_napi_value(env: sys::napi_env, value: sys::napi_value) -> Result<$name> {
                    unsafe { whole(env, value, $most) }.map(|number| $name(number as $inner))
                }
            }

            impl ToNapiValue for $name {
                // SAFETY: as above.
                #[allow(unsafe_code)]
                unsafe fn to_napi_value(env: sys::napi_env, count: $name) -> Result<sys::napi_value> {
                    unsafe { f64::to_napi_value(env, count.0 as f64) }
                }
            }
        )*
    };
}

whole! {
    /// A whole number from 0 to 2^53 − 1.
    Count(u64) up to MOST;
    /// A whole number of 32 bits.
    Whole32(u32) up to u32::MAX.into();
    /// A whole number of 16 bits.
    Whole16(u16) up to u16::MAX.into();
    /// A whole number of 8 bits.
    Whole8(u8) up to u8::MAX.into();
}

/// Counts as options have them.
pub fn plain(count: Option<Count>) -> Option<u64> {
    count.map(|count| count.0)
}
