//! The upstream: an OpenAI-compatible server over HTTP, or the simulated pool in this process.
//!
//! Invariant: it is sent the gateway's own key and nothing of the asker's headers.

use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use reqwest::header::{ACCEPT_ENCODING, AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use reqwest::redirect::Policy;

use crate::simulated;

/// How long a connection may take to be made.
const CONNECT: Duration = Duration::from_secs(5);

/// Where requests go.
pub enum Upstream {
    /// A server.
    Http(Http),
    /// The simulated pool.
    Simulated,
}

/// A server in OpenAI's manner.
pub struct Http {
    client: reqwest::Client,
    /// The address up to and with `/v1`.
    base: String,
    key: Option<HeaderValue>,
}

/// A request that got no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unanswered {
    /// There was no connection: it has not been run.
    NotConnected,
    /// The connection broke: it may have been run.
    Broken,
}

impl Upstream {
    /// A server at an address, with or without `/v1` at its end; `key` is sent as its bearer key.
    ///
    /// # Errors
    /// The address is none of HTTP, or the key cannot stand in a header.
    pub fn http(address: &str, key: Option<&str>) -> Result<Upstream, String> {
        let url = reqwest::Url::parse(address).map_err(|why| format!("--upstream {address}: {why}"))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(format!("--upstream {address}: a URL of http or https"));
        }
        let base = address.trim_end_matches('/');
        let base = if base.ends_with("/v1") { base.to_owned() } else { format!("{base}/v1") };
        let key = match key {
            Some(key) => {
                let value = HeaderValue::from_str(&format!("Bearer {key}"));
                let mut value = value.map_err(|_| "GATEWAY_UPSTREAM_KEY: not printable ASCII".to_owned())?;
                value.set_sensitive(true);
                Some(value)
            }
            None => None,
        };
        // The second call finds it installed, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        // Following a redirect would take the key to another server.
        let client = reqwest::Client::builder().connect_timeout(CONNECT).redirect(Policy::none());
        let client = client.build().map_err(|why| format!("--upstream {address}: {why}"))?;
        Ok(Upstream::Http(Http { client, base, key }))
    }

    /// Sends a body of JSON to a path below `/v1` and gives the answer as soon as its head is there.
    ///
    /// # Errors
    /// [`Unanswered`] if there is no head.
    pub async fn send(&self, path: &str, body: String) -> Result<Response, Unanswered> {
        let Upstream::Http(http) = self else { return Ok(simulated::answer(path, body.as_bytes()).await) };
        let mut request = http.client.post(format!("{}{path}", http.base));
        request = request.header(CONTENT_TYPE, "application/json").header(ACCEPT_ENCODING, "identity").body(body);
        if let Some(key) = &http.key {
            request = request.header(AUTHORIZATION, key.clone());
        }
        let sent = request.send().await;
        let answer =
            sent.map_err(|why| if why.is_connect() { Unanswered::NotConnected } else { Unanswered::Broken })?;
        Ok(axum::http::Response::<reqwest::Body>::from(answer).map(Body::new))
    }
}
