//! Counts: JavaScript's numbers as whole ones.
//!
//! Invariant: a number that is not whole, or not exact, is an error and never rounded; a `BigInt` is one too.

use napi::bindgen_prelude::{FromNapiValue, ToNapiValue, TypeName, ValidateNapiValue};
use napi::{Env, Error, JsTypeError, Result, Status, ValueType, sys};

/// The largest number up to which all whole numbers are exact.
const MOST: f64 = 9_007_199_254_740_991.0;

/// A whole number from 0 to 2^53 − 1.
#[derive(Clone, Copy)]
pub struct Count(pub u64);

/// A `TypeError`.
pub fn type_error(env: Env, message: impl Into<String>) -> Error {
    JsTypeError::from(Error::new(Status::InvalidArg, message.into())).into_unknown(env).into()
}

impl TypeName for Count {
    fn type_name() -> &'static str {
        "number"
    }

    fn value_type() -> ValueType {
        ValueType::Number
    }
}

impl ValidateNapiValue for Count {}

impl FromNapiValue for Count {
    // SAFETY: the trait's contract, that both pointers are what Node has handed over, is passed on as it is to the
    // conversions of napi itself.
    #[allow(unsafe_code)]
    unsafe fn from_napi_value(env: sys::napi_env, value: sys::napi_value) -> Result<Count> {
        let kind = napi::type_of!(env, value)?;
        if kind != ValueType::Number {
            let found = match kind {
                ValueType::BigInt => "a BigInt: counts are numbers".to_owned(),
                other => other.to_string().to_lowercase(),
            };
            return Err(type_error(Env::from_raw(env), format!("a whole number is wanted, not {found}")));
        }
        let number = unsafe { f64::from_napi_value(env, value)? };
        if number.fract() != 0.0 || !(0.0..=MOST).contains(&number) {
            let message = format!("a whole number from 0 to 2^53 - 1 is wanted, not {number}");
            return Err(type_error(Env::from_raw(env), message));
        }
        Ok(Count(number as u64))
    }
}

impl ToNapiValue for Count {
    // SAFETY: as above.
    #[allow(unsafe_code)]
    unsafe fn to_napi_value(env: sys::napi_env, count: Count) -> Result<sys::napi_value> {
        unsafe { f64::to_napi_value(env, count.0 as f64) }
    }
}

/// Counts as options have them.
pub fn plain(count: Option<Count>) -> Option<u64> {
    count.map(|count| count.0)
}
