//! Pure: how a host divides its capacity between packages.
//!
//! A package may hold seven times as many permits as stay free, up to seven eighths of the host. The last 64th goes only to
//! packages holding none, so a latecomer finds a free permit even with others holding their maximum. When a host runs short, each
//! next permit goes to the package holding the fewest. Ties go to the package served longest ago.
//!
//! Late launches, such as those left over from an outage, leave a 32nd of the permits to on-time ones. While late launches are
//! waiting, on-time ones overtake them until holding a fifth of the permits. A backlog thus delays nobody else, and still gets at
//! least four fifths of the host.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use campanile_model::clock::Timestamp;
use campanile_model::namespace::Namespace;
use campanile_package::Quota;
use campanile_package::quota::{Namespaces, quota_of};

/// A package may hold this many times the free permits.
const FREE_FACTOR: usize = 7;
/// Fraction of all permits kept for packages holding none.
const KEPT_PART: usize = 64;

/// Fraction of all permits left by late launches to on-time ones, and the smallest host doing so, in permits.
const RESERVED_PART: usize = 32;
const RESERVED_FROM: usize = 5;
/// Fraction of permits on-time launches may take ahead of other waiting ones. Hosts with fewer permits than this take turns
/// instead: on-time launches get one permit in this many.
pub(crate) const OVERTAKING_PART: usize = 5;

/// Why a package gets no permit now.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Refused {
    /// It or its namespace holds as many as it may, or the host has none.
    Share,
    /// It has begun as many launches as its rate allows; the next is allowed after this time.
    Rate(Duration),
}

/// The permits of a host, by package.
#[derive(Debug, Clone, Default)]
pub(crate) struct Shares {
    of: HashMap<String, Share>,
    /// What the packages of each namespace with a quota hold together.
    of_namespace: BTreeMap<Namespace, NamespaceShare>,
    namespaces: Arc<Namespaces>,
    /// The permits that all packages hold.
    held: usize,
    /// How many of `held` are for late launches.
    late: usize,
    /// Permits granted since the last on-time launch had its turn.
    since_turn: usize,
    /// How many permits were given so far.
    given: u64,
}

/// What one package holds, and what it has used lately.
#[derive(Debug, Clone, Default)]
struct Share {
    held: usize,
    /// The permits of `held` for schedules that the package proposed.
    proposed: usize,
    launches: Bucket,
    proposed_launches: Bucket,
    /// The number of the last permit that it was given.
    last_given: u64,
}

/// What the packages of one namespace hold together, and what they have used lately.
#[derive(Debug, Clone, Default)]
struct NamespaceShare {
    held: usize,
    launches: Bucket,
}

/// How many launches a span allows.
#[derive(Debug, Clone, Copy)]
struct Rate {
    launches: u32,
    span: Duration,
}

impl Rate {
    fn per_second(launches: u32) -> Rate {
        let span = Duration::from_secs(1);
        Rate { launches, span }
    }

    fn per_minute(launches: u32) -> Rate {
        let span = Duration::from_secs(60);
        Rate { launches, span }
    }

    fn most(self) -> f64 {
        f64::from(self.launches.max(1))
    }

    /// Returns how many launches a second gives back.
    fn refill(self) -> f64 {
        self.most() / self.span.as_secs_f64()
    }
}

/// A token bucket: what a package or a namespace has used of its launches. At most one span's worth is saved.
#[derive(Debug, Clone, Copy, Default)]
struct Bucket {
    /// Launches beyond what has been refilled since.
    used: f64,
    at: Option<Timestamp>,
}

impl Bucket {
    fn used_at(&self, rate: Rate, now: Timestamp) -> f64 {
        let since = self.at.map_or(Duration::ZERO, |at| now.since(at));
        (self.used - since.as_secs_f64() * rate.refill()).max(0.0)
    }

    /// Returns how long to wait until a launch is allowed: zero when one is allowed now.
    fn wait(&self, rate: Rate, now: Timestamp) -> Duration {
        let excess = self.used_at(rate, now) + 1.0 - rate.most();
        if excess > 1e-9 {
            Duration::from_secs_f64(excess / rate.refill())
        } else {
            Duration::ZERO
        }
    }

