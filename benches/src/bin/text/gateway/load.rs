//! Load over connections that are kept: each sends a request, waits for the end of its answer, and sends the next one.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Barrier;
use std::time::{Duration, Instant};

/// Characters of the prompt.
const PROMPT: usize = 2000;

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
    /// From the request's first byte to the answer's last one, in microseconds.
    pub micros: Vec<f64>,
    time: Duration,
}

impl Told {
    pub fn rate(&self) -> f64 {
        self.micros.len() as f64 / self.time.as_secs_f64()
    }
}

impl Load {
    /// Runs for so long, on so many connections.
    pub fn run(self, connections: usize, time: Duration) -> Told {
        let request = self.request();
        let ready = Barrier::new(connections);
        let micros = std::thread::scope(|scope| {
            let one = |number: usize| {
                let (request, ready) = (&request, &ready);
                move || {
                    let mut connection = TcpStream::connect(self.to).expect("it listens");
                    connection.set_nodelay(true).expect("a connection");
                    let mut answer = Vec::new();
                    // What is made with the first request of a connection is not what is measured.
                    self.call(&mut connection, request, &mut answer);
                    ready.wait();
                    let start = Instant::now();
                    let every = self.rate.map(|rate| Duration::from_secs_f64(connections as f64 / rate));
                    let mut due = start + every.unwrap_or_default().mul_f64(number as f64 / connections as f64);
                    let mut micros = Vec::new();
                    while start.elapsed() < time {
                        if let Some(every) = every {
                            std::thread::sleep(due.saturating_duration_since(Instant::now()));
                            due += every;
                        }
                        let sent = Instant::now();
                        self.call(&mut connection, request, &mut answer);
                        micros.push(sent.elapsed().as_nanos() as f64 / 1000.0);
                    }
                    micros
                }
            };
            let threads: Vec<_> = (0..connections).map(|number| scope.spawn(one(number))).collect();
            threads.into_iter().flat_map(|thread| thread.join().expect("an answer to each request")).collect()
        });
        Told { micros, time }
    }

    /// Sends a request and reads its answer to the end.
    fn call(self, connection: &mut TcpStream, request: &[u8], answer: &mut Vec<u8>) {
        connection.write_all(request).expect("it takes the request");
        answer.clear();
        let mut piece = [0; 16 * 1024];
        loop {
            let length = connection.read(&mut piece).expect("it answers");
            assert!(length > 0, "the connection ended within an answer: {}", String::from_utf8_lossy(answer));
            answer.extend_from_slice(&piece[..length]);
            if self.is_whole(answer) {
                assert!(answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(answer));
                return;
            }
        }
    }

    fn is_whole(self, answer: &[u8]) -> bool {
        if self.stream && answer.starts_with(b"HTTP/1.1 200") {
            return answer.ends_with(b"0\r\n\r\n");
        }
        let Some(head) = answer.windows(4).position(|end| end == b"\r\n\r\n") else { return false };
        let lines = String::from_utf8_lossy(&answer[..head]).to_ascii_lowercase();
        let body = lines.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse::<usize>().ok());
        answer.len() >= head + 4 + body.unwrap_or(0)
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
