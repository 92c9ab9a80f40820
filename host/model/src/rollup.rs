//! What the rollup of launches is made of: its periods, and histograms whose buckets double.

use std::cmp::Ordering;
use std::time::Duration;

use crate::clock::Timestamp;
use crate::words;

words! {
    /// A period of UTC whose launches are counted together.
    Period {
        Hour => "hour",
        Day => "day",
    }
}

/// The shorter one comes first.
impl Ord for Period {
    fn cmp(&self, other: &Period) -> Ordering {
        self.length().cmp(&other.length())
    }
}

impl PartialOrd for Period {
    fn partial_cmp(&self, other: &Period) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Period {
    pub const fn length(self) -> Duration {
        match self {
            Period::Hour => Duration::from_secs(3_600),
            Period::Day => Duration::from_secs(86_400),
        }
    }

    /// Returns how long its counts are kept: hours 14 days, days 2 years.
    pub const fn kept(self) -> Duration {
        match self {
            Period::Hour => Duration::from_secs(14 * 86_400),
            Period::Day => Duration::from_secs(2 * 365 * 86_400),
        }
    }

    /// Returns the beginning of the period with this instant.
    pub fn start(self, at: Timestamp) -> Timestamp {
        let length = i64::try_from(self.length().as_micros()).unwrap_or(i64::MAX);
        Timestamp::from_micros(at.micros() - at.micros().rem_euclid(length))
    }

    /// Returns the beginning of the oldest period that is kept at `now`.
    pub fn oldest(self, now: Timestamp) -> Timestamp {
        self.start(now.minus(self.kept()))
    }
}

/// A histogram of `N` buckets that double. The first has times below 2^`FIRST` milliseconds, each other one times from the
/// end of the one before to below twice of that, and the last also all longer ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogBuckets<const N: usize, const FIRST: u32>([u32; N]);

/// How long launches took: from below 2 ms to 2 h 20 min and more.
pub type DurationBuckets = LogBuckets<24, 1>;

/// How late launches started: from below 8 ms to 131 s and more.
pub type LagBuckets = LogBuckets<16, 3>;

impl<const N: usize, const FIRST: u32> Default for LogBuckets<N, FIRST> {
    fn default() -> Self {
        LogBuckets([0; N])
    }
}

impl<const N: usize, const FIRST: u32> LogBuckets<N, FIRST> {
    /// Counts a time.
    pub fn count(&mut self, time: Duration) {
        let bits = u128::BITS - time.as_millis().leading_zeros();
        let place = bits.saturating_sub(FIRST) as usize;
        if let Some(count) = self.0.get_mut(place.min(N - 1)) {
            *count = count.saturating_add(1);
        }
    }

    /// Adds the counts of another histogram.
    pub fn add(&mut self, other: &Self) {
        for (count, more) in self.0.iter_mut().zip(other.0) {
            *count = count.saturating_add(more);
        }
    }

    /// Returns how many times were counted.
    pub fn total(&self) -> u64 {
        self.0.iter().copied().map(u64::from).sum()
    }

    /// Returns each bucket, empty ones too: its least time, the end of its times, and its count. The last has no end.
    pub fn buckets(&self) -> impl Iterator<Item = (Duration, Option<Duration>, u64)> {
        let bounds = |place: usize| Self::bounds(place);
        let counts = self.0.iter().copied().map(u64::from).enumerate();
        counts.map(move |(place, count)| {
            let (from, to) = bounds(place);
            (from, to, count)
        })
    }

    /// Returns an estimate of the time that so many percent of those counted don't exceed; none when none was counted. It's in
    /// the same bucket as the time itself, so it's at most twice or half of it.
    pub fn at_percent(&self, percent: u64) -> Option<Duration> {
        let rank = (self.total() * percent).div_ceil(100).max(1);
        let mut below = 0;
        for (from, to, count) in self.buckets() {
            if below + count >= rank {
                let to = to.unwrap_or(from);
                let share = ((rank - below) as f64 - 0.5) / count as f64;
                return Some(from + to.saturating_sub(from).mul_f64(share));
            }
            below += count;
        }
        None
    }

    fn bounds(place: usize) -> (Duration, Option<Duration>) {
        let end = |place: usize| Duration::from_millis(1 << (place as u32 + FIRST));
        let from = place.checked_sub(1).map_or(Duration::ZERO, end);
        (from, (place + 1 < N).then(|| end(place)))
    }

