//! Load over connections that are kept, from one thread that waits for all of them, or never waits and is the upstream too.
//!
//! With a rate, requests are due at fixed times, whether or not earlier ones have been answered, and an answer's time counts
//! from when its request was due: what waits for a connection, or for this thread, has waited. Without one, each connection
//! sends its next request as soon as its answer is there.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token, Waker};

use super::head::Head;
use super::upstream::{PIECE, Upstream};

/// Characters of the prompt.
const PROMPT: usize = 2000;
/// Wakes the thread when a request is due.
const DUE: Token = Token(usize::MAX);
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// What is sent where.
#[derive(Clone, Copy)]
pub struct Load {
    pub to: SocketAddr,
    pub stream: bool,
    /// Requests a second over all connections; as many as come back if there is none.
    pub rate: Option<f64>,
}

/// What came back.
pub struct Told {
    /// From when a request was due to its answer's last byte, in microseconds.
    pub micros: Vec<f64>,
    time: Duration,
}

impl Told {
    pub fn rate(&self) -> f64 {
        self.micros.len() as f64 / self.time.as_secs_f64()
    }
}

struct Connection {
    socket: TcpStream,
    answer: Vec<u8>,
    /// When the request that it is at was due.
    due: Instant,
}

impl Load {
    /// Runs for so long, on so many connections. With an upstream the thread takes turns with it and never waits, so that
    /// nothing has to wake it; else it waits for answers, and is woken when a request is due.
    pub fn run(self, connections: usize, time: Duration, mut upstream: Option<&mut Upstream>) -> Told {
        let mut poll = Poll::new().expect("a poll");
        let waker = Waker::new(poll.registry(), DUE).expect("a waker");
        let every = self.rate.map(|rate| Duration::from_secs_f64(1.0 / rate));
        let mut all: Vec<Connection> = (0..connections).map(|number| self.connect(&poll, number)).collect();
        // What is made with the first request of a connection is not what is measured.
        self.until(&mut poll, &mut all, Instant::now(), Instant::now(), None, upstream.as_deref_mut());
        let start = Instant::now();
        let end = start + time;
        let micros = std::thread::scope(|scope| {
            // It lives as long as the poll: what is closed wakes nobody.
            let waker = &waker;
            if let Some(every) = every.filter(|_| upstream.is_none()) {
                scope.spawn(move || {
                    let dues = (0..).map(|number| start + every * number).take_while(|due| *due < end);
                    dues.for_each(|due| {
                        std::thread::sleep(due.saturating_duration_since(Instant::now()));
                        waker.wake().expect("the thread is there");
                    });
                });
            }
            self.until(&mut poll, &mut all, start, end, every, upstream)
        });
        Told { micros, time: start.elapsed() }
    }

    fn connect(self, poll: &Poll, number: usize) -> Connection {
        let socket = std::net::TcpStream::connect(self.to).expect("it listens");
        socket.set_nodelay(true).expect("a connection");
        socket.set_nonblocking(true).expect("a connection");
        let mut socket = TcpStream::from_std(socket);
        poll.registry().register(&mut socket, Token(number), Interest::READABLE).expect("it is registered");
        Connection { socket, answer: Vec::new(), due: Instant::now() }
    }

    /// Sends what is due before the end, at least one request a connection, and waits for all answers; what each took.
    fn until(
        self,
        poll: &mut Poll,
        all: &mut [Connection],
        start: Instant,
        end: Instant,
        every: Option<Duration>,
        mut upstream: Option<&mut Upstream>,
    ) -> Vec<f64> {
        let request = self.request();
        let mut piece = vec![0; PIECE];
        let mut heard = Instant::now();
        let mut events = Events::with_capacity(all.len() + 1);
        let mut free: VecDeque<usize> = (0..all.len()).collect();
        let (mut sent, mut micros) = (0, Vec::new());
        loop {
            let now = Instant::now();
            let due = |sent: u32| every.map_or(now, |every| start + every * sent);
            while (sent < all.len() as u32 || due(sent) < end) && due(sent) <= now {
                let Some(number) = free.pop_front() else { break };
                all[number].send(&request, due(sent));
                sent += 1;
            }
            if free.len() == all.len() && due(sent) >= end {
                return micros;
            }
            let wait = upstream.as_ref().map_or(PATIENCE, |_| Duration::ZERO);
            if let Some(upstream) = &mut upstream {
                upstream.turn(Some(Duration::ZERO));
            }
            poll.poll(&mut events, Some(wait)).expect("it waits");
            if !events.is_empty() {
                heard = now;
            }
            assert!(heard.elapsed() < PATIENCE, "no answer in {PATIENCE:?}");
            for event in events.iter().filter(|event| event.token() != DUE) {
                let Token(number) = event.token();
                if self.is_answered(&mut all[number], &mut piece) {
                    micros.push(all[number].due.elapsed().as_nanos() as f64 / 1000.0);
                    free.push_back(number);
                }
            }
        }
    }

    /// Reads what is there of an answer; whether that is all of it.
    fn is_answered(self, connection: &mut Connection, piece: &mut [u8]) -> bool {
        loop {
            match connection.socket.read(piece) {
                Ok(0) => panic!("the connection ended within {}", String::from_utf8_lossy(&connection.answer)),
                Ok(length) => connection.answer.extend_from_slice(&piece[..length]),
                Err(why) if why.kind() == ErrorKind::WouldBlock => break,
                Err(why) => panic!("no answer: {why}"),
            }
        }
        let answer = &connection.answer;
        let whole = self.is_whole(answer);
        assert!(!whole || answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(answer));
        whole
    }

    fn is_whole(self, answer: &[u8]) -> bool {
        if self.stream && answer.starts_with(b"HTTP/1.1 200") {
            return answer.ends_with(b"0\r\n\r\n");
        }
        Head::of(answer).is_some_and(|head| head.is_whole(answer))
    }

    fn request(self) -> Vec<u8> {
        let prompt = "It held two, as it turned out, and very nearly a third. ".repeat(PROMPT / 56);
        let body = format!(
            "{{\"model\":\"small\",\"max_tokens\":100,\"stream\":{},\"user\":\"u1\",\"messages\":[{{\"role\":\"user\",\"content\":\"{prompt}\"}}]}}",
            self.stream
        );
        format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer bench\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            self.to,
            body.len()
        )
        .into_bytes()
    }
}

impl Connection {
    fn send(&mut self, request: &[u8], due: Instant) {
        self.answer.clear();
        self.due = due;
        // It has nothing else to send, and a request is smaller than what the system buffers.
        self.socket.write_all(request).expect("it takes the request");
    }
}
