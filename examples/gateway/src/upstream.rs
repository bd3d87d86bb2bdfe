//! The upstream: an OpenAI-compatible server over HTTP, or the simulated pool in this process.
//!
//! Invariant: it is sent the gateway's own key and nothing of the asker's headers.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header::{ACCEPT_ENCODING, AUTHORIZATION, CONTENT_TYPE, HOST};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, Method, Request, Uri};
use axum::response::Response;
use http_body_util::Full;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tower_service::Service;

use crate::answer::Manner;
use crate::endpoint::{ENDPOINTS, Endpoint};
use crate::simulated::Simulation;

/// The version of Anthropic's API that its bodies are in.
const ANTHROPIC_VERSION: HeaderValue = HeaderValue::from_static("2023-06-01");
/// How long a connection may take to be made, with its TLS.
const CONNECT: Duration = Duration::from_secs(5);
/// How long a connection is kept that nothing runs on.
const IDLE: Duration = Duration::from_secs(90);
/// How often the system asks whether a silent connection is alive.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// How long the system waits to be told that what it sent has arrived.
#[cfg(target_os = "linux")]
const ACKNOWLEDGED: Duration = Duration::from_secs(30);

type Error = Box<dyn std::error::Error + Send + Sync>;

/// Where requests go.
pub enum Upstream {
    /// A server.
    Http(Http),
    /// The simulated pool.
    Simulated(Simulation),
}

