//! An upstream that costs as little as may be: it reads a request and writes an answer that is ready.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

/// Events of a stream with text.
pub const EVENTS: usize = 16;

/// Starts it on a free port; it ends with the process.
pub fn start() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    std::thread::spawn(move || {
        for connection in listener.incoming().flatten() {
            std::thread::spawn(move || serve(connection));
        }
    });
    address
}

/// Answers on one connection until the other side closes it.
fn serve(mut connection: TcpStream) {
    connection.set_nodelay(true).expect("a connection");
    let (whole, events) = (whole(), events());
    let mut request = Vec::new();
    while let Some(stream) = read(&mut connection, &mut request) {
        let sent = match stream {
            false => connection.write_all(&whole),
            // Each event by itself, as a model gives them.
            true => events.iter().try_for_each(|event| connection.write_all(event)),
        };
        if sent.is_err() {
            return;
        }
    }
}

/// Reads a request; whether it wants a stream, or nothing at the end of the connection.
fn read(connection: &mut TcpStream, request: &mut Vec<u8>) -> Option<bool> {
    request.clear();
    let mut piece = [0; 16 * 1024];
    loop {
        let length = connection.read(&mut piece).ok().filter(|length| *length > 0)?;
        request.extend_from_slice(&piece[..length]);
        let Some(head) = request.windows(4).position(|end| end == b"\r\n\r\n") else { continue };
        let lines = String::from_utf8_lossy(&request[..head]).to_ascii_lowercase();
        let body = lines.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse::<usize>().ok());
        if request.len() >= head + 4 + body.unwrap_or(0) {
            let wants = b"\"stream\":true";
            return Some(request[head..].windows(wants.len()).any(|part| part == wants));
        }
    }
}

fn whole() -> Vec<u8> {
    let body = r#"{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"small","choices":[{"index":0,"message":{"role":"assistant","content":"It held two, as it turned out, and very nearly a third."},"finish_reason":"stop"}],"usage":{"prompt_tokens":450,"completion_tokens":13,"total_tokens":463}}"#;
    format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}", body.len())
        .into_bytes()
}

/// The head and the chunks of a stream.
fn events() -> Vec<Vec<u8>> {
    let chunk = |event: &str| format!("{:x}\r\n{event}\r\n", event.len()).into_bytes();
    let event = |choices: &str, usage: &str| {
        format!(
            "data: {{\"id\":\"chatcmpl-8xJ2Ww3c9sYh1bQkz0vTn4mLrE7pA\",\"object\":\"chat.completion.chunk\",\
             \"created\":1764500000,\"model\":\"small\",\"system_fingerprint\":\"fp_eb9dce56a8\",\
             \"choices\":[{choices}],\"usage\":{usage}}}\n\n"
        )
    };
    let text = r#"{"index":0,"delta":{"content":" and of boats, which"},"logprobs":null,"finish_reason":null}"#;
    let stop = r#"{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}"#;
    let usage = r#"{"prompt_tokens":450,"completion_tokens":80,"total_tokens":530}"#;
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    let mut all = vec![head.as_bytes().to_vec()];
    all.extend((0..EVENTS).map(|_| chunk(&event(text, "null"))));
    all.push(chunk(&event(stop, "null")));
    all.push(chunk(&event("", usage)));
    all.push(chunk("data: [DONE]\n\n"));
    all.push(b"0\r\n\r\n".to_vec());
    all
}