    fn use_one(&mut self, rate: Rate, now: Timestamp) {
        self.used = self.used_at(rate, now) + 1.0;
        self.at = Some(now);
    }
}

/// A launch asking for a permit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ask<'a> {
    pub package: &'a str,
    pub quota: Quota,
    /// Whether it comes from a schedule proposed by its package.
    pub proposed: bool,
    /// Whether it's late: see [`is_late`](campanile_control::rules::lateness::is_late).
    pub late: bool,
}

/// A package that waits for permits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Waiting<'a> {
    pub package: &'a str,
    pub quota: Quota,
    /// Whether only launches of schedules that the package proposed wait.
    pub only_proposed: bool,
}

impl Shares {
    /// Begin without permits that are held.
    pub fn new(namespaces: Arc<Namespaces>) -> Shares {
        Shares {
            namespaces,
            ..Shares::default()
        }
    }

    /// Returns how many of `free` permits can go to a package, if it holds as many as any other, for launches either `late` or all
    /// on time.
    pub fn free_for_one(&self, free: usize, late: bool) -> usize {
        let most = self.of.values().map(|share| share.held).max();
        let reserved = self.reserved(free, late);
        let free = free.saturating_sub(reserved);
        // The n-th is allowed while `held + reserved + n <= FREE_FACTOR * (free - n + 1)`.
        let sum = (FREE_FACTOR * (free + 1)).saturating_sub(most.unwrap_or(0) + reserved);
        (sum / (FREE_FACTOR + 1)).min(free)
    }

    /// Returns how many of `free` permits a launch leaves to on-time ones: none unless it's late.
    fn reserved(&self, free: usize, late: bool) -> usize {
        let total = free + self.held;
        let reserved = if late && total >= RESERVED_FROM {
            (total / RESERVED_PART).max(1)
        } else {
            0
        };
        reserved.saturating_sub(self.held - self.late)
    }

    /// Returns how many of `free` permits on-time launches may take ahead of waiting late ones.
    pub fn overtaking(&self, free: usize) -> usize {
        match (free + self.held) / OVERTAKING_PART {
            0 => usize::from(self.since_turn + 1 >= OVERTAKING_PART).min(free),
            most => most.saturating_sub(self.held - self.late).min(free),
        }
    }

    /// Takes one of `free` permits, counting it if granted.
    ///
    /// # Errors
    ///
    /// As for [`Shares::may_take`].
    pub fn take(&mut self, free: usize, ask: &Ask<'_>, now: Timestamp) -> Result<(), Refused> {
        self.may_take(free, ask, now)?;
        self.count(ask, now);
        Ok(())
    }

    /// Checks whether a launch may have one of `free` permits.
    ///
    /// # Errors
    ///
    /// Returns the reason for a refusal.
    pub fn may_take(&self, free: usize, ask: &Ask<'_>, now: Timestamp) -> Result<(), Refused> {
        let unknown = Share::default();
        let share = self.of.get(ask.package).unwrap_or(&unknown);
        let quota = &ask.quota;
        let within = |held: usize, most: Option<u32>| most.is_none_or(|most| held < most as usize);
        let kept = (free + self.held) / KEPT_PART;
        let reserved = self.reserved(free, ask.late);
        // Reserved permits count as the package's own, so its on-time launches can get them too.
        let allowed = share.held + reserved < FREE_FACTOR * free.saturating_sub(reserved)
            && (share.held == 0 || free > kept)
            && within(share.held, quota.runs_max);
        let allowed_proposed = !ask.proposed
            || (share.proposed < free && within(share.proposed, Some(quota.proposed_runs_max)));
        if !allowed || !allowed_proposed {
            return Err(Refused::Share);
        }
        let own_wait = quota
            .launches_per_second
            .map(|rate| share.launches.wait(Rate::per_second(rate), now));
        let proposed_wait = ask.proposed.then(|| {
            let rate = Rate::per_second(quota.proposed_launches_per_second);
            share.proposed_launches.wait(rate, now)
        });
        let of_namespace = self.may_take_in_namespace(ask.package, now)?;
        let wait = own_wait.max(proposed_wait).max(of_namespace);
        let wait = wait.unwrap_or_default();
        if wait > Duration::ZERO {
            Err(Refused::Rate(wait))
        } else {
            Ok(())
        }
    }

