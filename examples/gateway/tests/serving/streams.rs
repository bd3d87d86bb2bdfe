//! Streams between an upstream and an asker of any pace: nothing is held back, and every byte comes, in order.

use std::time::{Duration, Instant};

use gateway::call::Patience;
use gateway::source::Source;
use gateway::upstream::Upstream;
use quota_core::gate::Counter;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use crate::harness::*;

const HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
const USAGE: &str =
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":10,\"total_tokens\":17}}\n\n";
const DONE: &str = "data: [DONE]\n\n";

fn word(text: &str) -> String {
    format!("data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{text}\"}}}}],\"usage\":null}}\n\n")
}

/// What the asker sees of it.
fn seen(text: &str) -> String {
    word(text).replace(",\"usage\":null", "")
}

/// A server of one answer that sends what it is given when it is given it, and hangs up when nothing more comes.
async fn dictated() -> (String, mpsc::UnboundedSender<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1/", listener.local_addr().unwrap());
    let (says, mut said) = mpsc::unbounded_channel::<String>();
    tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        let mut request = [0; 64 << 10];
        assert!(socket.read(&mut request).await.unwrap() > 0);
        socket.write_all(HEAD.as_bytes()).await.unwrap();
        while let Some(text) = said.recv().await {
            if socket.write_all(text.as_bytes()).await.is_err() {
                return;
            }
        }
    });
    (url, says)
}

/// Sends a request and gives the socket, of which only what is asked for is read.
async fn ask(server: &Server) -> TcpStream {
    let address = server.url.strip_prefix("http://").unwrap();
    let mut socket = TcpStream::connect(address).await.unwrap();
    let body = streamed("sim-chat").to_string();
    let request = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer test-acme\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    socket.write_all(request.as_bytes()).await.unwrap();
    socket
}

/// The body of an answer in chunks.
fn body(answer: &[u8]) -> String {
    let text = std::str::from_utf8(answer).unwrap();
    let (head, mut rest) = text.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200") && head.contains("transfer-encoding: chunked"), "{head}");
    let mut body = String::new();
    while let Some((size, after)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap();
        body.push_str(&after[..size]);
        rest = &after[size + 2..];
    }
    body
}

#[tokio::test]
async fn an_event_passes_before_the_next_one_comes() {
    let (url, says) = dictated().await;
    let server = in_front_of(&url).await;
    says.send(word("one")).unwrap();
    let mut stream = server.post_open("acme", "/v1/chat/completions", &streamed("sim-chat")).await;
    // Each is sent when the one before it has come, the third with half of the fourth.
    let halves = word("four");
    let (half, rest) = halves.split_at(30);
    for (came, next) in [("one", word("two")), ("two", word("three") + half), ("three", rest.to_owned())] {
        let chunk = tokio::time::timeout(DEADLINE, stream.chunk()).await.expect("it is held back");
        assert_eq!(chunk.unwrap().unwrap(), seen(came));
        says.send(next).unwrap();
    }
    let chunk = tokio::time::timeout(DEADLINE, stream.chunk()).await.expect("it is held back");
    assert_eq!(chunk.unwrap().unwrap(), seen("four"));
    says.send(USAGE.to_owned() + DONE).unwrap();
    drop(says);
    assert_eq!(stream.text().await.unwrap(), DONE);
    server.until(Counter::Settled, 1).await;
    assert_eq!(server.used("acme", "daily_budget_usd"), COST);
}

#[tokio::test]
async fn half_an_event_is_not_passed_when_the_upstream_dies() {
    // Without a length and not in chunks, hanging up is an end like any other; in chunks it is a fault.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1/", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        let mut request = [0; 64 << 10];
        assert!(socket.read(&mut request).await.unwrap() > 0);
        let sent = word("one") + &word("two")[..30];
        let head = HEAD.replace("connection: close", "transfer-encoding: chunked");
        socket.write_all(format!("{head}{:x}\r\n{sent}\r\n", sent.len()).as_bytes()).await.unwrap();
    });
    let server = in_front_of(&url).await;
    let answer = server.chat("acme", &streamed("sim-chat")).await;
    let rest = answer.text.strip_prefix(&seen("one")).unwrap_or_else(|| panic!("{}", answer.text));
    assert!(rest.starts_with("data: {\"error\":") && rest.contains("upstream_broken"), "{rest}");
    server.until(Counter::Unresolved, 1).await;
    assert_eq!(server.used("acme", "max_inflight"), 0);
}

