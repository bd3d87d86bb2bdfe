//! Conversion: Python's objects to JSON values and back, counts, names, and money.
//!
//! Invariant: nothing is guessed: a number that JSON can't hold goes over as its text, for the core to refuse.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyByteArray, PyBytes, PyDict, PyFloat, PyInt, PyList, PyMapping, PyString, PyTuple};
use quota_core::units::{Amounts as CoreAmounts, Meter};
use serde_json::{Map, Number, Value};

use crate::errors;

/// Text from which on what is done with it lets other threads run meanwhile, in bytes.
pub const LONG: usize = 16 * 1024;

/// How deep objects may be nested, which also ends one that holds itself.
const MAX_DEPTH: usize = 128;

/// A whole number from 0 to 2^64 − 1.
#[derive(Clone, Copy)]
pub struct Count(pub u64);

impl<'a, 'py> FromPyObject<'a, 'py> for Count {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Count> {
        if !object.is_instance_of::<PyInt>() || object.is_instance_of::<PyBool>() {
            return Err(PyTypeError::new_err(format!("a whole number is wanted, not {}", kind(&object))));
        }
        object
            .extract::<u64>()
            .map(Count)
            .map_err(|_| PyValueError::new_err("a whole number from 0 to 2^64 - 1 is wanted"))
    }
}

/// A whole number of a smaller type.
#[derive(Clone, Copy)]
pub struct Small<T>(pub T);

impl<'a, 'py, T: TryFrom<u64> + Bounded> FromPyObject<'a, 'py> for Small<T> {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Small<T>> {
        if !object.is_instance_of::<PyInt>() || object.is_instance_of::<PyBool>() {
            return Err(PyTypeError::new_err(format!("a whole number is wanted, not {}", kind(&object))));
        }
        let number = object.extract::<u64>().ok().and_then(|number| T::try_from(number).ok());
        number
            .map(Small)
            .ok_or_else(|| PyValueError::new_err(format!("a whole number from 0 to {} is wanted", T::LARGEST)))
    }
}

/// What a smaller type holds at most.
pub trait Bounded {
    const LARGEST: u64;
}

macro_rules! bounded {
    ($($small:ty),*) => {
        $(impl Bounded for $small {
            const LARGEST: u64 = <$small>::MAX as u64;
        })*
    };
}

bounded!(u8, u16, u32, usize);

/// The name of an object's type, for messages; never what is in it.
pub fn kind(object: &Bound<'_, PyAny>) -> String {
    object.get_type().name().map_or_else(|_| "an object".into(), |name| name.to_string())
}

/// JSON text, or an object as it stands: mappings, lists, pydantic models, dataclasses, or anything with attributes.
pub fn document(object: &Bound<'_, PyAny>) -> PyResult<Value> {
    if let Ok(text) = object.cast::<PyString>() {
        return parse(object.py(), text.to_cow()?.as_bytes());
    }
    if let Ok(bytes) = object.cast::<PyBytes>() {
        return parse(object.py(), bytes.as_bytes());
    }
    if let Ok(bytes) = object.cast::<PyByteArray>() {
        return parse(object.py(), &bytes.to_vec());
    }
    value(object, 0)
}

/// An object as it stands; a text is a text.
pub fn object(object: &Bound<'_, PyAny>) -> PyResult<Value> {
    value(object, 0)
}

fn parse(py: Python<'_>, text: &[u8]) -> PyResult<Value> {
    // Its message would show where in the text, and nothing of it.
    let read = || serde_json::from_slice(text);
    let read = if text.len() >= LONG { py.detach(read) } else { read() };
    read.map_err(|error| errors::input(py, "json_invalid", format!("this is no JSON: {error}")))
}

