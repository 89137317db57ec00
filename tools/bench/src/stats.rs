//! Medians and quantiles.

use std::time::Duration;

/// The middle value; of an even number of values the mean of the two in the middle. 0 of none.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match (values.len() / 2, values.len() % 2) {
        (0, 0) => 0.0,
        (half, 0) => f64::midpoint(values[half - 1], values[half]),
        (half, _) => values[half],
    }
}

/// How long each of many operations took.
#[derive(Debug, Clone, Default)]
pub struct Times(Vec<Duration>);

impl Times {
    /// One more.
    pub fn add(&mut self, time: Duration) {
        self.0.push(time);
    }

    /// All of another sample too.
    pub fn join(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// The mean in microseconds; 0 of none.
    pub fn mean(&self) -> f64 {
        let total: Duration = self.0.iter().sum();
        micros(total) / (self.0.len().max(1) as f64)
    }

    /// The time that a part `q` of them didn't exceed, in microseconds; 0 of none.
    pub fn quantile(&mut self, q: f64) -> f64 {
        self.0.sort_unstable();
        let last = self.0.len().saturating_sub(1);
        let at = (last as f64 * q).round() as usize;
        self.0.get(at).copied().map_or(0.0, micros)
    }
}

/// A duration in microseconds.
pub fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn middle_values() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(median(Vec::new()), 0.0);
    }

    #[test]
    fn quantiles_are_values_of_the_sample() {
        let mut times = Times::default();
        (0..=100).rev().for_each(|n| times.add(Duration::from_micros(n)));
        assert_eq!((times.quantile(0.5), times.quantile(0.99), times.quantile(1.0)), (50.0, 99.0, 100.0));
        assert_eq!(times.mean(), 50.0);
    }
}
