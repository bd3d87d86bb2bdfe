//! An upstream that costs as little as may be: it reads requests and writes answers that are ready, in a thread of its own
//! or in turns with whoever loads it.

use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};

use super::head::Head;

/// Events of a stream with text.
pub const EVENTS: usize = 16;

const LISTENER: Token = Token(usize::MAX);
/// How much is read at once.
pub const PIECE: usize = 16 * 1024;

pub struct Upstream {
    pub address: SocketAddr,
    listener: TcpListener,
    poll: Poll,
    events: Events,
    /// A place for each connection there ever was: tokens are not used again.
    all: Vec<Option<Connection>>,
    answering: Vec<usize>,
    /// The parts of an answer, whole and as a stream.
    answers: [&'static [Vec<u8>]; 2],
    piece: Box<[u8]>,
}

struct Connection {
    socket: TcpStream,
    request: Vec<u8>,
    /// What is still to be written, each part by itself.
    parts: std::slice::Iter<'static, Vec<u8>>,
}

impl Upstream {
    /// One on a free port.
    pub fn new() -> Upstream {
        let free = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut listener = TcpListener::bind(free).expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let poll = Poll::new().expect("a poll");
        poll.registry().register(&mut listener, LISTENER, Interest::READABLE).expect("it is registered");
        let answers: [&'static [_]; 2] = [vec![whole()].leak(), events().leak()];
        let (events, piece) = (Events::with_capacity(1024), vec![0; PIECE].into());
        Upstream { address, listener, poll, events, all: Vec::new(), answering: Vec::new(), answers, piece }
    }

    /// Runs it in a thread of its own, to the end of the process.
    pub fn run(mut self) {
        std::thread::spawn(move || {
            loop {
                self.turn(None);
            }
        });
    }

    /// Reads what is there, and writes one part of each answer, as a model gives its events; waits so long for something to do.
    pub fn turn(&mut self, wait: Option<Duration>) {
        let wait = if self.answering.is_empty() { wait } else { Some(Duration::ZERO) };
        self.poll.poll(&mut self.events, wait).expect("it waits");
        for event in &self.events {
            let Token(number) = event.token();
            if event.token() == LISTENER {
                while let Ok((mut socket, _)) = self.listener.accept() {
                    socket.set_nodelay(true).expect("a connection");
                    let token = Token(self.all.len());
                    self.poll.registry().register(&mut socket, token, Interest::READABLE).expect("it is registered");
                    self.all.push(Some(Connection { socket, request: Vec::new(), parts: [].iter() }));
                }
            } else if let Some(connection) = &mut self.all[number] {
                match connection.read(&mut self.piece) {
                    Ok(Some(streams)) => {
                        connection.parts = self.answers[usize::from(streams)].iter();
                        self.answering.push(number);
                    }
                    Ok(None) => {}
                    Err(_) => self.all[number] = None,
                }
            }
        }
        let all = &mut self.all;
        self.answering.retain(|number| all[*number].as_mut().is_some_and(Connection::write));
    }
}

impl Connection {
    /// Reads what is there; whether the request wants a stream, once it is whole. An error at the connection's end.
    fn read(&mut self, piece: &mut [u8]) -> std::io::Result<Option<bool>> {
        loop {
            match self.socket.read(piece) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(length) => self.request.extend_from_slice(&piece[..length]),
                Err(why) if why.kind() == ErrorKind::WouldBlock => break,
                Err(why) => return Err(why),
            }
        }
        let request = &self.request;
        let Some(head) = Head::of(request).filter(|head| head.is_whole(request)) else { return Ok(None) };
        let streams = String::from_utf8_lossy(&request[head.end..]).contains("\"stream\":true");
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
