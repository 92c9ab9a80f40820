//! The faults of a selftest, one in each round. A seed chooses them, so that a report can be repeated.

use std::time::Duration;

/// A fault of one host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// The index of the host.
    pub host: usize,
    /// The time from the beginning of the round to the fault.
    pub after: Duration,
    pub kind: FaultKind,
}

/// What happens to the host, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// SIGKILL, and a new start after this time.
    Kill(Duration),
    /// SIGSTOP, and SIGCONT after this time.
    Suspend(Duration),
    /// The network between the host and its database forwards nothing for this time.
    Cut(Duration),
    /// SIGKILL, and a start that aborts at this crash point; then a new start.
    Crash(&'static str),
}

/// What a plan may contain.
#[derive(Debug, Clone, Copy)]
pub struct Choices<'a> {
    pub hosts: usize,
    /// A host that is away for longer than this has lost its runs.
    pub lease: Duration,
    /// Whether the network of a host can be cut.
    pub can_cut: bool,
    /// The crash points of this build. Every other round uses one of them.
    pub crash_points: &'a [&'static str],
}

/// The longest time from the beginning of a round to its fault.
const AFTER_MAX: Duration = Duration::from_millis(700);
/// The longest time for which a host is away in a short fault.
const SHORT_MAX: Duration = Duration::from_millis(900);
/// The least time by which a long fault is longer than the lease.
const LONGER_THAN_LEASE: Duration = Duration::from_secs(1);
/// On average, one in this number of random faults is a long one.
const LONG_ONE_IN: u64 = 6;

/// Pure: return the faults of `rounds` rounds.
pub fn plan(choices: &Choices<'_>, rounds: usize, seed: u64) -> Vec<Fault> {
    let mut random = Random(seed);
    let mut points = choices.crash_points.iter().copied().cycle();
    let faults = (0..rounds).map(|round| Fault {
        host: random.below(choices.hosts as u64) as usize,
        after: random.up_to(AFTER_MAX),
        kind: match (round % 2 == 1).then(|| points.next()).flatten() {
            Some(point) => FaultKind::Crash(point),
            None => random_kind(choices, &mut random),
        },
    });
    faults.collect()
}

/// Choose a kill, a suspension or a cut. Half of the faults are kills.
fn random_kind(choices: &Choices<'_>, random: &mut Random) -> FaultKind {
    let kind = random.below(4);
    let away = match random.below(LONG_ONE_IN) {
        0 => choices.lease + LONGER_THAN_LEASE + random.up_to(LONGER_THAN_LEASE),
        _ => random.up_to(SHORT_MAX),
    };
    match kind {
        2 => FaultKind::Suspend(away),
        3 if choices.can_cut => FaultKind::Cut(away),
        3 => FaultKind::Suspend(away),
        _ => FaultKind::Kill(away),
    }
}

/// The generator `SplitMix64`: the same numbers for the same seed, in every version and on every machine.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `end`, which is not 0.
    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn up_to(&mut self, longest: Duration) -> Duration {
        Duration::from_millis(self.below(longest.as_millis() as u64 + 1))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const CHOICES: Choices<'_> = Choices {
        hosts: 3,
        lease: Duration::from_secs(5),
        can_cut: true,
        crash_points: &[],
    };

    #[test]
    fn a_seed_gives_the_same_faults_again() {
        assert_eq!(plan(&CHOICES, 100, 7), plan(&CHOICES, 100, 7));
        assert_ne!(plan(&CHOICES, 100, 7), plan(&CHOICES, 100, 8));
        // The numbers of the reference implementation for the seed 0.
        let mut random = Random(0);
        assert_eq!(random.next(), 0xe220_a839_7b1d_cdaf);
        assert_eq!(random.next(), 0x6e78_9e6a_a1b9_65f4);
    }

    #[test]
    fn a_long_plan_has_every_kind_of_fault_on_every_host() {
        let faults = plan(&CHOICES, 300, 1);
        let kinds = faults.iter().map(|fault| {
            let (kind, away) = match fault.kind {
                FaultKind::Kill(away) => ("kill", away),
                FaultKind::Suspend(away) => ("suspend", away),
                FaultKind::Cut(away) => ("cut", away),
                FaultKind::Crash(point) => (point, Duration::ZERO),
            };
            (fault.host, kind, away > CHOICES.lease)
        });
        assert_eq!(kinds.collect::<BTreeSet<_>>().len(), 3 * 3 * 2);
    }

    #[test]
    fn a_network_that_cannot_be_cut_is_not_cut() {
        let choices = Choices {
            can_cut: false,
            ..CHOICES
        };
        let faults = plan(&choices, 300, 1);
        assert!(
            !faults
                .iter()
                .any(|fault| matches!(fault.kind, FaultKind::Cut(_)))
        );
    }

    #[test]
    fn every_other_round_uses_the_next_crash_point() {
        let choices = Choices {
            crash_points: &["one", "two"],
            ..CHOICES
        };
        let faults = plan(&choices, 6, 1);
        let points = faults.iter().map(|fault| match fault.kind {
            FaultKind::Crash(point) => point,
            _ => "",
        });
        assert!(points.eq(["", "one", "", "two", "", "one"]));
    }
}