/// A server in OpenAI's manner, and in Anthropic's where messages are sent to it.
pub struct Http {
    client: Client<Connector, Full<Bytes>>,
    connector: Connector,
    /// What a request of each endpoint is but for its body, by its path.
    heads: Arc<[(&'static str, Uri, HeaderMap)]>,
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
        let told = |why: &str| format!("--upstream {address}: {why}");
        let base = address.trim_end_matches('/');
        let base = if base.ends_with("/v1") { base.to_owned() } else { format!("{base}/v1") };
        let parsed: Uri = base.parse().map_err(|why| told(&format!("{why}")))?;
        // What stands behind the host is a port that there is: the parser takes any digits, and goes to 80 then. It cuts
        // a fragment off, and with it the path.
        let has_port = |host: &Authority| {
            let rest = host.as_str().strip_prefix(host.host()).unwrap_or_default();
            rest.is_empty() || host.port_u16().is_some_and(|port| port > 0)
        };
        let host =
            parsed.authority().filter(|host| !host.as_str().contains('@') && !address.contains('#') && has_port(host));
        let (true, Some(host), None) = (matches!(parsed.scheme_str(), Some("http" | "https")), host, parsed.query())
        else {
            return Err(told("a URL of http or https, a host, a port of 1 to 65535 and a path"));
        };
        let host = HeaderValue::from_str(host.as_str()).map_err(|why| told(&why.to_string()))?;
        let secret = |text: String| {
            let value = HeaderValue::from_str(&text);
            let mut value = value.map_err(|_| "GATEWAY_UPSTREAM_KEY: not printable ASCII".to_owned())?;
            value.set_sensitive(true);
            Ok::<_, String>(value)
        };
        let head = |endpoint: &Endpoint| {
            let uri = format!("{base}{}", endpoint.path).parse().map_err(|why| told(&format!("{why}")))?;
            let mut headers = HeaderMap::from_iter([
                (HOST, host.clone()),
                (CONTENT_TYPE, HeaderValue::from_static("application/json")),
                (ACCEPT_ENCODING, HeaderValue::from_static("identity")),
            ]);
            if let Some(key) = key {
                headers.insert(AUTHORIZATION, secret(format!("Bearer {key}"))?);
            }
            if endpoint.manner == Manner::Anthropic {
                headers.insert("anthropic-version", ANTHROPIC_VERSION);
                if let Some(key) = key {
                    headers.insert("x-api-key", secret(key.to_owned())?);
                }
            }
            Ok::<_, String>((endpoint.path, uri, headers))
        };
        let heads = ENDPOINTS.iter().map(head).collect::<Result<_, String>>()?;
        let connector = Connector::new().map_err(|why| told(&why.to_string()))?;
        Ok(Upstream::Http(Http { client: client(&connector), connector, heads }))
    }

    /// The same over connections of its own.
    pub(crate) fn apart(&self) -> Upstream {
        match self {
            Upstream::Http(Http { connector, heads, .. }) => {
                Upstream::Http(Http { client: client(connector), connector: connector.clone(), heads: heads.clone() })
            }
            Upstream::Simulated(simulation) => Upstream::Simulated(simulation.clone()),
        }
    }

    /// Sends a body of JSON to an endpoint and gives the answer as soon as its head is there.
    ///
    /// # Errors
    /// [`Unanswered`] if there is no head.
    pub async fn send(&self, endpoint: &Endpoint, body: Vec<u8>) -> Result<Response, Unanswered> {
        let http = match self {
            Upstream::Http(http) => http,
            Upstream::Simulated(simulation) => return Ok(simulation.answer(endpoint.path, &body).await),
        };
        let head = http.heads.iter().find(|(path, ..)| *path == endpoint.path);
        // Every endpoint has one.
        let (_, uri, headers) = head.ok_or(Unanswered::NotConnected)?;
        let mut request = Request::new(Full::from(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = uri.clone();
        *request.headers_mut() = headers.clone();
        match http.client.request(request).await {
            Ok(answer) => Ok(answer.map(Body::new)),
            Err(why) if why.is_connect() => Err(Unanswered::NotConnected),
            Err(_) => Err(Unanswered::Broken),
        }
    }
}

fn client(connector: &Connector) -> Client<Connector, Full<Bytes>> {
    // Redirects are not followed: they would take the key to another server.
    let mut builder = Client::builder(TokioExecutor::new());
    builder.pool_idle_timeout(IDLE).pool_timer(TokioTimer::new()).set_host(false).build(connector.clone())
}

/// Connects in time, with TLS where the address says so.
#[derive(Clone)]
struct Connector(HttpsConnector<HttpConnector>);

impl Connector {
    fn new() -> Result<Connector, Error> {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        // A request is written at once; one in two parts would wait for the acknowledgement of the first.
        tcp.set_nodelay(true);
        // Of several addresses each gets its part, so that a dead one does not hide the others.
        tcp.set_connect_timeout(Some(CONNECT));
        tcp.set_keepalive(Some(KEEP_ALIVE));
        tcp.set_keepalive_interval(Some(KEEP_ALIVE));
        #[cfg(target_os = "linux")]
        tcp.set_tcp_user_timeout(Some(ACKNOWLEDGED));
        let provider = rustls::crypto::ring::default_provider();
        let tls = HttpsConnectorBuilder::new().with_provider_and_platform_verifier(provider)?;
        Ok(Connector(tls.https_or_http().enable_http1().wrap_connector(tcp)))
    }
}

impl Service<Uri> for Connector {
    type Response = MaybeHttpsStream<TokioIo<TcpStream>>;
    type Error = Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, address: Uri) -> Self::Future {
        let connecting = self.0.call(address);
        Box::pin(async move { tokio::time::timeout(CONNECT, connecting).await? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_taken_or_told() {
        for (address, chat) in [
            ("http://h", "http://h/v1/chat/completions"),
            ("https://h:8443/", "https://h:8443/v1/chat/completions"),
            ("http://h/models/v1", "http://h/models/v1/chat/completions"),
            ("http://[::1]:80/v1/", "http://[::1]:80/v1/chat/completions"),
        ] {
            let Ok(Upstream::Http(http)) = Upstream::http(address, Some("k")) else { panic!("{address}") };
            let (_, uri, headers) = &http.heads[0];
            assert_eq!(uri, chat);
            assert_eq!(&headers["host"], uri.authority().unwrap().as_str());
            assert_eq!(&headers["authorization"], "Bearer k");
        }
        for address in [
            "",
            "h",
            "h:80",
            "ftp://h",
            "http://",
            "http://u:p@h",
            "http://h?key=k",
            "http://h h",
            "http://h:99999",
            "http://h:",
            "http://h:0",
            "http://h#x",
            "http://h/a#b",
            "http://[::1]:",
        ] {
            let why = Upstream::http(address, None).err().unwrap_or_else(|| panic!("{address}"));
            assert!(why.starts_with(&format!("--upstream {address}: ")), "{why}");
        }
        assert!(Upstream::http("http://h", Some("a\nb")).err().unwrap().starts_with("GATEWAY_UPSTREAM_KEY"));
    }
}