    /// Returns how long the namespace of a package has to wait for its next launch; none when it has no such quota.
    fn may_take_in_namespace(
        &self,
        package: &str,
        now: Timestamp,
    ) -> Result<Option<Duration>, Refused> {
        let Some((namespace, quota)) = quota_of(&self.namespaces, package) else {
            return Ok(None);
        };
        let unknown = NamespaceShare::default();
        let share = self.of_namespace.get(namespace).unwrap_or(&unknown);
        if quota
            .runs_max
            .is_some_and(|most| share.held >= most as usize)
        {
            return Err(Refused::Share);
        }
        let wait = |rate| share.launches.wait(Rate::per_minute(rate), now);
        Ok(quota.launches_per_minute.map(wait))
    }

    /// Counts a granted permit.
    pub fn count(&mut self, ask: &Ask<'_>, now: Timestamp) {
        self.given += 1;
        let given = self.given;
        let share = match self.of.get_mut(ask.package) {
            Some(share) => share,
            None => self.of.entry(ask.package.to_owned()).or_default(),
        };
        self.held += 1;
        self.late += usize::from(ask.late);
        self.since_turn = if ask.late { self.since_turn + 1 } else { 0 };
        share.held += 1;
        share.last_given = given;
        if let Some(rate) = ask.quota.launches_per_second {
            share.launches.use_one(Rate::per_second(rate), now);
        }
        if ask.proposed {
            share.proposed += 1;
            let rate = Rate::per_second(ask.quota.proposed_launches_per_second);
            share.proposed_launches.use_one(rate, now);
        }
        if let Some((namespace, quota)) = quota_of(&self.namespaces, ask.package) {
            let share = self.of_namespace.entry(namespace.clone()).or_default();
            share.held += 1;
            if let Some(rate) = quota.launches_per_minute {
                share.launches.use_one(Rate::per_minute(rate), now);
            }
        }
    }

    /// Counts a returned permit.
    pub fn give_back(&mut self, package: &str, proposed: bool, late: bool) {
        if let Some(share) = self.of.get_mut(package) {
            self.held = self.held.saturating_sub(1);
            self.late = self.late.saturating_sub(usize::from(late));
            share.held = share.held.saturating_sub(1);
            share.proposed = share.proposed.saturating_sub(usize::from(proposed));
            if let Some((namespace, _)) = quota_of(&self.namespaces, package)
                && let Some(share) = self.of_namespace.get_mut(namespace)
            {
                share.held = share.held.saturating_sub(1);
            }
        }
    }

    /// Divides at most `most` of `free` permits between packages, returning each one's part. Assumes an endless supply of launches
    /// from each, either `late` or all on time.
    pub fn divide(
        &self,
        (free, most): (usize, usize),
        waiting: &[Waiting<'_>],
        late: bool,
        now: Timestamp,
    ) -> Vec<usize> {
        let mut shares = self.clone();
        let mut given = vec![0; waiting.len()];
        let mut open: Vec<usize> = (0..waiting.len()).collect();
        for left in (1..=free).rev().take(most) {
            loop {
                let next = open.iter().copied().min_by_key(|&index| {
                    let share = shares.of.get(waiting[index].package);
                    share.map_or((0, 0), |share| (share.held, share.last_given))
                });
                let Some(next) = next else {
                    return given;
                };
                let Waiting {
                    package,
                    quota,
                    only_proposed,
                } = waiting[next];
                let ask = Ask {
                    package,
                    quota,
                    proposed: only_proposed,
                    late,
                };
                if shares.take(left, &ask, now).is_ok() {
                    given[next] += 1;
                    break;
                }
                open.retain(|&index| index != next);
            }
        }
        given
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use campanile_package::quota::NamespaceQuota;

    fn at(millis: u64) -> Timestamp {
        Timestamp::EPOCH.plus(Duration::from_millis(millis))
    }

    fn waiting(package: &str) -> Waiting<'_> {
        Waiting {
            package,
            quota: Quota::default(),
            only_proposed: false,
        }
    }

    /// An on-time launch.
    fn ask(package: &str) -> Ask<'_> {
        Ask {
            package,
            quota: Quota::default(),
            proposed: false,
            late: false,
        }
    }

