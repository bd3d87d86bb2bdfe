//! The inputs of a step: read by name, each once, so that a key that nothing reads is noticed.

use quota_core::principal::Principal;
use quota_core::request::Request;
use quota_core::usage::{Dialect, Outcome, Usage, outcome_of};
use serde_json::{Map, Value};

#[derive(Clone)]
pub struct Words(Map<String, Value>);

impl Words {
    pub fn of(value: &Value) -> Result<Words, String> {
        value.as_object().cloned().map(Words).ok_or(format!("no object: {value}"))
    }

    /// Nothing is left.
    pub fn done(&self) -> Result<(), String> {
        match self.0.keys().next() {
            None => Ok(()),
            Some(key) => Err(format!("nothing reads `{key}`")),
        }
    }

    pub fn may(&mut self, key: &str) -> Option<Value> {
        self.0.remove(key)
    }

    pub fn may_text(&mut self, key: &str) -> Result<Option<String>, String> {
        let text = |value: Value| value.as_str().map(str::to_owned).ok_or(format!("`{key}` is no text"));
        self.may(key).map(text).transpose()
    }

    pub fn text(&mut self, key: &str) -> Result<String, String> {
        self.may_text(key)?.ok_or(format!("no `{key}`"))
    }

    pub fn may_count(&mut self, key: &str) -> Result<Option<u64>, String> {
        self.may(key).map(|value| value.as_u64().ok_or(format!("`{key}` is no count"))).transpose()
    }

    pub fn count(&mut self, key: &str) -> Result<u64, String> {
        self.may_count(key)?.ok_or(format!("no `{key}`"))
    }

    pub fn may_flag(&mut self, key: &str) -> Result<bool, String> {
        self.may(key).map_or(Ok(false), |value| value.as_bool().ok_or(format!("`{key}` is no flag")))
    }

    pub fn list(&mut self, key: &str) -> Result<Vec<Value>, String> {
        self.may(key).and_then(|value| value.as_array().cloned()).ok_or(format!("no list `{key}`"))
    }

    /// A name, or a character so many times: `{"x": 129}`.
    fn may_name(&mut self, key: &str) -> Result<Option<String>, String> {
        match self.may(key) {
            Some(Value::Object(repeated)) => match repeated.iter().next().map(|(text, times)| (text, times.as_u64())) {
                Some((text, Some(times))) => Ok(Some(text.repeat(times as usize))),
                _ => Err(format!("`{key}` repeats nothing")),
            },
            Some(Value::String(text)) => Ok(Some(text)),
            None => Ok(None),
            Some(other) => Err(format!("`{key}` is no name: {other}")),
        }
    }

    /// The request of a step; from its second turn on, its id has the turn's number at its end.
    pub fn request(&mut self, turn: u64) -> Result<Request, String> {
        let model = self.may_name("model")?.unwrap_or("m".into());
        let mut request = match self.may_text("kind")?.as_deref() {
            None | Some("chat") => Request::chat(model),
            Some("embeddings") => Request::embeddings(model),
            Some(other) => return Err(format!("no kind `{other}`")),
        };
        if let Some(id) = self.may_name("id")? {
            request = request.id(if turn == 0 { id } else { format!("{id}.{turn}") });
        }
        if let Some(text) = self.may_text("text")? {
            request = request.text(text);
        }
        if let Some(input) = self.may_count("input")? {
            request = request.input_tokens(input);
        }
        request.max_output_tokens = self.may_count("output")?;
        request.choices = self.may_count("choices")?.unwrap_or(1);
        request.stream = self.may_flag("stream")?;
        request.service_tier = self.may_text("service_tier")?.map(Into::into);
        request.lane = self.may_text("lane")?.map(Into::into);
        request.user = self.may_name("user")?.map(Into::into);
        Ok(request)
    }

    pub fn principal(&mut self) -> Result<Principal, String> {
        let tenant = self.may_name("tenant")?.unwrap_or("acme".into());
        let mut builder = Principal::builder(tenant).names_users(self.may_flag("names_users")?);
        if let Some(app) = self.may_name("app")? {
            builder = builder.app(app);
        }
        if let Some(user) = self.may_name("user")? {
            builder = builder.user(user);
        }
        if let Some(key) = self.may_name("key")? {
            builder = builder.key(key);
        }
        if let Some(lane) = self.may_name("lane")? {
            builder = builder.lane(lane);
        }
        self.done()?;
        Ok(builder.build())
    }

    /// `[input, output]`, or the fields of a usage by their names.
    pub fn may_usage(&mut self) -> Result<Option<Usage>, String> {
        let Some(value) = self.may("usage") else { return Ok(None) };
        if let Some([input, output]) = value.as_array().map(Vec::as_slice) {
            let counts = input.as_u64().zip(output.as_u64()).ok_or("usage: no counts")?;
            return Ok(Some(Usage::tokens(counts.0, counts.1)));
        }
        let mut words = Words::of(&value)?;
        let mut usage = Usage { requests: words.may_count("requests")?.unwrap_or(1), ..Usage::default() };
        for (key, field) in [
            ("input_uncached", &mut usage.input_uncached),
            ("input_cache_read", &mut usage.input_cache_read),
            ("output_text", &mut usage.output_text),
            ("output_reasoning", &mut usage.output_reasoning),
            ("web_searches", &mut usage.web_searches),
        ] {
            *field = words.may_count(key)?.unwrap_or(0);
        }
        usage.service_tier = words.may_text("service_tier")?;
        usage.input_missing = words.may_flag("input_missing")?;
        words.done()?;
        Ok(Some(usage))
    }

    pub fn usage(&mut self) -> Result<Usage, String> {
        self.may_usage()?.ok_or("no `usage`".into())
    }

    /// A `usage`, or an upstream's `answer`: `status` (`null` if there was no connection), `dialect`, `body`.
    pub fn outcome(&mut self) -> Result<Outcome, String> {
        if let Some(usage) = self.may_usage()? {
            return Ok(Outcome::Final(usage));
        }
        let answer = self.may("answer").ok_or("neither `usage` nor `answer`")?;
        let mut words = Words::of(&answer)?;
        let status = words.may("status").and_then(|status| status.as_u64()).map(|status| status as u16);
        let dialect = words.may_text("dialect")?.unwrap_or("auto".into());
        let dialect = Dialect::from_name(&dialect).ok_or(format!("no dialect `{dialect}`"))?;
        let body = words.may("body");
        words.done()?;
        Ok(outcome_of(status, dialect, body.as_ref()))
    }
}