fn value(object: &Bound<'_, PyAny>, depth: usize) -> PyResult<Value> {
    let py = object.py();
    if depth > MAX_DEPTH {
        return Err(errors::input(py, "too_deep", format!("nested deeper than {MAX_DEPTH}")));
    }
    if object.is_none() {
        return Ok(Value::Null);
    }
    if let Ok(text) = object.cast::<PyString>() {
        return Ok(Value::String(text.to_cow()?.into_owned()));
    }
    if let Ok(flag) = object.cast::<PyBool>() {
        return Ok(Value::Bool(flag.is_true()));
    }
    if let Ok(number) = object.cast::<PyInt>() {
        if let Ok(number) = number.extract::<u64>() {
            return Ok(number.into());
        }
        if let Ok(number) = number.extract::<i64>() {
            return Ok(number.into());
        }
        // As a reader of JSON text takes it.
        let float = number.extract::<f64>().ok().and_then(Number::from_f64);
        return match float {
            Some(float) => Ok(Value::Number(float)),
            None => Ok(Value::String(number.str()?.to_cow()?.into_owned())),
        };
    }
    if let Ok(number) = object.cast::<PyFloat>() {
        let number = number.value();
        return Ok(Number::from_f64(number).map_or_else(|| Value::String(number.to_string()), Value::Number));
    }
    if let Ok(list) = object.cast::<PyList>() {
        return list.iter().map(|item| value(&item, depth + 1)).collect();
    }
    if let Ok(list) = object.cast::<PyTuple>() {
        return list.iter().map(|item| value(&item, depth + 1)).collect();
    }
    if let Ok(dict) = object.cast::<PyDict>() {
        return members(dict, depth);
    }
    if object.is_instance(decimal_class(py)?)? {
        return Ok(Value::String(object.str()?.to_cow()?.into_owned()));
    }
    if object.is_instance_of::<pyo3::types::PyType>() || object.is_callable() {
        return Err(PyTypeError::new_err(format!("{} can't be read as JSON", kind(object))));
    }
    value(&plain(object)?, depth + 1)
}

fn members(dict: &Bound<'_, PyDict>, depth: usize) -> PyResult<Value> {
    let mut map = Map::new();
    // Of a copy: what is read on the way may change the dictionary, as other threads may.
    for (key, item) in dict.copy()?.iter() {
        let Ok(key) = key.cast::<PyString>() else {
            return Err(PyTypeError::new_err(format!("the keys of an object are texts, not {}", kind(&key))));
        };
        map.insert(key.to_cow()?.into_owned(), value(&item, depth + 1)?);
    }
    Ok(Value::Object(map))
}

/// What a model, a dataclass or another object holds, as a dictionary or list.
fn plain<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = object.py();
    if object.hasattr("model_dump")? {
        let options = PyDict::new(py);
        options.set_item("mode", "json")?;
        return object.call_method("model_dump", (), Some(&options));
    }
    if let Ok(mapping) = object.cast::<PyMapping>() {
        let dict = PyDict::new(py);
        dict.update(mapping)?;
        return Ok(dict.into_any());
    }
    let fields = match object.getattr_opt("__dict__")? {
        Some(fields) => fields.cast_into::<PyDict>().ok().map(|fields| fields.copy()).transpose()?,
        None => None,
    };
    let dict = PyDict::new(py);
    for (name, item) in fields.iter().flat_map(|fields| fields.iter()) {
        if !name.cast::<PyString>().is_ok_and(|name| name.to_cow().is_ok_and(|name| name.starts_with('_'))) {
            dict.set_item(name, item)?;
        }
    }
    for class in object.get_type().mro().iter() {
        for name in class.getattr_opt("__slots__")?.iter().flat_map(|slots| slots.try_iter()).flatten() {
            let name = name?.cast_into::<PyString>().map_err(PyErr::from)?;
            if !name.to_cow()?.starts_with('_')
                && let Some(item) = object.getattr_opt(&name)?
            {
                dict.set_item(name, item)?;
            }
        }
    }
    if dict.is_empty() {
        return Err(PyTypeError::new_err(format!("{} can't be read as JSON", kind(object))));
    }
    Ok(dict.into_any())
}

/// A JSON value as Python's own objects.
pub fn python<'py>(py: Python<'py>, value: &Value) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        Value::Null => py.None().into_bound(py),
        Value::Bool(flag) => PyBool::new(py, *flag).to_owned().into_any(),
        Value::Number(number) => match (number.as_u64(), number.as_i64()) {
            (Some(number), _) => number.into_pyobject(py)?.into_any(),
            (None, Some(number)) => number.into_pyobject(py)?.into_any(),
            (None, None) => PyFloat::new(py, number.as_f64().unwrap_or(f64::NAN)).into_any(),
        },
        Value::String(text) => PyString::new(py, text).into_any(),
        Value::Array(items) => {
            let list = PyList::empty(py);
            for item in items {
                list.append(python(py, item)?)?;
            }
            list.into_any()
        }
        Value::Object(map) => {
            let dict = PyDict::new(py);
            for (key, item) in map {
                dict.set_item(key, python(py, item)?)?;
            }
            dict.into_any()
        }
    })
}

/// JSON text of a policy's document: the order of keys is kept, since it is the order of lanes.
pub fn ordered_text(object: &Bound<'_, PyAny>) -> PyResult<String> {
    let mut text = String::new();
    write_ordered(object, 0, &mut text)?;
    Ok(text)
}

