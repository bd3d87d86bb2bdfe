//! The gateway as a program: arguments, socket, signals, and what it says when it starts.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread::available_parallelism;

use gateway::args::{Args, USAGE};
use gateway::call::Patience;
use gateway::identity::Identity;
use gateway::serve::serve;
use gateway::server::{Config, Gateway, random_hex};
use gateway::simulated::{QUICK, Simulation};
use gateway::source::{DEMO_KEY, DEMO_KEYS, Source};
use gateway::upstream::Upstream;
use tokio::net::TcpListener;

/// Bodies take kilobytes, for which glibc's allocator tidies its lists: it had a third of a request's processor time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

// Workers have threads of their own; this one takes connections and signals.
#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let args = match Args::read(std::env::args().skip(1)) {
        Ok(Some(args)) => args,
        Ok(None) => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        Err(why) => {
            eprintln!("gateway: {why}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match run(args).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("gateway: {why}");
            ExitCode::FAILURE
        }
    }
}

async fn run(args: Args) -> Result<(), String> {
    let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let upstream = match &args.upstream {
        Some(address) => Upstream::http(address, set("GATEWAY_UPSTREAM_KEY").as_deref())?,
        None => Upstream::Simulated(Simulation::paced(QUICK)),
    };
    let identity = match &args.jwt {
        Some(jwt) => {
            let told = |why: String| format!("--jwt-key {}: {why}", jwt.key.display());
            let key = std::fs::read_to_string(&jwt.key).map_err(|why| told(why.to_string()))?;
            Identity::jwt(&key, &jwt.issuer, &jwt.audience).map_err(told)?
        }
        None => Identity::default(),
    };
    let given = set("GATEWAY_ADMIN_KEY");
    let admin_key = match &given {
        Some(key) => key.clone(),
        None => format!("admin-{}", random_hex(16)?),
    };
    let made_up = given.is_none().then(|| admin_key.clone());
    let source = Source { policy: args.policy.clone(), prices: args.prices.clone() };
    let config = Config {
        source,
        upstream,
        metrics: args.metrics.clone(),
        identity,
        admin_key,
        max_body: args.max_body,
        patience: Patience::default(),
    };
    let gateway = Gateway::new(config)?;
    let listen = |why: std::io::Error| format!("--listen {}: {why}", args.listen);
    let listener = TcpListener::bind(args.listen).await.map_err(listen)?;
    let address = listener.local_addr().map_err(listen)?;
    // Whoever reads the greeting may send a signal at once.
    reload_on_hangup(gateway.clone());
    let stop = asked_to_stop();
    greet(&args, &gateway, address, made_up.as_deref());
    let cores = || available_parallelism().unwrap_or(NonZeroUsize::MIN);
    serve(listener, gateway, args.workers.unwrap_or_else(cores), stop).await
}

/// Says where it listens and how to try it out.
fn greet(args: &Args, gateway: &Gateway, address: SocketAddr, admin_key: Option<&str>) {
    let here = if address.ip().is_unspecified() { SocketAddr::from(([127, 0, 0, 1], address.port())) } else { address };
    let upstream = args.upstream.as_deref().unwrap_or("a simulated pool");
    let policy = args.policy.as_ref().map_or_else(|| "built in".to_owned(), |file| file.display().to_string());
    println!("gateway: listening on http://{address}");
    println!("gateway: upstream: {upstream}; policy: {policy}, digest {}", gateway.gate.digest());
    if let Some(key) = admin_key {
        println!("gateway: admin key for /metrics and /admin: {key}");
    }
    let (key, model) = match args.policy {
        None => {
            let keys = DEMO_KEYS.map(|(key, _)| key).join(", ");
            println!("gateway: demo keys: {keys}");
            (DEMO_KEY, "sim-large")
        }
        // Keys are kept as digests, so that one of them can't be printed.
        Some(_) => ("$GATEWAY_KEY", "$MODEL"),
    };
    let bearer = format!("-H \"Authorization: Bearer {key}\"");
    let body = |more: &str| {
        let text = format!(
            "{{\"model\":\"{model}\",\"max_tokens\":64,{more}\"messages\":[{{\"role\":\"user\",\"content\":\"Name three rivers.\"}}]}}"
        );
        format!("-H \"Content-Type: application/json\" -d \"{}\"", text.replace('"', "\\\""))
    };
    println!("gateway: dashboard, for the admin key: http://{here}/");
    println!();
    println!("curl -s http://{here}/v1/chat/completions {bearer} {}", body(""));
    println!("curl -sN http://{here}/v1/chat/completions {bearer} {}", body("\"stream\":true,"));
    println!("curl -s http://{here}/v1/quota {bearer}");
    println!();
}

#[cfg(unix)]
fn reload_on_hangup(gateway: Arc<Gateway>) {
    use tokio::signal::unix::{SignalKind, signal};
    let Ok(mut hangups) = signal(SignalKind::hangup()) else { return };
    tokio::spawn(async move {
        while hangups.recv().await.is_some() {
            let gateway = gateway.clone();
            match tokio::task::spawn_blocking(move || gateway.reload()).await {
                Ok(Ok(policy)) => println!("gateway: policy loaded, digest {}", policy.digest()),
                Ok(Err(why)) => eprintln!("gateway: the policy in force stays: {why}"),
                Err(why) => eprintln!("gateway: the policy in force stays: {why}"),
            }
        }
    });
}

#[cfg(not(unix))]
fn reload_on_hangup(_: Arc<Gateway>) {}

/// Ends when the process is asked to stop. It listens from the call on, not from the first poll.
#[cfg(unix)]
fn asked_to_stop() -> impl Future<Output = ()> {
    use tokio::signal::unix::{SignalKind, signal};
    let signals = [SignalKind::terminate(), SignalKind::interrupt()].map(signal);
    async move {
        match signals {
            [Ok(mut terminate), Ok(mut interrupt)] => tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            },
            // The signals that can't be listened to end the process by themselves.
            _ => std::future::pending().await,
        }
    }
}

#[cfg(not(unix))]
async fn asked_to_stop() {
    // Without a signal handler there is nothing to wait for, and it stops.
    drop(tokio::signal::ctrl_c().await);
}
