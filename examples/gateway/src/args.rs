//! Arguments of the command line, read by hand: there are few.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use quota_core::gpu::Dialect;
use quota_core::poller::PollPlan;

use crate::pools::Metrics;

/// What `--help` prints.
pub const USAGE: &str = "\
usage: gateway [--listen ADDRESS] [--policy FILE] [--prices FILE] [--upstream URL] [--max-body BYTES] [--workers N]
               [--metrics URL... --dialect NAME [--pool NAME] [--max-running N] [--priority-hints]]
               [--jwt-key FILE --jwt-issuer NAME --jwt-audience NAME]

  --listen ADDRESS   where to listen; 127.0.0.1:8080 if left out, port 0 for any free one
  --policy FILE      the policy in YAML or JSON; a small one for trying out if left out
  --prices FILE      prices in LiteLLM's format, for models that the policy gives no price
  --upstream URL     an OpenAI-compatible server (for messages, one in Anthropic's manner), with or without /v1; a simulated pool if left out
  --max-body BYTES   the largest request body; 10485760 if left out
  --workers N        the threads that serve connections; one for each core if left out
  --metrics URL      where a replica of the upstream tells its load, http://host:port with a path or without; once for
                     each replica. Requests then wait here while the upstream is full.
  --dialect NAME     what these servers are: vllm, sglang, tgi, triton, trtllm, ray_serve, llama_cpp, ollama or lmdeploy
  --pool NAME        the pool of the policy that they are; may be left out where the policy names one only
  --max-running N    the most requests that a replica runs at once, where it does not tell; 128 if left out
  --priority-hints   tell the upstream whose turn it is, by the request's `priority` (vllm, sglang)
  --jwt-key FILE     believe the JWTs that this key verifies: a public key in PEM (RS256, ES256) or a secret of at least
                     32 bytes (HS256); the policy's `claims` name the principal. Needs the feature `jwt`, --jwt-issuer
                     and --jwt-audience. A bearer with two dots is then a token and no key.

environment: GATEWAY_UPSTREAM_KEY, the key sent to the upstream; GATEWAY_ADMIN_KEY, the key of /admin and /metrics,
made up and printed if left out. SIGHUP or POST /admin/reload reads the policy again.";

const OPTIONS: [&str; 14] = [
    "--listen",
    "--policy",
    "--prices",
    "--upstream",
    "--max-body",
    "--workers",
    "--metrics",
    "--dialect",
    "--pool",
    "--max-running",
    "--priority-hints",
    "--jwt-key",
    "--jwt-issuer",
    "--jwt-audience",
];

/// The most requests that a replica may be said to run.
const MAX_RUNNING: u64 = 1 << 20;

/// The most workers.
const MAX_WORKERS: usize = 1024;

/// The arguments.
#[derive(Debug, Clone)]
pub struct Args {
    /// Where to listen.
    pub listen: SocketAddr,
    /// The policy's file; the built-in one if `None`.
    pub policy: Option<PathBuf>,
    /// A price list.
    pub prices: Option<PathBuf>,
    /// The upstream's address; the simulated pool if `None`.
    pub upstream: Option<String>,
    /// The largest request body in bytes.
    pub max_body: usize,
    /// The threads that serve connections; one for each core if `None`.
    pub workers: Option<NonZeroUsize>,
    /// Who tells how full the upstream is.
    pub metrics: Option<Metrics>,
    /// Whose JWTs are believed.
    pub jwt: Option<Jwt>,
}

/// Whose JWTs are believed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Jwt {
    /// The key's file.
    pub key: PathBuf,
    /// Who signs them.
    pub issuer: String,
    /// Whom they are for.
    pub audience: String,
}

impl Default for Args {
    fn default() -> Args {
        let listen = SocketAddr::from(([127, 0, 0, 1], 8080));
        Args {
            listen,
            policy: None,
            prices: None,
            upstream: None,
            max_body: 10 << 20,
            workers: None,
            metrics: None,
            jwt: None,
        }
    }
}