/// A stream of more than all buffers between an upstream and an asker take.
fn long() -> (Vec<String>, String) {
    let (mut sent, mut want) = (Vec::new(), String::new());
    let padding = "x".repeat(20_000);
    for number in 0..1200 {
        // Hidden from the count of tokens, so that the stream stays within its bound.
        let event = format!("data: {{\"n\":{number},\"padding\":\"{padding}\",\"usage\":null}}\n\n");
        want += &event.replace(",\"usage\":null", "");
        sent.push(event);
    }
    sent.push(USAGE.to_owned() + DONE);
    (sent, want + DONE)
}

#[tokio::test]
async fn an_asker_that_pauses_longer_than_a_lease_lives_gets_every_byte_in_order() {
    const LIFE: Duration = Duration::from_secs(1);
    let file = std::env::temp_dir().join(format!("gateway-pause-{}.yaml", std::process::id()));
    let policy = std::fs::read_to_string(POLICY).unwrap();
    std::fs::write(&file, format!("{policy}\nsettings: {{lease_ttl_ms: {}}}\n", LIFE.as_millis())).unwrap();
    let (url, says) = dictated().await;
    let source = Source { policy: Some(file.clone()), prices: None };
    let server = start(source, Upstream::http(&url, None).unwrap()).await;
    std::fs::remove_file(&file).unwrap();
    let (sent, want) = long();
    sent.into_iter().for_each(|text| says.send(text).unwrap());
    drop(says);
    let mut socket = ask(&server).await;
    let pause = Instant::now();
    while pause.elapsed() < LIFE * 2 {
        server.gateway.gate.sweep(100);
        assert_eq!(server.counted(Counter::Settled), 0, "buffers have taken all of it");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let (mut answer, mut part) = (Vec::new(), vec![0; 256 << 10]);
    loop {
        match tokio::time::timeout(DEADLINE, socket.read(&mut part)).await.expect("it stands still").unwrap() {
            0 => break,
            length => answer.extend_from_slice(&part[..length]),
        }
    }
    assert!(body(&answer) == want, "what came is not what was sent");
    server.until(Counter::Settled, 1).await;
    assert_eq!((server.counted(Counter::Unresolved), server.used("acme", "daily_budget_usd")), (0, COST));
}

#[tokio::test]
async fn who_stops_reading_is_given_up_and_charged_what_was_used() {
    let (url, says) = dictated().await;
    let patience = Patience { reader: Duration::from_millis(50), ..Patience::default() };
    let source = Source { policy: Some(POLICY.into()), prices: None };
    // Less than is read after an asker has left.
    let sent = long().0;
    sent[..700].iter().chain(sent.last()).for_each(|text| says.send(text.clone()).unwrap());
    drop(says);
    let server = start_with(source, Upstream::http(&url, None).unwrap(), patience).await;
    let socket = ask(&server).await;
    server.until(Counter::Settled, 1).await;
    assert_eq!(server.used("acme", "daily_budget_usd"), COST);
    assert_eq!(server.used("acme", "max_inflight"), 0);
    drop(socket);
}

#[tokio::test]
async fn who_leaves_in_the_middle_of_much_is_charged_what_was_used() {
    let (url, says) = dictated().await;
    let server = in_front_of(&url).await;
    let (mut sent, _) = long();
    let usage = sent.pop().unwrap();
    sent[..300].iter().for_each(|text| says.send(text.clone()).unwrap());
    let mut socket = ask(&server).await;
    let mut some = [0; 1000];
    assert!(socket.read(&mut some).await.unwrap() > 0);
    drop(socket);
    sent[300..600].iter().chain([&usage]).for_each(|text| says.send(text.clone()).unwrap());
    drop(says);
    server.until(Counter::Settled, 1).await;
    assert_eq!(server.used("acme", "daily_budget_usd"), COST);
}
