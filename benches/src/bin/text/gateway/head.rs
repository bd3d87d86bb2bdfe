//! The head of a request or an answer, as far as it says where the body ends.

/// A whole head.
pub struct Head {
    /// Where the body begins.
    pub end: usize,
    /// How long the body is, where the head says so.
    pub length: Option<usize>,
}

impl Head {
    /// The head at the front; `None` if it is not all there.
    pub fn of(bytes: &[u8]) -> Option<Head> {
        let (mut start, mut length) = (0, None);
        loop {
            let line = bytes[start..].split(|byte| *byte == b'\n').next()?;
            let end = start + line.len() + 1;
            if end > bytes.len() {
                return None;
            }
            if line == b"\r" {
                return Some(Head { end, length });
            }
            const NAME: &[u8] = b"content-length:";
            if line.get(..NAME.len()).is_some_and(|name| name.eq_ignore_ascii_case(NAME)) {
                length = std::str::from_utf8(&line[NAME.len()..]).ok().and_then(|length| length.trim().parse().ok());
            }
            start = end;
        }
    }

    /// Whether a body of a stated length is all there.
    pub fn is_whole(&self, bytes: &[u8]) -> bool {
        self.length.is_some_and(|length| bytes.len() >= self.end + length)
    }
}