impl Args {
    /// Reads the arguments after the program's name; `None` if help was asked for.
    ///
    /// # Errors
    /// An unknown option, or one without its value or with a value that it does not take.
    pub fn read(mut words: impl Iterator<Item = String>) -> Result<Option<Args>, String> {
        let mut args = Args::default();
        let [mut key, mut issuer, mut audience] = [None, None, None];
        let mut pool = PoolArgs::default();
        while let Some(word) = words.next() {
            let (option, given) = match word.split_once('=') {
                Some((option, value)) => (option.to_owned(), Some(value.to_owned())),
                None => (word, None),
            };
            if option == "--help" || option == "-h" {
                return Ok(None);
            }
            if !OPTIONS.contains(&option.as_str()) {
                return Err(format!("unknown option {option}; there are {}", OPTIONS.join(", ")));
            }
            if option == "--priority-hints" {
                if given.is_some() {
                    return Err("--priority-hints takes no value".into());
                }
                pool.priority_hints = true;
                continue;
            }
            let value = given.or_else(|| words.next()).ok_or_else(|| format!("{option} needs a value"))?;
            let bad = |allowed: &str| format!("{option} {value}: {allowed}");
            match option.as_str() {
                "--listen" => {
                    args.listen = value.parse().map_err(|_| bad("an address and a port, as 127.0.0.1:8080"))?
                }
                "--policy" => args.policy = Some(value.into()),
                "--prices" => args.prices = Some(value.into()),
                "--upstream" => args.upstream = Some(value),
                "--workers" => {
                    let workers = value.parse().ok().filter(|workers| (1..=MAX_WORKERS).contains(workers));
                    let workers = workers.and_then(NonZeroUsize::new);
                    args.workers = Some(workers.ok_or_else(|| bad(&format!("a number from 1 to {MAX_WORKERS}")))?);
                }
                "--metrics" => pool.urls.push(value),
                "--dialect" => {
                    let dialect = Dialect::parse(&value).filter(|dialect| !dialect.paths().is_empty());
                    pool.dialect = Some(dialect.ok_or_else(|| bad(&dialects()))?);
                }
                "--pool" => pool.name = Some(value),
                "--max-running" => {
                    let requests = value.parse().ok().filter(|requests| (1..=MAX_RUNNING).contains(requests));
                    pool.max_running =
                        Some(requests.ok_or_else(|| bad(&format!("a number of requests from 1 to {MAX_RUNNING}")))?);
                }
                "--jwt-key" => key = Some(value),
                "--jwt-issuer" => issuer = Some(value),
                "--jwt-audience" => audience = Some(value),
                _ => {
                    let bytes = value.parse().ok().filter(|bytes| (1..=1 << 30).contains(bytes));
                    args.max_body = bytes.ok_or_else(|| bad("a number of bytes from 1 to 1073741824"))?;
                }
            }
        }
        args.metrics = pool.together(args.upstream.is_some())?;
        args.jwt = match (key, issuer, audience) {
            (None, None, None) => None,
            (Some(key), Some(issuer), Some(audience)) => Some(Jwt { key: key.into(), issuer, audience }),
            _ => return Err("--jwt-key, --jwt-issuer and --jwt-audience go together".into()),
        };
        Ok(Some(args))
    }
}

/// What is said of the upstream's pool.
#[derive(Default)]
struct PoolArgs {
    urls: Vec<String>,
    dialect: Option<Dialect>,
    name: Option<String>,
    max_running: Option<u64>,
    priority_hints: bool,
}