fn write_ordered(object: &Bound<'_, PyAny>, depth: usize, text: &mut String) -> PyResult<()> {
    if depth > MAX_DEPTH {
        return Err(errors::input(object.py(), "too_deep", format!("nested deeper than {MAX_DEPTH}")));
    }
    if let Ok(dict) = object.cast::<PyDict>() {
        text.push('{');
        for (at, (key, item)) in dict.copy()?.iter().enumerate() {
            let Ok(key) = key.cast::<PyString>() else {
                return Err(PyTypeError::new_err(format!("the keys of a policy are texts, not {}", kind(&key))));
            };
            if at > 0 {
                text.push_str(", ");
            }
            text.push_str(&Value::String(key.to_cow()?.into_owned()).to_string());
            text.push_str(": ");
            write_ordered(&item, depth + 1, text)?;
        }
        text.push('}');
    } else if object.is_instance_of::<PyInt>() && !object.is_instance_of::<PyBool>() {
        text.push_str(&object.str()?.to_cow()?);
    } else if object.is_instance_of::<PyList>() || object.is_instance_of::<PyTuple>() {
        text.push('[');
        for (at, item) in object.try_iter()?.enumerate() {
            if at > 0 {
                text.push_str(", ");
            }
            write_ordered(&item?, depth + 1, text)?;
        }
        text.push(']');
    } else if let Ok(mapping) = object.cast::<PyMapping>()
        && !object.is_instance_of::<PyString>()
    {
        let dict = PyDict::new(object.py());
        dict.update(mapping)?;
        write_ordered(&dict.into_any(), depth + 1, text)?;
    } else {
        text.push_str(&value(object, depth)?.to_string());
    }
    Ok(())
}

fn decimal_class(py: Python<'_>) -> PyResult<&Bound<'_, PyAny>> {
    static DECIMAL: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let class = DECIMAL.get_or_try_init(py, || Ok::<_, PyErr>(py.import("decimal")?.getattr("Decimal")?.unbind()))?;
    Ok(class.bind(py))
}

/// Money that the core shows as decimal text.
pub fn decimal<'py>(py: Python<'py>, money: &impl std::fmt::Display) -> PyResult<Bound<'py, PyAny>> {
    decimal_class(py)?.call1((money.to_string(),))
}

/// An amount: money as a decimal, anything else as a count.
pub fn amount<'py>(py: Python<'py>, meter: Meter, amount: u64) -> PyResult<Bound<'py, PyAny>> {
    match meter {
        Meter::Money => decimal(py, &meter.show(amount)),
        _ => Ok(amount.into_pyobject(py)?.into_any()),
    }
}

/// Whole milliseconds of nanoseconds, rounded up.
pub fn millis(nanos: u128) -> u64 {
    u64::try_from(nanos.div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// One amount per meter.
#[pyclass(frozen, module = "quota", eq)]
#[derive(Clone, PartialEq)]
pub struct Amounts(pub CoreAmounts);

#[pymethods]
impl Amounts {
    /// Requests.
    #[getter]
    fn requests(&self) -> u64 {
        self.0.get(Meter::Requests)
    }

    /// Input tokens, cached ones included.
    #[getter]
    fn input_tokens(&self) -> u64 {
        self.0.get(Meter::Input)
    }

    /// Output tokens, thinking included.
    #[getter]
    fn output_tokens(&self) -> u64 {
        self.0.get(Meter::Output)
    }

    /// Input and output together.
    #[getter]
    fn tokens(&self) -> u64 {
        self.0.get(Meter::Total)
    }

    /// Money.
    #[getter]
    fn usd<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        amount(py, Meter::Money, self.0.get(Meter::Money))
    }

    /// Requests in flight.
    #[getter]
    fn in_flight(&self) -> u64 {
        self.0.get(Meter::InFlight)
    }

    /// Open streams.
    #[getter]
    fn streams(&self) -> u64 {
        self.0.get(Meter::Streams)
    }

    /// Steps of an agent's run.
    #[getter]
    fn steps(&self) -> u64 {
        self.0.get(Meter::Steps)
    }

    /// Calls of tools in an agent's run.
    #[getter]
    fn tool_calls(&self) -> u64 {
        self.0.get(Meter::ToolCalls)
    }

    /// Seconds of an agent's run.
    #[getter]
    fn run_seconds(&self) -> u64 {
        self.0.get(Meter::RunTime)
    }

    /// All of them by their names.
    fn as_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        for meter in Meter::ALL {
            dict.set_item(meter.name(), amount(py, meter, self.0.get(meter))?)?;
        }
        Ok(dict)
    }

    fn __repr__(&self) -> String {
        let used = Meter::ALL.into_iter().filter(|meter| self.0.get(*meter) > 0);
        let shown: Vec<String> =
            used.map(|meter| format!("{}={}", meter.name(), meter.show(self.0.get(meter)))).collect();
        format!("Amounts({})", shown.join(", "))
    }
}
