//! Choosing which launches and retries a host claims now, within its capacity.
//!
//! Usually there's enough for everything due, and two queries find it. Otherwise, or when a package has reached its share, the host
//! divides its free permits between the waiting packages (`shares`), claiming each one's launches by priority. Launches in
//! concurrency groups are chosen separately, as many as the group allows across all hosts.
//!
//! The earliest launches come first, and after an outage those are the late ones. So when permits run short, on-time launches go
//! ahead of them, up to their share.

use std::collections::HashSet;
use std::mem;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::claim::capacity::Permit;
use crate::claim::shares::{Ask, Refused, Waiting};
use crate::ctx::Ctx;
use crate::decide::peers;
use crate::decide::placement::Turns;
use crate::error::Result;
use crate::packages::version_check::is_unvouched;
use campanile_control::rules::lateness::{ON_TIME_MAX, is_late};
use campanile_model::clock::Timestamp;
use campanile_model::ids::LaunchId;
use campanile_package::{Package, Quota};
use campanile_store::Tx;
use campanile_store::launch::{self, ClaimedLaunch, RetriesOf, WaitingClass};

/// How long after its fire time a launch is left to the host whose turn it is.
const LAUNCH_LEFT_MAX: Duration = Duration::from_secs(1);
/// How long after its fire time to leave a launch to other hosts if only the database vouches for its version, even with no host
/// known to have its file. Hosts learn within seconds which versions others have.
const UNVOUCHED_LEFT_MAX: Duration = Duration::from_secs(10);

/// What a host takes in one transaction.
#[derive(Default)]
pub(crate) struct Chosen {
    pub launches: Vec<(ClaimedLaunch, Permit)>,
    /// Whether launches stay behind that are due and that this host may not take now.
    pub is_short: bool,
    /// Whether any of those are on time.
    pub is_short_on_time: bool,
    /// Whether it took all that this host may have until a permit is given back or another launch is due.
    pub took_all: bool,
    /// When the next launch of a package is allowed that has begun too many in this second.
    pub wait: Option<Duration>,
}

impl Chosen {
    fn len(&self) -> usize {
        self.launches.len()
    }
}

/// Returns the quota of a package: the host's, changed by the package's sidecar.
pub(crate) fn quota(ctx: &Ctx, package: Option<&Package>) -> Quota {
    let changes = package.map(|package| package.sidecar.quota);
    changes.unwrap_or_default().over(&ctx.settings.quota)
}

/// Choose from what is due at `now`, at most `free` runs.
pub(crate) async fn choose(ctx: &Ctx, tx: &mut Tx, free: usize, now: Timestamp) -> Result<Chosen> {
    let mut choice = Choice {
        ctx,
        free,
        now,
        turns: None,
        has_asked: false,
        has_looked_on_time: false,
        saw_late: None,
        overtaking: HashSet::new(),
        chosen: Chosen::default(),
    };
    if ctx.capacity.is_short.load(Ordering::Relaxed) {
        choice.on_time(tx).await?;
    }
    choice.retries(tx).await?;
    choice.groups(tx).await?;
    choice.launches(tx).await?;
    let Choice {
        saw_late, chosen, ..
    } = choice;
    let capacity = &ctx.capacity;
    if let Some(saw_late) = saw_late {
        capacity.has_late.store(saw_late, Ordering::Relaxed);
    }
    capacity.is_short.store(chosen.is_short, Ordering::Relaxed);
    capacity
        .is_short_on_time
        .store(chosen.is_short_on_time, Ordering::Relaxed);
    Ok(chosen)
}

struct Choice<'a> {
    ctx: &'a Ctx,
    /// The permits that are left.
    free: usize,
    now: Timestamp,
    /// None when this host is alone, and until launches are due.
    turns: Option<Turns>,
    has_asked: bool,
    has_looked_on_time: bool,
    /// Whether the queries so far, earliest launches first, returned a late one. None before the first query.
    saw_late: Option<bool>,
    /// On-time launches in `chosen` going ahead of others. They stay open until the claim, so queries for the others return them
    /// again.
    overtaking: HashSet<LaunchId>,
    chosen: Chosen,
}

