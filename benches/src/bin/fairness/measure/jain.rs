//! Jain's index: over windows in which tenants stay queued, and against what each is entitled to.

use crate::load::SECOND;

/// 1 where all values are alike, 1/n where one has everything.
pub fn jain(values: &[f64]) -> f64 {
    let sum: f64 = values.iter().sum();
    let squares: f64 = values.iter().map(|value| value * value).sum();
    if squares == 0.0 { 1.0 } else { sum * sum / (values.len() as f64 * squares) }
}

/// What each tenant is entitled to: nobody more than it asks for, and of the rest all the same by weight.
pub fn entitlements(demand: &[u64], weights: &[u64], capacity: u64) -> Vec<f64> {
    let mut by_need: Vec<usize> = (0..demand.len()).collect();
    by_need.sort_by(|a, b| {
        let need = |tenant: usize| demand[tenant] as f64 / weights[tenant] as f64;
        need(*a).total_cmp(&need(*b))
    });
    let (mut left, mut weight) = (capacity as f64, weights.iter().sum::<u64>() as f64);
    let mut entitled = vec![0.0; demand.len()];
    for tenant in by_need {
        let share = left * weights[tenant] as f64 / weight;
        entitled[tenant] = share.min(demand[tenant] as f64);
        left -= entitled[tenant];
        weight -= weights[tenant] as f64;
    }
    entitled
}

/// Jain's index over windows of ten seconds, of the tenants of a lane that stay queued through the whole of each.
#[derive(Debug, Default)]
pub struct Windows {
    /// Of the window that is open: each tenant's streak and service at its start.
    start: Vec<Option<(u64, u64)>>,
    sum: f64,
    count: u64,
}

/// How long a window is.
const WINDOW: u64 = 10 * SECOND;

impl Windows {
    /// Looks at all tenants: what each has received, its weight, and the number of its streak of being queued, where it is.
    pub fn look(&mut self, now: u64, service: &[u64], weights: &[u64], streaks: &[Option<u64>]) {
        if !now.is_multiple_of(WINDOW) {
            return;
        }
        let stayed = |tenant: &usize| {
            let started = self.start.get(*tenant).copied().flatten();
            started.is_some_and(|(streak, _)| streaks[*tenant] == Some(streak))
        };
        let gained: Vec<f64> = (0..service.len())
            .filter(stayed)
            .filter_map(|tenant| Some((service[tenant] - self.start[tenant]?.1) as f64 / weights[tenant] as f64))
            .collect();
        if gained.len() >= 2 {
            self.sum += jain(&gained);
            self.count += 1;
        }
        self.start = streaks.iter().zip(service).map(|(streak, service)| streak.map(|s| (s, *service))).collect();
    }

    /// The mean over all windows in which at least two stayed queued.
    pub fn mean(&self) -> f64 {
        if self.count == 0 { f64::NAN } else { self.sum / self.count as f64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_gets_more_than_it_asks_for() {
        assert_eq!(entitlements(&[10, 100, 100], &[1, 1, 1], 90), [10.0, 40.0, 40.0]);
        assert_eq!(entitlements(&[100, 100], &[1, 3], 80), [20.0, 60.0]);
        assert_eq!(entitlements(&[1, 2], &[1, 1], 80), [1.0, 2.0]);
        assert_eq!((jain(&[2.0, 2.0]), jain(&[1.0, 0.0])), (1.0, 0.5));
    }

    #[test]
    fn only_who_stayed_queued_counts() {
        let mut windows = Windows::default();
        windows.look(0, &[0, 0, 0], &[1, 1, 1], &[Some(0), Some(0), Some(0)]);
        windows.look(10 * SECOND, &[5, 5, 90], &[1, 1, 1], &[Some(0), Some(0), Some(1)]);
        assert_eq!(windows.mean(), 1.0);
    }
}