    /// Encodes the histogram: for each bucket that isn't empty its place, then its count in groups of 7 bits, the lowest
    /// first; all groups but the last have the highest bit set.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (place, count) in self.0.iter().enumerate().filter(|(_, count)| **count > 0) {
            bytes.push(place as u8);
            let mut rest = *count;
            while rest > 0x7f {
                bytes.push(rest as u8 | 0x80);
                rest >>= 7;
            }
            bytes.push(rest as u8);
        }
        bytes
    }

    /// Decodes what [`Self::to_bytes`] returns; none for other bytes.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let mut buckets = Self::default();
        let mut bytes = bytes.iter();
        while let Some(place) = bytes.next() {
            let count = buckets.0.get_mut(usize::from(*place))?;
            let mut shift = 0;
            loop {
                let byte = bytes.next()?;
                let part = u32::from(byte & 0x7f);
                *count |= part.checked_shl(shift).filter(|it| it >> shift == part)?;
                shift += 7;
                if byte & 0x80 == 0 {
                    break;
                }
            }
        }
        Some(buckets)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(millis: impl IntoIterator<Item = u64>) -> DurationBuckets {
        let mut buckets = DurationBuckets::default();
        for millis in millis {
            buckets.count(Duration::from_millis(millis));
        }
        buckets
    }

    #[test]
    fn a_period_begins_at_the_hour_or_the_day_in_utc() {
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let now = at("2026-11-29T18:42:31.5Z");
        assert_eq!(Period::Hour.start(now), at("2026-11-29T18:00:00Z"));
        assert_eq!(Period::Day.start(now), at("2026-11-29T00:00:00Z"));
        let early = at("1969-12-31T23:59:59Z");
        assert_eq!(Period::Hour.start(early), at("1969-12-31T23:00:00Z"));
        assert_eq!(Period::Hour.oldest(now), at("2026-11-15T18:00:00Z"));
        assert_eq!(Period::Day.oldest(now), at("2024-11-29T00:00:00Z"));
    }

    #[test]
    fn buckets_double_from_2_milliseconds_on() {
        let counts = |millis| {
            let buckets = of([millis]);
            let found = buckets.buckets().enumerate().find(|(_, it)| it.2 > 0);
            let (place, (from, to, _)) = found.unwrap();
            assert!(from <= Duration::from_millis(millis));
            assert!(to.is_none_or(|to| to > Duration::from_millis(millis)));
            place
        };
        let found = [0, 1, 2, 3, 4, 1_023, 1_024, 8_388_607, 8_388_608, u64::MAX].map(counts);
        assert_eq!(found, [0, 0, 1, 1, 2, 9, 10, 22, 23, 23]);
        let mut lags = LagBuckets::default();
        for millis in [7, 8, 131_071, 131_072, 1_000_000] {
            lags.count(Duration::from_millis(millis));
        }
        let counted = lags.buckets().map(|(_, _, count)| count);
        assert_eq!(
            Vec::from_iter(counted),
            [1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2]
        );
    }

    #[test]
    fn an_estimate_is_in_the_bucket_of_the_time_itself() {
        assert_eq!(of([]).at_percent(50), None);
        let millis = (0..1_000).map(|number| number * number % 7_919 + 1);
        let mut sorted = Vec::from_iter(millis);
        sorted.sort_unstable();
        let buckets = of(sorted.iter().copied());
        for percent in [1, 50, 95, 99, 100] {
            let exact = sorted[(percent * 10 - 1) as usize];
            let estimate = buckets.at_percent(percent).unwrap();
            let (from, to) = (exact / 2, exact * 2);
            let range = Duration::from_millis(from)..=Duration::from_millis(to);
            assert!(range.contains(&estimate), "{percent}: {exact} {estimate:?}");
        }
        // Nothing is known of the longest ones but that they're long.
        let longest = of([100_000_000]).at_percent(50);
        assert_eq!(longest, Some(Duration::from_millis(1 << 23)));
    }

    #[test]
    fn stored_buckets_are_read_again_and_added() {
        let mut buckets = of([1, 1, 300, 5_000_000, 90_000_000]);
        for _ in 0..300 {
            buckets.count(Duration::from_secs(1));
        }
        let bytes = buckets.to_bytes();
        assert_eq!(bytes, [0, 2, 8, 1, 9, 172, 2, 22, 1, 23, 1]);
        assert_eq!(DurationBuckets::read(&bytes), Some(buckets.clone()));
        assert_eq!(DurationBuckets::read(&[]), Some(DurationBuckets::default()));
        let mut twice = buckets.clone();
        twice.add(&buckets);
        assert_eq!(twice.total(), 2 * buckets.total());
        let mut most = of([]);
        most.0[3] = u32::MAX;
        assert_eq!(DurationBuckets::read(&most.to_bytes()), Some(most.clone()));
        most.count(Duration::from_millis(9));
        assert_eq!(most.total(), u64::from(u32::MAX));
    }

    #[test]
    fn damaged_buckets_are_no_histogram() {
        for bytes in [
            &[0][..],
            &[24, 1],
            &[0, 0x80],
            &[0, 0xff, 0xff, 0xff, 0xff, 0x7f],
            &[0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
        ] {
            assert_eq!(DurationBuckets::read(bytes), None, "{bytes:?}");
        }
    }
}
