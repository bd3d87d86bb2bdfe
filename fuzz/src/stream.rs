//! A streamed answer of any bytes, in every dialect: however it is cut, the same bytes pass and the same is read.
//!
//! The first byte chooses the dialect, the second whether usage is taken out and how long an event may be, the third how
//! many of the next bytes say how long the slices are.

use quota_core::usage::{Dialect, StreamEnd, StreamReader};

/// Reads a stream whole, by single bytes and in slices.
pub fn run(bytes: &[u8]) {
    let [dialect, options, cuts, rest @ ..] = bytes else { return };
    let dialect = Dialect::ALL[*dialect as usize % Dialect::ALL.len()];
    let strip = options & 1 == 1;
    let max = [None, Some(0), Some(65), Some(300)][(options >> 1) as usize % 4];
    let (sizes, stream) = rest.split_at((*cuts as usize % 16).min(rest.len()));
    let reader = || {
        let reader = StreamReader::new(dialect).strip_usage(strip);
        match max {
            Some(max) => reader.max_event(max),
            None => reader,
        }
    };
    let whole = read(reader(), stream, &[]);
    for sizes in [&[1], sizes] {
        let cut = read(reader(), stream, sizes);
        assert_eq!(cut, whole, "in slices of {sizes:?}");
    }
    if !strip {
        assert_eq!(whole.bytes, stream);
    }
    let mut left = stream.iter();
    assert!(whole.bytes.iter().all(|byte| left.any(|came| came == byte)), "what passes came, in this order");
}

/// What became of a stream.
#[derive(Debug, PartialEq, Eq)]
struct Passed {
    bytes: Vec<u8>,
    /// Output before the end.
    output: u64,
    end: StreamEnd,
}

/// Reads a stream in slices of these lengths, over and over; whole if there are none.
fn read(mut reader: StreamReader, stream: &[u8], sizes: &[u8]) -> Passed {
    let mut bytes = Vec::new();
    let mut sizes = sizes.iter().cycle();
    let mut rest = stream;
    while !rest.is_empty() {
        let size = sizes.next().map_or(rest.len(), |size| (*size as usize).clamp(1, rest.len()));
        let (slice, after) = rest.split_at(size);
        reader.feed(slice, |segment| {
            assert!(!segment.is_empty());
            bytes.extend_from_slice(segment);
        });
        rest = after;
    }
    let output = reader.output_so_far();
    let end = reader.finish(|segment| bytes.extend_from_slice(segment));
    Passed { bytes, output, end }
}
