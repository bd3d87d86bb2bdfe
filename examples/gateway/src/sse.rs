//! Events of a stream: bytes in pieces of any size become whole events.
//!
//! Invariant: linear in the bytes, and never more than [`MAX_EVENT`] bytes and one piece are kept.

use memchr::memchr2;

/// The longest event, in bytes.
pub const MAX_EVENT: usize = 4 << 20;

/// An event longer than [`MAX_EVENT`].
#[derive(Debug, PartialEq, Eq)]
pub struct TooLong;

/// Splits a stream into its events.
#[derive(Debug, Default)]
pub struct Events {
    buffer: Vec<u8>,
    /// Bytes at the front that have been given out.
    taken: usize,
    /// Bytes at the front in which no event ends that has not been given out.
    scanned: usize,
}

impl Events {
    /// Adds bytes of the stream.
    ///
    /// # Errors
    /// [`TooLong`] if what waits for the end of its event is too long.
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), TooLong> {
        self.buffer.drain(..self.taken);
        self.scanned -= self.taken;
        self.taken = 0;
        if self.buffer.len() > MAX_EVENT {
            return Err(TooLong);
        }
        self.buffer.extend_from_slice(bytes);
        Ok(())
    }

    /// The next whole event with the blank line that ends it.
    pub fn next_event(&mut self) -> Option<&[u8]> {
        while let Some(end) = memchr2(b'\n', b'\r', &self.buffer[self.scanned..]) {
            self.scanned += end + 1;
            if blank_line(&self.buffer[self.taken..self.scanned]) {
                let event = self.taken..self.scanned;
                self.taken = self.scanned;
                return Some(&self.buffer[event]);
            }
        }
        self.scanned = self.buffer.len();
        None
    }

    /// What is left at the end of the stream.
    pub fn rest(&mut self) -> &[u8] {
        let rest = self.taken..self.buffer.len();
        self.taken = self.buffer.len();
        self.scanned = self.buffer.len();
        &self.buffer[rest]
    }
}

fn blank_line(bytes: &[u8]) -> bool {
    bytes.ends_with(b"\n\n") || bytes.ends_with(b"\r\n\r\n") || bytes.ends_with(b"\r\r")
}

/// The data of an event: its `data` lines, joined by line breaks. `None` for one without (a comment).
pub fn data(event: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(event);
    let lines = text.split(['\n', '\r']).filter_map(|line| line.strip_prefix("data:"));
    let lines: Vec<&str> = lines.map(|line| line.strip_prefix(' ').unwrap_or(line)).collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_whole_however_the_bytes_come() {
        let text = b"data: a\n\n: note\r\n\r\nevent: x\ndata: b\ndata:c\n\ndata: left";
        for size in 1..=text.len() {
            let mut events = Events::default();
            let mut found = Vec::new();
            for piece in text.chunks(size) {
                events.push(piece).unwrap();
                while let Some(event) = events.next_event() {
                    found.push(data(event));
                }
            }
            assert_eq!(found, [Some("a".into()), None, Some("b\nc".into())], "pieces of {size}");
            assert_eq!(events.rest(), b"data: left");
            assert_eq!(events.next_event(), None);
        }
    }

    #[test]
    fn an_event_without_end_is_refused() {
        let mut events = Events::default();
        assert_eq!(events.push(&vec![b'x'; MAX_EVENT + 1]), Ok(()));
        assert_eq!(events.next_event(), None);
        assert_eq!(events.push(b"x"), Err(TooLong));
    }
}