    /// Let `package` take what it may of `total` permits; return how many it holds then.
    fn fill_with(
        shares: &mut Shares,
        total: usize,
        package: &str,
        (proposed, late): (bool, bool),
    ) -> usize {
        let held = |shares: &Shares| shares.of.values().map(|share| share.held).sum::<usize>();
        let quota = Quota {
            proposed_launches_per_second: 10_000,
            ..Quota::default()
        };
        let ask = Ask {
            quota,
            proposed,
            late,
            ..ask(package)
        };
        while let Some(free) = total.checked_sub(held(shares)).filter(|free| *free > 0)
            && shares.take(free, &ask, at(0)).is_ok()
        {}
        shares.of.get(package).map_or(0, |share| share.held)
    }

    fn fill(shares: &mut Shares, total: usize, package: &str, proposed: bool) -> usize {
        fill_with(shares, total, package, (proposed, false))
    }

    #[test]
    fn one_package_leaves_an_eighth_and_a_later_one_finds_a_permit() {
        let mut shares = Shares::default();
        assert_eq!(fill(&mut shares, 256, "a", false), 224);
        for (package, expected) in [("b", 28), ("c", 1), ("d", 1), ("e", 1), ("f", 1)] {
            let held = fill(&mut shares, 256, package, false);
            assert_eq!(held, expected, "{package}");
        }
        // A host with few permits gives all to one package.
        for (total, expected) in [(1, 1), (2, 2), (7, 7), (8, 7), (16, 14)] {
            assert_eq!(fill(&mut Shares::default(), total, "a", false), expected);
        }
    }

    #[test]
    fn late_launches_leave_permits_to_those_on_time_and_have_at_least_four_fifths() {
        let late = (false, true);
        for total in 1..=600 {
            let all = fill(&mut Shares::default(), total, "a", false);
            let mut shares = Shares::default();
            let of_late = fill_with(&mut shares, total, "a", late);
            assert!(5 * of_late >= 4 * all, "{of_late} of {all}");
            // The package's own on-time launches can get one, and so can another package's.
            let is_left = total >= RESERVED_FROM;
            assert_eq!(
                fill(&mut shares.clone(), total, "a", false) > of_late,
                is_left,
                "{total}"
            );
            assert!(
                !is_left || fill(&mut shares.clone(), total, "b", false) > 0,
                "{total}"
            );
        }
        // So do all other packages together.
        let mut shares = Shares::default();
        for package in ["a", "b", "c", "d", "e", "f", "g", "h"] {
            fill_with(&mut shares, 512, package, late);
        }
        assert!(512 - shares.held >= 16, "{} are held", shares.held);
    }

    #[test]
    fn launches_on_time_overtake_up_to_a_fifth_of_the_permits() {
        let mut shares = Shares::default();
        let late = Ask {
            late: true,
            ..ask("a")
        };
        for _ in 0..300 {
            shares.count(&late, at(0));
        }
        assert_eq!(shares.overtaking(212), 102);
        for held in 1..=102 {
            shares.count(&ask("b"), at(0));
            assert_eq!(shares.overtaking(212 - held), 102 - held);
        }
        // A small host gives them one turn in five.
        let mut shares = Shares::default();
        let mut order = String::new();
        for _ in 0..12 {
            let (letter, next) = match shares.overtaking(1) {
                0 => ("l", late),
                _ => ("o", ask("b")),
            };
            order += letter;
            shares.count(&next, at(0));
            shares.give_back(next.package, false, next.late);
        }
        assert_eq!(order, "llllolllloll");
    }

    #[test]
    fn what_one_package_may_take_is_known_before() {
        let mut shares = Shares::default();
        for late in [false, true] {
            for free in [0, 1, 2, 4, 5, 6, 7, 8, 16, 64, 256] {
                let taken = fill_with(&mut Shares::default(), free, "a", (false, late));
                assert_eq!(shares.free_for_one(free, late), taken, "{free}");
            }
        }
        let late = (false, true);
        assert_eq!(fill_with(&mut shares, 256, "a", late), 216);
        assert_eq!(shares.free_for_one(40, true), 0);
        for _ in 0..40 {
            shares.give_back("a", false, true);
        }
        assert_eq!(shares.free_for_one(80, true), 40);
    }