impl PoolArgs {
    /// All of it, if it fits together.
    fn together(self, upstream: bool) -> Result<Option<Metrics>, String> {
        let PoolArgs { urls, dialect, name, max_running, priority_hints } = self;
        if urls.is_empty() {
            let alone = [
                ("--dialect", dialect.is_some()),
                ("--pool", name.is_some()),
                ("--max-running", max_running.is_some()),
                ("--priority-hints", priority_hints),
            ];
            let alone = alone.iter().find(|(_, given)| *given);
            return alone.map_or(Ok(None), |(option, _)| Err(format!("{option} needs --metrics")));
        }
        if !upstream {
            return Err("--metrics needs --upstream: the simulated pool tells its load by itself".into());
        }
        let dialect = dialect.ok_or_else(|| format!("--metrics needs --dialect: {}", dialects()))?;
        // Triton's would stand in `parameters`, which OpenAI's requests do not have.
        if priority_hints && !matches!(dialect, Dialect::Vllm | Dialect::Sglang) {
            return Err(format!("--priority-hints: {} takes none with OpenAI's requests", dialect.name()));
        }
        Ok(Some(Metrics { pool: name, plan: PollPlan::new(dialect, urls), max_running, priority_hints }))
    }
}

/// The dialects that can be asked.
fn dialects() -> String {
    let asked = Dialect::ALL.into_iter().filter(|dialect| !dialect.paths().is_empty());
    format!("one of {}", asked.map(Dialect::name).collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Option<Args>, String> {
        Args::read(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn arguments_are_read_or_told() {
        let none = read("").unwrap().unwrap();
        assert!(none.policy.is_none() && none.upstream.is_none() && none.metrics.is_none() && none.jwt.is_none());
        assert!(read("--policy p --help").unwrap().is_none());
        let args = read("--listen=0.0.0.0:0 --upstream http://h:1 --max-body 7 --workers 3").unwrap().unwrap();
        assert_eq!(args.workers, NonZeroUsize::new(3));
        assert_eq!((args.listen.port(), args.upstream.as_deref(), args.max_body), (0, Some("http://h:1"), 7));
        let jwt = Jwt { key: "k".into(), issuer: "i".into(), audience: "a".into() };
        assert_eq!(read("--jwt-key=k --jwt-issuer i --jwt-audience a").unwrap().unwrap().jwt, Some(jwt));
        let line =
            "--upstream http://h --metrics http://a:1 --metrics=http://b:1/x --dialect sglang --pool p --max-running 9";
        let metrics = read(&format!("{line} --priority-hints")).unwrap().unwrap().metrics.unwrap();
        assert_eq!((metrics.pool.as_deref(), metrics.max_running, metrics.priority_hints), (Some("p"), Some(9), true));
        assert_eq!(
            (metrics.plan.dialect, metrics.plan.urls),
            (Dialect::Sglang, vec!["http://a:1".into(), "http://b:1/x".into()])
        );
        for (line, told) in [
            ("--metrics http://a", "--metrics needs --upstream"),
            ("--upstream http://h --metrics http://a", "--metrics needs --dialect: one of vllm, sglang, "),
            ("--upstream http://h --dialect vllm", "--dialect needs --metrics"),
            ("--pool p", "--pool needs --metrics"),
            ("--max-running 3", "--max-running needs --metrics"),
            ("--priority-hints", "--priority-hints needs --metrics"),
            ("--priority-hints=yes", "--priority-hints takes no value"),
            ("--upstream h --metrics m --dialect tgi --priority-hints", "--priority-hints: tgi takes none"),
            ("--dialect vlm", "--dialect vlm: one of vllm, sglang, "),
            ("--dialect orca", "--dialect orca: one of vllm, "),
            ("--max-running 0", "--max-running 0: a number of requests"),
            ("--polcy p", "unknown option --polcy"),
            ("--policy", "--policy needs a value"),
            ("--listen here", "--listen here: an address"),
            ("--workers 0", "--workers 0: a number from 1"),
            ("--max-body 0", "--max-body 0: a number of bytes"),
            ("--jwt-key k --jwt-issuer i", "--jwt-key, --jwt-issuer and --jwt-audience go together"),
            ("--max-body many", "--max-body many: a number of bytes"),
        ] {
            assert!(read(line).unwrap_err().starts_with(told), "{line}");
        }
    }
}
