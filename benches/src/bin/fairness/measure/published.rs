//! The difference in service as it was published with the virtual token counter, for comparison with its hardware runs.

/// A request that ran, in seconds.
#[derive(Debug, Clone, Copy)]
pub struct Served {
    /// The tenant.
    pub tenant: usize,
    /// When it was sent.
    pub sent: f64,
    /// When its first token came.
    pub first: f64,
    /// When its last token came.
    pub last: f64,
    /// Its work.
    pub work: f64,
}

/// Half of a window of a minute.
const HALF: f64 = 30.0;

/// The largest and the mean of the summed differences at 19 moments of the first ten minutes.
///
/// At each moment, over the minute around it: service counts evenly between a request's first and last token; a tenant's
/// difference is how much less it received than the one with the most, but no more than it asked for beyond what it received.
pub fn published_difference(requests: &[Served], tenants: usize) -> (f64, f64) {
    let moments = (1..20).map(|n| (600.0 - HALF) / 20.0 * f64::from(n) + HALF);
    let sums: Vec<f64> = moments
        .map(|moment| {
            let (from, to) = (moment - HALF, moment + HALF);
            let (mut received, mut asked) = (vec![0.0; tenants], vec![0.0; tenants]);
            for request in requests {
                if from <= request.sent && request.sent <= to {
                    asked[request.tenant] += request.work / (2.0 * HALF);
                }
                let overlap = (to.min(request.last) - from.max(request.first)).max(0.0);
                if request.last > request.first {
                    received[request.tenant] += request.work * overlap / (request.last - request.first) / (2.0 * HALF);
                }
            }
            let most = received.iter().copied().fold(0.0, f64::max);
            received.iter().zip(&asked).map(|(received, asked)| (most - received).min((asked - received).abs())).sum()
        })
        .collect();
    (sums.iter().copied().fold(0.0, f64::max), sums.iter().sum::<f64>() / sums.len() as f64)
}
