//! What inference servers tell, of any bytes: every dialect reads it or refuses it, and what is read is within ranges.

use quota_core::gpu::{Dialect, exposition};

/// Reads an exposition in every dialect.
pub fn run(bytes: &[u8]) {
    // As the poller does: what is no UTF-8 is replaced.
    let text = String::from_utf8_lossy(bytes);
    let mut all = exposition::samples(&text).unwrap();
    let samples = all.by_ref().inspect(|sample| assert!(!sample.name.is_empty())).count();
    assert!(samples + all.bad_lines() as usize <= text.split('\n').count());
    for dialect in Dialect::ALL {
        for model in [None, Some("a")] {
            let Ok(read) = dialect.read(&text, model) else { continue };
            let load = &read.load;
            let counts = [load.running, load.waiting, load.preemptions, load.kv_tokens, load.max_running];
            assert!(counts.iter().flatten().all(|count| *count < 1 << 52));
            assert!(load.kv_tokens != Some(0) && load.max_running != Some(0));
            assert!(load.kv_used_ppm.is_none_or(|ppm| ppm <= 1_000_000));
            assert!(load.as_of.is_none() && !load.stale && read.models.len() <= 16);
        }
    }
}
