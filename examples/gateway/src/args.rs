//! Arguments of the command line, read by hand: there are few.

use std::net::SocketAddr;
use std::path::PathBuf;

/// What `--help` prints.
pub const USAGE: &str = "\
usage: gateway [--listen ADDRESS] [--policy FILE] [--prices FILE] [--upstream URL] [--max-body BYTES]

  --listen ADDRESS   where to listen; 127.0.0.1:8080 if left out, port 0 for any free one
  --policy FILE      the policy in YAML or JSON; a small one for trying out if left out
  --prices FILE      prices in LiteLLM's format, for models that the policy gives no price
  --upstream URL     an OpenAI-compatible server, with or without /v1; a simulated pool if left out
  --max-body BYTES   the largest request body; 10485760 if left out

environment: GATEWAY_UPSTREAM_KEY, the key sent to the upstream; GATEWAY_ADMIN_KEY, the key of /admin and /metrics,
made up and printed if left out. SIGHUP or POST /admin/reload reads the policy again.";

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
}

impl Default for Args {
    fn default() -> Args {
        let listen = SocketAddr::from(([127, 0, 0, 1], 8080));
        Args { listen, policy: None, prices: None, upstream: None, max_body: 10 << 20 }
    }
}

impl Args {
    /// Reads the arguments after the program's name; `None` if help was asked for.
    ///
    /// # Errors
    /// An unknown option, or one without its value or with a value that it does not take.
    pub fn read(mut words: impl Iterator<Item = String>) -> Result<Option<Args>, String> {
        let mut args = Args::default();
        while let Some(word) = words.next() {
            let (option, given) = match word.split_once('=') {
                Some((option, value)) => (option.to_owned(), Some(value.to_owned())),
                None => (word, None),
            };
            if option == "--help" || option == "-h" {
                return Ok(None);
            }
            let known = ["--listen", "--policy", "--prices", "--upstream", "--max-body"];
            if !known.contains(&option.as_str()) {
                return Err(format!("unknown option {option}; there are {}", known.join(", ")));
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
                _ => {
                    let bytes = value.parse().ok().filter(|bytes| (1..=1 << 30).contains(bytes));
                    args.max_body = bytes.ok_or_else(|| bad("a number of bytes from 1 to 1073741824"))?;
                }
            }
        }
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
        for (line, told) in [
            ("--polcy p", "unknown option --polcy"),
            ("--policy", "--policy needs a value"),
            ("--listen here", "--listen here: an address"),
            ("--max-body 0", "--max-body 0: a number of bytes"),
            ("--max-body many", "--max-body many: a number of bytes"),
        ] {
            assert!(read(line).unwrap_err().starts_with(told), "{line}");
        }
    }
}
