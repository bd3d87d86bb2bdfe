//! The difference between two tenants: how far what they receive drifts apart while both stay queued.

/// How often tenants are compared, in nanoseconds.
pub const GRID: u64 = 50_000_000;

/// The state of one pair.
#[derive(Debug, Clone, Copy)]
struct Pair {
    /// The streaks of being queued that the figures belong to.
    streaks: (u64, u64),
    start: f64,
    least: f64,
    most: f64,
}

/// All pairs of tenants of one lane.
#[derive(Debug)]
pub struct Pairs {
    /// Two tenants and, once both were queued, how they stood.
    pairs: Vec<(usize, usize, Option<Pair>)>,
    largest: f64,
}

/// Above so many tenants there are too many pairs, and what each receives is compared with its entitlement instead.
const MOST_TENANTS: usize = 80;

impl Pairs {
    /// The pairs among tenants in these lanes.
    pub fn new(lanes: &[usize]) -> Pairs {
        let mut pairs = Vec::new();
        for f in (0..lanes.len()).filter(|_| lanes.len() <= MOST_TENANTS) {
            pairs.extend((0..f).filter(|g| lanes[*g] == lanes[f]).map(|g| (f, g, None)));
        }
        Pairs { pairs, largest: 0.0 }
    }

    /// Compares all pairs that are queued; gives the largest drift of them since each pair has been queued.
    pub fn look(&mut self, received: &[f64], streaks: &[Option<u64>]) -> f64 {
        let mut now = 0.0_f64;
        for (f, g, pair) in &mut self.pairs {
            let (Some(mine), Some(its)) = (streaks[*f], streaks[*g]) else {
                *pair = None;
                continue;
            };
            let apart = received[*f] - received[*g];
            let known = pair.filter(|pair| pair.streaks == (mine, its));
            let mut known = known.unwrap_or(Pair { streaks: (mine, its), start: apart, least: apart, most: apart });
            known.least = known.least.min(apart);
            known.most = known.most.max(apart);
            self.largest = self.largest.max(known.most - known.least);
            now = now.max((apart - known.start).abs());
            *pair = Some(known);
        }
        now
    }

    /// The largest range over any stretch in which both of a pair stayed queued.
    pub fn largest(&self) -> f64 {
        self.largest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_of_one_stretch() {
        let mut pairs = Pairs::new(&[0, 0, 1]);
        assert_eq!(pairs.look(&[0.0, 10.0, 500.0], &[Some(0), Some(0), Some(0)]), 0.0);
        assert_eq!(pairs.look(&[0.0, 40.0, 900.0], &[Some(0), Some(0), Some(0)]), 30.0);
        assert_eq!(pairs.look(&[35.0, 40.0, 900.0], &[Some(0), Some(0), Some(0)]), 5.0);
        assert_eq!(pairs.largest(), 35.0);
        // A new stretch begins where it begins.
        pairs.look(&[135.0, 40.0, 900.0], &[Some(0), Some(1), Some(0)]);
        assert_eq!(pairs.largest(), 35.0);
    }
}
