//! The upstream: an OpenAI-compatible server over HTTP, or the simulated pool in this process.
//!
//! Invariant: it is sent the gateway's own key and nothing of the asker's headers.

use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use reqwest::header::{ACCEPT_ENCODING, AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use reqwest::redirect::Policy;

use crate::answer::Manner;
use crate::endpoint::{ENDPOINTS, Endpoint};
use crate::simulated::Simulation;

/// The version of Anthropic's API that its bodies are in.
const ANTHROPIC_VERSION: HeaderValue = HeaderValue::from_static("2023-06-01");
/// How long a connection may take to be made.
const CONNECT: Duration = Duration::from_secs(5);

/// Where requests go.
pub enum Upstream {
    /// A server.
    Http(Http),
    /// The simulated pool.
    Simulated(Simulation),
}

/// A server in OpenAI's manner, and in Anthropic's where messages are sent to it.
pub struct Http {
    client: reqwest::Client,
    /// The endpoints' addresses by their paths, parsed once.
    addresses: Vec<(&'static str, reqwest::Url)>,
    /// The key, with and without `Bearer ` before it.
    key: Option<[HeaderValue; 2]>,
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
        let parse = |path: &str| {
            reqwest::Url::parse(&format!("{base}{path}")).map_err(|why| format!("--upstream {address}: {why}"))
        };
        let addresses = ENDPOINTS.iter().map(|endpoint| Ok((endpoint.path, parse(endpoint.path)?)));
        let addresses = addresses.collect::<Result<_, String>>()?;
        let secret = |text: String| {
            let value = HeaderValue::from_str(&text);
            let mut value = value.map_err(|_| "GATEWAY_UPSTREAM_KEY: not printable ASCII".to_owned())?;
            value.set_sensitive(true);
            Ok::<_, String>(value)
        };
        let key = match key {
            Some(key) => Some([secret(format!("Bearer {key}"))?, secret(key.to_owned())?]),
            None => None,
        };
        // The second call finds it installed, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        // Following a redirect would take the key to another server.
        let client = reqwest::Client::builder().connect_timeout(CONNECT).redirect(Policy::none());
        let client = client.build().map_err(|why| format!("--upstream {address}: {why}"))?;
        Ok(Upstream::Http(Http { client, addresses, key }))
    }

    /// Sends a body of JSON to an endpoint and gives the answer as soon as its head is there.
    ///
    /// # Errors
    /// [`Unanswered`] if there is no head.
    pub async fn send(&self, endpoint: &Endpoint, body: String) -> Result<Response, Unanswered> {
        let http = match self {
            Upstream::Http(http) => http,
            Upstream::Simulated(simulation) => return Ok(simulation.answer(endpoint.path, body.as_bytes()).await),
        };
        let address = http.addresses.iter().find(|(path, _)| *path == endpoint.path);
        // Every endpoint has one.
        let (_, address) = address.ok_or(Unanswered::NotConnected)?;
        let mut request = http.client.post(address.clone());
        request = request.header(CONTENT_TYPE, "application/json").header(ACCEPT_ENCODING, "identity").body(body);
        if let Some([bearer, _]) = &http.key {
            request = request.header(AUTHORIZATION, bearer.clone());
        }
        if endpoint.manner == Manner::Anthropic {
            request = request.header("anthropic-version", ANTHROPIC_VERSION);
            if let Some([_, key]) = &http.key {
                request = request.header("x-api-key", key.clone());
            }
        }
        let sent = request.send().await;
        let answer =
            sent.map_err(|why| if why.is_connect() { Unanswered::NotConnected } else { Unanswered::Broken })?;
        Ok(axum::http::Response::<reqwest::Body>::from(answer).map(Body::new))
    }
}