    #[test]
    fn proposed_schedules_hold_at_most_half_and_at_most_their_quota() {
        assert_eq!(fill(&mut Shares::default(), 256, "a", true), 32);
        assert_eq!(fill(&mut Shares::default(), 16, "a", true), 8);
        assert_eq!(fill(&mut Shares::default(), 1, "a", true), 1);
    }

    #[test]
    fn a_permit_goes_to_the_package_that_holds_the_fewest() {
        let mut shares = Shares::default();
        for _ in 0..10 {
            shares.count(&ask("a"), at(0));
        }
        let both = [waiting("a"), waiting("b")];
        assert_eq!(shares.divide((4, 4), &both, false, at(0)), [0, 4]);
        // Two stay free.
        assert_eq!(shares.divide((30, 30), &both, false, at(0)), [9, 19]);
    }

    #[test]
    fn the_packages_of_a_namespace_share_its_quota() {
        let quota = NamespaceQuota {
            runs_max: Some(3),
            launches_per_minute: Some(4),
            ..NamespaceQuota::default()
        };
        let team = "team".parse().unwrap();
        let mut shares = Shares::new(Arc::new(Namespaces::from([(team, quota)])));
        let take = |shares: &mut Shares, package, now| shares.take(100, &ask(package), now);
        for package in ["@team/a", "@team/b", "@team/a"] {
            assert_eq!(take(&mut shares, package, at(0)), Ok(()), "{package}");
        }
        assert_eq!(take(&mut shares, "@team/b", at(0)), Err(Refused::Share));
        for other in ["a", "@team2/a"] {
            assert_eq!(take(&mut shares, other, at(0)), Ok(()), "{other}");
        }
        shares.give_back("@team/b", false, false);
        assert_eq!(take(&mut shares, "@team/b", at(0)), Ok(()));
        shares.give_back("@team/a", false, false);
        // The fifth launch of this minute waits for a quarter of it.
        let wait = Duration::from_secs(15);
        assert_eq!(
            take(&mut shares, "@team/a", at(0)),
            Err(Refused::Rate(wait))
        );
        assert_eq!(take(&mut shares, "@team/a", at(15_000)), Ok(()));
        // What a division gives counts too.
        shares.give_back("@team/a", false, false);
        let both = [waiting("@team/a"), waiting("@team/b")];
        let given = shares.divide((10, 10), &both, false, at(45_000));
        assert_eq!(given.iter().sum::<usize>(), 1, "{given:?}");
    }

    #[test]
    fn packages_take_turns_on_a_host_with_one_permit() {
        let mut shares = Shares::default();
        let both = [waiting("a"), waiting("b")];
        let mut order = String::new();
        for _ in 0..4 {
            let given = shares.divide((1, 1), &both, false, at(0));
            let next = if given[0] == 1 { "a" } else { "b" };
            order += next;
            shares.count(&ask(next), at(0));
            shares.give_back(next, false, false);
        }
        assert_eq!(order, "abab");
    }

    #[test]
    fn a_quota_bounds_the_runs_and_the_launches_of_a_second() {
        let quota = Quota {
            runs_max: Some(3),
            launches_per_second: Some(5),
            ..Quota::default()
        };
        let limited = Ask { quota, ..ask("a") };
        let mut shares = Shares::default();
        let begin = |shares: &mut Shares, now| {
            let result = shares.take(100, &limited, now);
            result.map(|()| shares.give_back("a", false, false))
        };
        for _ in 0..5 {
            assert_eq!(begin(&mut shares, at(0)), Ok(()));
        }
        let wait = Duration::from_millis(200);
        assert_eq!(begin(&mut shares, at(0)), Err(Refused::Rate(wait)));
        assert!(begin(&mut shares, at(199)).is_err());
        assert_eq!(begin(&mut shares, at(200)), Ok(()));
        // At most one second's worth is saved.
        for _ in 0..5 {
            assert_eq!(begin(&mut shares, at(60_000)), Ok(()));
        }
        assert!(begin(&mut shares, at(60_000)).is_err());

        for _ in 0..3 {
            assert_eq!(shares.take(100, &limited, at(90_000)), Ok(()));
        }
        let refused = shares.take(100, &limited, at(99_000));
        assert_eq!(refused, Err(Refused::Share));
    }
}