/// Which of a class's launches to choose.
#[derive(Clone, Copy)]
enum Which {
    /// Earliest first.
    Earliest,
    /// The latest on-time ones.
    OnTime,
}

impl Choice<'_> {
    /// Whether a launch is left for a moment to the host whose turn it is. That host looks for launches twice a second.
    fn is_left(&mut self, launch: &ClaimedLaunch) -> bool {
        let waited = self.now.since(launch.fire_time);
        if self.ctx.db.url().is_shared()
            && let Some(package) = self.ctx.packages.get(&launch.package)
            && is_unvouched(self.ctx, &package, &launch.digest)
            && (waited < UNVOUCHED_LEFT_MAX
                || self.ctx.peers.have_version(&launch.package, &launch.digest))
        {
            return true;
        }
        let Some(turns) = &mut self.turns else {
            return false;
        };
        // The statement returns only launches that this host may claim.
        let is_own = turns.is_own(&launch.package, launch.run_on.as_ref(), true);
        !is_own && waited < LAUNCH_LEFT_MAX
    }

    /// Take a permit for each launch whose turn this host has, and whose package may have one more.
    async fn take_all(&mut self, tx: &mut Tx, due: Vec<ClaimedLaunch>) -> Result {
        if !due.is_empty() && !self.has_asked {
            self.turns = peers::turns(self.ctx, tx).await?;
            self.has_asked = true;
        }
        self.note_late(&due);
        for launch in due {
            if self.is_left(&launch) {
                continue;
            }
            let package = self.ctx.packages.get(&launch.package);
            let quota = quota(self.ctx, package.as_deref());
            let late = is_late(launch.kind, launch.fire_time, self.now);
            let ask = Ask {
                package: &launch.package,
                quota,
                proposed: launch.proposed,
                late,
            };
            match self.ctx.capacity.take(&ask, self.now) {
                Ok(permit) => {
                    self.free = self.free.saturating_sub(1);
                    self.chosen.launches.push((launch, permit));
                }
                Err(refused) => {
                    self.chosen.is_short = true;
                    self.chosen.is_short_on_time |= !late;
                    if let Refused::Rate(wait) = refused {
                        let earlier = self.chosen.wait;
                        self.chosen.wait = Some(earlier.map_or(wait, |earlier| earlier.min(wait)));
                    }
                }
            }
        }
        Ok(())
    }

    /// Takes permits for on-time launches going ahead of others.
    async fn take_first(&mut self, tx: &mut Tx, open: Vec<ClaimedLaunch>) -> Result {
        let (before, saw_late) = (self.chosen.len(), self.saw_late);
        self.take_all(tx, open).await?;
        // On-time launches say nothing about late ones.
        self.saw_late = saw_late;
        let taken = &self.chosen.launches[before..];
        let taken = taken.iter().map(|(launch, _)| launch.launch_id);
        self.overtaking.extend(taken);
        Ok(())
    }

    /// Notes whether any of the earliest waiting launches is late.
    fn note_late(&mut self, due: &[ClaimedLaunch]) {
        let is_late = |launch: &ClaimedLaunch| is_late(launch.kind, launch.fire_time, self.now);
        if !due.is_empty() {
            self.saw_late = Some(self.saw_late == Some(true) || due.iter().any(is_late));
        }
    }

    /// Returns the query limit for finding `limit` launches besides the overtaking ones.
    fn limit_for(&self, limit: usize) -> i64 {
        (limit + self.overtaking.len()) as i64
    }

    /// Returns the first `limit` launches not chosen yet.
    fn not_chosen(&self, mut open: Vec<ClaimedLaunch>, limit: usize) -> Vec<ClaimedLaunch> {
        open.retain(|launch| !self.overtaking.contains(&launch.launch_id));
        open.truncate(limit);
        open
    }

    /// Returns the fire time from which launches count as on time.
    fn since(&self) -> Timestamp {
        self.now.minus(ON_TIME_MAX)
    }

    /// Chooses on-time launches outside groups, as many as may overtake others.
    async fn on_time(&mut self, tx: &mut Tx) -> Result {
        if mem::replace(&mut self.has_looked_on_time, true) {
            return Ok(());
        }
        let capacity = &self.ctx.capacity;
        let limit = capacity.overtaking().min(self.free);
        let (host, now, since) = (self.ctx.host, self.now, self.since());
        // With no late launches, on-time ones are the earliest anyway.
        let has_late = self.saw_late == Some(true) || capacity.has_late.load(Ordering::Relaxed);
        if has_late && limit > 0 {
            let open = launch::claimable_on_time(tx, host, now, limit as i64, since).await?;
            if open.len() < limit {
                return self.take_first(tx, open).await;
            }
            let classes = launch::waiting_packages_on_time(tx, now, since).await?;
            self.launches_of_all(tx, &classes, limit, Which::OnTime)
                .await?;
        }
        // As far as this host can tell.
        self.chosen.is_short_on_time = true;
        Ok(())
    }

    /// Choose retries of no group.
    async fn retries(&mut self, tx: &mut Tx) -> Result {
        let (host, now, limit) = (self.ctx.host, self.now, self.free);
        let due = launch::retries(tx, RetriesOf::AnyPackage, host, now, limit as i64).await?;
        if due.len() < limit {
            self.take_all(tx, due).await?;
            return Ok(());
        }
        self.chosen.is_short = true;
        let packages = launch::packages_with_retries(tx, now).await?;
        let classes: Vec<(&str, bool)> = packages.iter().map(|name| (&**name, false)).collect();
        for (package, limit) in packages.iter().zip(self.divide(&classes, limit, true)) {
            if limit > 0 {
                let of = RetriesOf::Package(package);
                let due = launch::retries(tx, of, host, now, limit as i64).await?;
                self.take_all(tx, due).await?;
            }
        }
        Ok(())
    }

    /// Choose retries and launches of concurrency groups.
    async fn groups(&mut self, tx: &mut Tx) -> Result {
        let (ctx, now) = (self.ctx, self.now);
        if ctx.settings.groups.is_empty() && !ctx.capacity.may_look_for_groups(now) {
            return Ok(());
        }
        let classes = launch::waiting_groups(tx, now).await?;
        let mut groups = launch::groups_with_retries(tx, now).await?;
        groups.extend(classes.iter().map(|class| class.name.clone()));
        groups.sort_unstable();
        groups.dedup();
        for group in groups {
            let of_group = classes.iter().filter(|class| class.name == group);
            let mut of_group: Vec<&WaitingClass> = of_group.collect();
            of_group.sort_by_key(|class| (class.proposed, -class.priority));
            self.group(tx, &group, &of_group).await?;
        }
        Ok(())
    }

    async fn group(&mut self, tx: &mut Tx, group: &str, classes: &[&WaitingClass]) -> Result {
        if !launch::lock_group(tx, group).await? {
            self.chosen.is_short = true;
            return Ok(());
        }
        let max = self.ctx.settings.groups.get(group).copied().unwrap_or(1);
        let running = usize::try_from(launch::running_in_group(tx, group).await?);
        let room = (max as usize).saturating_sub(running.unwrap_or(usize::MAX));
        let (host, now, before) = (self.ctx.host, self.now, self.chosen.len());
        let limit = room.min(self.free);
        if limit > 0 {
            let of = RetriesOf::Group(group);
            let retries = launch::retries(tx, of, host, now, limit as i64).await?;
            self.take_all(tx, retries).await?;
        }
        let overtaking = self.group_on_time(tx, group, classes, room).await?;
        let mut is_full = false;
        for class in classes {
            let room = room.saturating_sub(self.chosen.len() - before);
            let limit = room.min(self.free);
            if limit == 0 {
                (is_full, self.chosen.is_short) = (true, true);
                break;
            }
            let most = self.limit_for(limit);
            let open = launch::open_of_group(tx, host, now, most, class).await?;
            let open = self.not_chosen(open, limit);
            is_full |= open.len() == limit;
            self.take_all(tx, open).await?;
        }
        let claimed = self.chosen.len() - before;
        let turns = &self.ctx.capacity.group_turns;
        turns.note(group, is_full, claimed, overtaking);
        Ok(())
    }

    /// Chooses a group's on-time launches, as many as may overtake others in `room`, returning how many.
    async fn group_on_time(
        &mut self,
        tx: &mut Tx,
        group: &str,
        classes: &[&WaitingClass],
        room: usize,
    ) -> Result<usize> {
        let (host, now, since, before) = (self.ctx.host, self.now, self.since(), self.chosen.len());
        let limit = self.ctx.capacity.group_turns.overtaking(group, room);
        for class in classes {
            let left = limit.saturating_sub(self.chosen.len() - before);
            let limit = left.min(self.free) as i64;
            if limit > 0 {
                let open =
                    launch::open_of_group_on_time(tx, host, now, limit, class, since).await?;
                self.take_first(tx, open).await?;
            }
        }
        Ok(self.chosen.len() - before)
    }

    /// Choose launches of no group.
    async fn launches(&mut self, tx: &mut Tx) -> Result {
        let (host, now, limit) = (self.ctx.host, self.now, self.free);
        if !self.ctx.capacity.is_short.load(Ordering::Relaxed) && !self.chosen.is_short {
            let open = launch::claimable(tx, host, now, limit as i64).await?;
            if open.len() < limit {
                self.take_all(tx, open).await?;
                return Ok(());
            }
            self.note_late(&open);
        }
        self.on_time(tx).await?;
        let classes = launch::waiting_packages(tx, now).await?;
        let free = self.free;
        self.chosen.took_all = self
            .launches_of_all(tx, &classes, free, Which::Earliest)
            .await?;
        Ok(())
    }

    /// Chooses at most `free` launches of these classes, dividing them between their packages. Returns whether every package took
    /// its whole part; the others may have the rest.
    async fn launches_of_all(
        &mut self,
        tx: &mut Tx,
        classes: &[WaitingClass],
        free: usize,
        which: Which,
    ) -> Result<bool> {
        let of_each: Vec<&[WaitingClass]> = classes.chunk_by(|a, b| a.name == b.name).collect();
        let waiting = of_each.iter().map(|classes| {
            let only_proposed = classes.iter().all(|class| class.proposed);
            (&*classes[0].name, only_proposed)
        });
        let waiting: Vec<(&str, bool)> = waiting.collect();
        let late = matches!(which, Which::Earliest);
        let mut took_all = true;
        for (classes, given) in of_each.iter().zip(self.divide(&waiting, free, late)) {
            let before = self.chosen.len();
            self.launches_of(tx, classes, given, which).await?;
            took_all &= self.chosen.len() - before == given;
        }
        Ok(took_all)
    }

    /// Choose at most `given` launches of one package, by priority.
    async fn launches_of(
        &mut self,
        tx: &mut Tx,
        classes: &[WaitingClass],
        given: usize,
        which: Which,
    ) -> Result {
        let mut left = given;
        for class in classes {
            if left == 0 {
                self.chosen.is_short = true;
                break;
            }
            let (host, now) = (self.ctx.host, self.now);
            let before = self.chosen.len();
            match which {
                Which::Earliest => {
                    let most = self.limit_for(left);
                    let open = launch::open_of_package(tx, host, now, most, class).await?;
                    let open = self.not_chosen(open, left);
                    self.chosen.is_short |= open.len() == left;
                    self.take_all(tx, open).await?;
                }
                Which::OnTime => {
                    let (limit, since) = (left as i64, self.since());
                    let open =
                        launch::open_of_package_on_time(tx, host, now, limit, class, since).await?;
                    self.chosen.is_short |= open.len() == left;
                    self.take_first(tx, open).await?;
                }
            }
            left = left.saturating_sub(self.chosen.len() - before);
        }
        Ok(())
    }

    /// Divides at most `free` permits between packages, each given with whether all its waiting launches are proposed ones.
    fn divide(&self, packages: &[(&str, bool)], free: usize, late: bool) -> Vec<usize> {
        let waiting = packages.iter().map(|&(package, only_proposed)| Waiting {
            package,
            quota: quota(self.ctx, self.ctx.packages.get(package).as_deref()),
            only_proposed,
        });
        let waiting: Vec<Waiting<'_>> = waiting.collect();
        self.ctx.capacity.divide(free, &waiting, late, self.now)
    }
}
