//! Arguments of the command line, read by hand: there are few.

use std::net::SocketAddr;
use std::path::PathBuf;

/// What `--help` prints.
pub const USAGE: &str = "\
usage: gateway [--listen ADDRESS] [--policy FILE] [--prices FILE] [--upstream URL] [--max-body BYTES]
               [--jwt-key FILE --jwt-issuer NAME --jwt-audience NAME]

  --listen ADDRESS   where to listen; 127.0.0.1:8080 if left out, port 0 for any free one
  --policy FILE      the policy in YAML or JSON; a small one for trying out if left out
  --prices FILE      prices in LiteLLM's format, for models that the policy gives no price
  --upstream URL     an OpenAI-compatible server (for messages, one in Anthropic's manner), with or without /v1; a simulated pool if left out
  --max-body BYTES   the largest request body; 10485760 if left out
  --jwt-key FILE     believe the JWTs that this key verifies: a public key in PEM (RS256, ES256) or a secret of at least
                     32 bytes (HS256); the policy's `claims` name the principal. Needs the feature `jwt`, --jwt-issuer
                     and --jwt-audience. A bearer with two dots is then a token and no key.

environment: GATEWAY_UPSTREAM_KEY, the key sent to the upstream; GATEWAY_ADMIN_KEY, the key of /admin and /metrics,
made up and printed if left out. SIGHUP or POST /admin/reload reads the policy again.";

const OPTIONS: [&str; 8] =
    ["--listen", "--policy", "--prices", "--upstream", "--max-body", "--jwt-key", "--jwt-issuer", "--jwt-audience"];

/// The arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
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
        Args { listen, policy: None, prices: None, upstream: None, max_body: 10 << 20, jwt: None }
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
            let value = given.or_else(|| words.next()).ok_or_else(|| format!("{option} needs a value"))?;
            let bad = |allowed: &str| format!("{option} {value}: {allowed}");
            match option.as_str() {
                "--listen" => {
                    args.listen = value.parse().map_err(|_| bad("an address and a port, as 127.0.0.1:8080"))?
                }
                "--policy" => args.policy = Some(value.into()),
                "--prices" => args.prices = Some(value.into()),
                "--upstream" => args.upstream = Some(value),
                "--jwt-key" => key = Some(value),
                "--jwt-issuer" => issuer = Some(value),
                "--jwt-audience" => audience = Some(value),
                _ => {
                    let bytes = value.parse().ok().filter(|bytes| (1..=1 << 30).contains(bytes));
                    args.max_body = bytes.ok_or_else(|| bad("a number of bytes from 1 to 1073741824"))?;
                }
            }
        }
        args.jwt = match (key, issuer, audience) {
            (None, None, None) => None,
            (Some(key), Some(issuer), Some(audience)) => Some(Jwt { key: key.into(), issuer, audience }),
            _ => return Err("--jwt-key, --jwt-issuer and --jwt-audience go together".into()),
        };
        Ok(Some(args))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Option<Args>, String> {
        Args::read(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn arguments_are_read_or_told() {
        assert_eq!(read(""), Ok(Some(Args::default())));
        assert_eq!(read("--policy p --help"), Ok(None));
        let args = read("--listen=0.0.0.0:0 --upstream http://h:1 --max-body 7").unwrap().unwrap();
        assert_eq!((args.listen.port(), args.upstream.as_deref(), args.max_body), (0, Some("http://h:1"), 7));
        let jwt = Jwt { key: "k".into(), issuer: "i".into(), audience: "a".into() };
        assert_eq!(read("--jwt-key=k --jwt-issuer i --jwt-audience a").unwrap().unwrap().jwt, Some(jwt));
        for (line, told) in [
            ("--polcy p", "unknown option --polcy"),
            ("--policy", "--policy needs a value"),
            ("--listen here", "--listen here: an address"),
            ("--max-body 0", "--max-body 0: a number of bytes"),
            ("--jwt-key k --jwt-issuer i", "--jwt-key, --jwt-issuer and --jwt-audience go together"),
            ("--max-body many", "--max-body many: a number of bytes"),
        ] {
            assert!(read(line).unwrap_err().starts_with(told), "{line}");
        }
    }
}
