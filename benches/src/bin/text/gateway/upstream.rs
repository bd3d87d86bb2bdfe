//! An upstream that costs as little as may be: one thread that reads requests and writes answers that are ready.

use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};

/// Events of a stream with text.
pub const EVENTS: usize = 16;

const LISTENER: Token = Token(usize::MAX);

/// Starts it on a free port; it ends with the process.
pub fn start() -> SocketAddr {
    let free = SocketAddr::from(([127, 0, 0, 1], 0));
    let listener = TcpListener::bind(free).expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    std::thread::spawn(move || serve(listener));
    address
}

struct Connection {
    socket: TcpStream,
    request: Vec<u8>,
    /// What is still to be written, each part by itself.
    parts: std::slice::Iter<'static, Vec<u8>>,
}

fn serve(mut listener: TcpListener) {
    let (whole, stream): (&'static [_], &'static [_]) = (vec![whole()].leak(), events().leak());
    let mut poll = Poll::new().expect("a poll");
    poll.registry().register(&mut listener, LISTENER, Interest::READABLE).expect("it is registered");
    let mut events = Events::with_capacity(1024);
    // A place for each connection there ever was: tokens are not used again.
    let mut all: Vec<Option<Connection>> = Vec::new();
    let mut answering: Vec<usize> = Vec::new();
    loop {
        poll.poll(&mut events, (!answering.is_empty()).then_some(Duration::ZERO)).expect("it waits");
        for event in &events {
            let Token(number) = event.token();
            if event.token() == LISTENER {
                while let Ok((mut socket, _)) = listener.accept() {
                    socket.set_nodelay(true).expect("a connection");
                    let token = Token(all.len());
                    poll.registry().register(&mut socket, token, Interest::READABLE).expect("it is registered");
                    all.push(Some(Connection { socket, request: Vec::new(), parts: [].iter() }));
                }
            } else if let Some(connection) = &mut all[number] {
                match connection.read() {
                    Ok(Some(streams)) => {
                        connection.parts = if streams { stream.iter() } else { whole.iter() };
                        answering.push(number);
                    }
                    Ok(None) => {}
                    Err(_) => all[number] = None,
                }
            }
        }
        // One part of each answer in turn, as a model gives its events.
        answering.retain(|number| all[*number].as_mut().is_some_and(Connection::write));
    }
}

impl Connection {
    /// Reads what is there; whether the request wants a stream, once it is whole. An error at the connection's end.
    fn read(&mut self) -> std::io::Result<Option<bool>> {
        let mut piece = [0; 16 * 1024];
        loop {
            match self.socket.read(&mut piece) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(length) => self.request.extend_from_slice(&piece[..length]),
                Err(why) if why.kind() == ErrorKind::WouldBlock => break,
                Err(why) => return Err(why),
            }
        }
        let request = &self.request;
        let Some(head) = request.windows(4).position(|end| end == b"\r\n\r\n") else { return Ok(None) };
        let lines = String::from_utf8_lossy(&request[..head]).to_ascii_lowercase();
        let body = lines.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse::<usize>().ok());
        if request.len() < head + 4 + body.unwrap_or(0) {
            return Ok(None);
        }
        let wants = b"\"stream\":true";
        let streams = request[head..].windows(wants.len()).any(|part| part == wants);
        self.request.clear();
        Ok(Some(streams))
    }

    /// Writes the next part; whether there are more. A part is smaller than what the system buffers.
    fn write(&mut self) -> bool {
        self.parts.next().is_some_and(|part| self.socket.write_all(part).is_ok()) && !self.parts.as_slice().is_empty()
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
