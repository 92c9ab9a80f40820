//! Compare launches and events with the seals that cover them.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use super::{Checkpoint, FaultKind, Span, Verification};
use crate::rules::leaf::{Leaf, hash_of, is_settled, late_from, read_ids};
use campanile_model::clock::Timestamp;
use campanile_model::ids::{ChainHash, LaunchId};
use campanile_model::status::LaunchStatus;
use campanile_store::corrections::{self, ClockSetBack};
use campanile_store::events::Event;
use campanile_store::launch::FinishedLaunch;
use campanile_store::seals::{self, Seal};
use campanile_store::{Db, DbError, Tx, removed_launches};
use uuid::Uuid;

/// The seals of one page.
const PAGE: i64 = 32;
/// The launches of one page that no seal covers yet.
const LAUNCHES_PAGE: i64 = 4_096;
/// Times of one launch may be so far apart in the wrong order: each host counts time on from the database's clock by
/// itself.
const CLOCKS_MS: i64 = 60_000;

/// What is known at one place of the chain.
struct Walk<'r> {
    report: &'r mut Verification,
    span: Span,
    now: Timestamp,
    last: Option<Seal>,
    /// Launches that have ended and that no seal so far covers.
    unsealed: HashMap<Uuid, FinishedLaunch>,
    /// Events of sealed spans that no seal so far covers.
    unsealed_events: HashMap<Uuid, Event>,
    /// Sealed launches whose decision was changed.
    moved: HashSet<Uuid>,
    /// Sealed launches that are not on record, by the day of their slot.
    absent: BTreeMap<i64, Vec<LaunchId>>,
    oldest_event: Option<Timestamp>,
    set_backs: Vec<ClockSetBack>,
}

pub(super) async fn verify(
    db: &Db,
    span: Span,
    checkpoint: Option<&Checkpoint>,
    now: Timestamp,
    report: &mut Verification,
) -> Result<(), DbError> {
    let mut tx = db.read().await?;
    let oldest_event = seals::oldest_event(&mut tx).await?;
    let set_backs = corrections::clock_set_backs(&mut tx).await?;
    drop(tx);
    let mut walk = Walk {
        report,
        span,
        now,
        last: None,
        unsealed: HashMap::new(),
        unsealed_events: HashMap::new(),
        moved: HashSet::new(),
        absent: BTreeMap::new(),
        oldest_event,
        set_backs,
    };
    loop {
        let after = walk.last.as_ref().map_or(0, |last| last.number);
        let page = seals::page(&mut db.read().await?, after, PAGE).await?;
        let is_last = (page.len() as i64) < PAGE;
        for seal in page {
            walk.link(&seal, checkpoint);
            walk.compare(db, &seal).await?;
            walk.last = Some(seal);
        }
        if is_last {
            break;
        }
    }
    if let Some(checkpoint) = checkpoint {
        let newest = walk.last.as_ref().map_or(0, |last| last.number);
        if newest < checkpoint.number {
            let number = checkpoint.number;
            let text = format!("the checkpoint has seal {number}, and the chain ends at {newest}");
            walk.report.fault(FaultKind::SealBroken, number, text);
        }
    }
    walk.rest(db).await?;
    walk.explain_absent(db).await
}

impl Walk<'_> {
    /// Verify the hashes of a seal, and that it follows the one before.
    fn link(&mut self, seal: &Seal, checkpoint: Option<&Checkpoint>) {
        self.report.seals += 1;
        let number = seal.number;
        let mut broken = |text: &str| self.report.fault(FaultKind::SealBroken, number, text);
        let before = self.last.as_ref();
        if number != before.map_or(1, |before| before.number + 1) {
            broken("the seal before it is gone");
        } else if before.is_some_and(|before| !is_after(before, seal)) {
            broken("its span ends before it begins");
        } else if hash_of(before.map(|before| &before.hash), seal) != seal.hash {
            broken("its hash is not that of its columns and of the seal before");
        }
        let leaves = seal.leaves.as_deref();
        if leaves.is_some_and(|leaves| ChainHash::of(leaves) != seal.leaves_hash) {
            broken("its leaves do not have their hash");
        }
        let is_checked = checkpoint.filter(|checkpoint| checkpoint.number == number);
        if is_checked.is_some_and(|checkpoint| checkpoint.hash != seal.hash) {
            broken("the checkpoint has another hash of it: seals up to it were made again");
        }
    }

    /// Compare the rows of a seal's span with its leaves.
    async fn compare(&mut self, db: &Db, seal: &Seal) -> Result<(), DbError> {
        let begin = self
            .last
            .as_ref()
            .map_or(Timestamp::FIRST, |last| last.until_at);
        let is_asked = begin <= self.span.to && seal.until_at > self.span.from;
        let mut decided = Vec::new();
        if is_asked {
            let mut tx = db.read().await?;
            decided = seals::decided(&mut tx, begin, seal.until_at, i64::MAX).await?;
            self.check_rows(&mut tx, &decided).await?;
        }
        // Retention may have removed the leaves.
        let Some(leaves) = seal.leaves.as_deref().and_then(Leaf::read_all) else {
            return Ok(());
        };
        let ended = decided.into_iter();
        let ended = ended.filter(|launch| is_settled(launch, self.now));
        self.unsealed
            .extend(ended.map(|launch| (launch.id.0, launch)));
        let launches = usize::try_from(seal.launches)
            .unwrap_or(0)
            .min(leaves.len());
        let (launches, events) = leaves.split_at(launches);
        let mut absent: Vec<Leaf> = Vec::new();
        for leaf in launches {
            match self.unsealed.remove(&leaf.id) {
                Some(launch) => self.compare_launch(leaf, &launch),
                None if is_asked => absent.push(*leaf),
                // It was decided before the span that is verified.
                None => {}
            }
        }
        self.look_up(db, &absent).await?;
        // The events of a seal of late rows are of earlier spans.
        let is_late = begin == seal.until_at;
        if is_asked || is_late {
            let mut tx = db.read().await?;
            let found = seals::events(&mut tx, begin, seal.until_at, i64::MAX).await?;
            drop(tx);
            self.compare_events(events, found, is_late);
        }
        Ok(())
    }

    fn compare_launch(&mut self, leaf: &Leaf, launch: &FinishedLaunch) {
        if Leaf::of_launch(launch) != *leaf {
            let text = "it is not as it was when it was sealed";
            self.report.fault(FaultKind::LaunchChanged, launch.id, text);
        }
    }

    /// Look for sealed launches by their ids: those of an earlier span, those whose decision was changed, and deleted ones.
    async fn look_up(&mut self, db: &Db, leaves: &[Leaf]) -> Result<(), DbError> {
        if leaves.is_empty() {
            return Ok(());
        }
        let ids: Vec<LaunchId> = leaves.iter().map(|leaf| LaunchId(leaf.id)).collect();
        let found = seals::launches(&mut db.read().await?, &ids).await?;
        let found = found.into_iter().map(|launch| (launch.id.0, launch));
        let found: HashMap<Uuid, FinishedLaunch> = found.collect();
        for leaf in leaves {
            match found.get(&leaf.id) {
                Some(launch) => {
                    self.moved.insert(leaf.id);
                    self.compare_launch(leaf, launch);
                }
                None => {
                    let id = LaunchId(leaf.id);
                    self.absent.entry(id.slot().day()).or_default().push(id);
                }
            }
        }
        Ok(())
    }

    /// Compare events with their leaves.
    fn compare_events(&mut self, leaves: &[Leaf], found: Vec<Event>, is_late: bool) {
        self.report.events += found.len() as u64;
        let found = found.into_iter().map(|event| (event.id.0, event));
        self.unsealed_events.extend(found);
        let mut absent = Vec::new();
        for leaf in leaves {
            match self.unsealed_events.remove(&leaf.id) {
                Some(event) if *leaf == Leaf::of_event(&event) => {}
                Some(event) => {
                    let text = "it is not as it was when it was sealed";
                    self.report.fault(FaultKind::EventChanged, event.id, text);
                }
                None => absent.push(leaf.id),
            }
        }
        // Retention removes the oldest events. The span of a late event may not be verified.
        let oldest = self.oldest_event.map(|oldest| oldest.micros() / 1_000);
        let span = [self.span.from, self.span.to].map(|at| at.micros() / 1_000);
        let is_kept = |id: &&Uuid| {
            let at = time_of(**id);
            oldest.is_some_and(|oldest| at > oldest)
                && (!is_late || (span[0]..=span[1]).contains(&at))
        };
        for id in absent.iter().filter(is_kept) {
            let text = "it was deleted after it was sealed, and older events are on record";
            self.report.fault(FaultKind::EventDeleted, id, text);
        }
    }

    /// Returns from when on rows of sealed spans are not sealed yet, because the clock was set back.
    fn late_from(&self) -> Option<Timestamp> {
        let last = self.last.as_ref()?;
        late_from(last, self.now)
    }

    /// Check the launches that no seal covers yet, and report those that a seal should cover.
    async fn rest(&mut self, db: &Db) -> Result<(), DbError> {
        let mut since = self
            .last
            .as_ref()
            .map_or(Timestamp::FIRST, |last| last.until_at);
        let unfinished = self.last.as_ref().map(|last| read_ids(&last.unfinished));
        for id in unfinished.unwrap_or_default() {
            if self.unsealed.remove(&id.0).is_some() {
                self.report.launches_unsealed += 1;
            }
        }
        // After the clock was set back, a later seal covers the launches that were decided and the events that were recorded
        // since `late_from`.
        let late_from = self.late_from();
        let is_late = |at: Timestamp| late_from.is_some_and(|late_from| at >= late_from);
        let mut added: Vec<LaunchId> = Vec::new();
        for (id, launch) in self.unsealed.drain() {
            match is_late(launch.decided_at) {
                true => self.report.launches_unsealed += 1,
                false if self.moved.contains(&id) => {}
                false => added.push(launch.id),
            }
        }
        for (_, event) in self.unsealed_events.drain() {
            if !is_late(event.at) {
                let text = "it was added after its span was sealed, or its time was changed";
                self.report.fault(FaultKind::EventAdded, event.id, text);
            }
        }
        added.sort_unstable();
        for id in added {
            let text = "it was added after its span was sealed, or its end was changed";
            self.report.fault(FaultKind::LaunchAdded, id, text);
        }
        loop {
            let end = self.span.to.plus(Duration::from_micros(1));
            let mut tx = db.read().await?;
            let page = seals::decided(&mut tx, since, end, LAUNCHES_PAGE).await?;
            let Some(last) = page.last().map(|last| last.decided_at) else {
                return Ok(());
            };
            let is_full = page.len() as i64 == LAUNCHES_PAGE;
            let mut rows = page;
            if is_full {
                // The launches of its last moment may continue on the next page.
                if rows.first().is_some_and(|first| first.decided_at < last) {
                    rows.retain(|launch| launch.decided_at < last)
                } else {
                    let end = last.plus(Duration::from_micros(1));
                    rows = seals::decided(&mut tx, last, end, i64::MAX).await?;
                }
            }
            let next = rows.last().map(|launch| launch.decided_at);
            self.report.launches_unsealed += rows.len() as u64;
            self.check_rows(&mut tx, &rows).await?;
            if !is_full {
                return Ok(());
            }
            since = next.unwrap_or(last).plus(Duration::from_micros(1));
        }
    }

    /// Check what must hold for each launch by itself. `tx` is the transaction that read them: another one could see the
    /// lost run of a recovery that happened since.
    async fn check_rows(
        &mut self,
        tx: &mut Tx,
        launches: &[FinishedLaunch],
    ) -> Result<(), DbError> {
        let span = self.span;
        let asked = launches.iter();
        let asked: Vec<&FinishedLaunch> = asked
            .filter(|launch| span.contains(launch.decided_at))
            .collect();
        self.report.launches += asked.len() as u64;
        let recovered = asked.iter().filter(|launch| launch.started_at.is_some());
        let recovered: Vec<LaunchId> = recovered.map(|launch| launch.id).collect();
        let lost = seals::lost_runs(tx, &recovered).await?;
        let lost: HashMap<LaunchId, i64> = lost.into_iter().collect();
        for launch in asked {
            let lost = lost.get(&launch.id).copied().unwrap_or(0);
            let kind = FaultKind::LaunchImpossible;
            if let Some(text) = contradiction(launch, lost) {
                self.report.fault(kind, launch.id, text);
            } else if let Some((text, back)) = self.wrong_order(launch) {
                match back {
                    None => self.report.fault(kind, launch.id, text),
                    Some(back) => {
                        let why = format!(
                            "a clock went back from {} to {}, so {text}",
                            back.until, back.since
                        );
                        self.report.explain(kind, "clock", why);
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns which of a launch's times are out of order, if any, along with a recorded clock setback explaining it.
    fn wrong_order(&self, launch: &FinishedLaunch) -> Option<(&'static str, Option<ClockSetBack>)> {
        let began_at = launch.started_at.unwrap_or(launch.decided_at);
        let pairs = [
            (
                launch.decided_at,
                launch.started_at,
                "it has started before it was decided",
            ),
            (began_at, launch.finished_at, "it has ended before it began"),
        ];
        let mut wrong = pairs.into_iter().filter_map(|(earlier, later, text)| {
            let later = later.filter(|later| !is_in_order(earlier, *later))?;
            let explains = |back: &&ClockSetBack| {
                is_in_order(earlier, back.until) && is_in_order(back.since, later)
            };
            Some((text, self.set_backs.iter().find(explains).copied()))
        });
        let first = wrong.next()?;
        // An unexplained one is the fault to report.
        match first.1 {
            None => Some(first),
            Some(_) => Some(wrong.find(|(_, back)| back.is_none()).unwrap_or(first)),
        }
    }

    /// Report the sealed launches that are neither on record nor counted as removed.
    async fn explain_absent(&mut self, db: &Db) -> Result<(), DbError> {
        for (day, absent) in std::mem::take(&mut self.absent) {
            // A launch of a backfill, or a retry, has the time of its request in its id; its slot may be of another day.
            let removed = removed_launches::of_all(&mut db.read().await?, day).await?;
            let removed = removed.map_or(0, |removed| removed.launches);
            if removed >= absent.len() as i64 {
                continue;
            }
            let text = match removed {
                0 => "it is gone, and retention has removed no launch of its day".to_owned(),
                n => format!(
                    "it is gone, as {} launches of its day are, and retention has removed {n} of them",
                    absent.len()
                ),
            };
            for id in absent {
                self.report
                    .fault(FaultKind::LaunchDeleted, id, text.clone());
            }
        }
        Ok(())
    }
}

/// Pure: whether the span of a seal follows that of the one before. Seals of late rows have an empty one.
fn is_after(before: &Seal, seal: &Seal) -> bool {
    let is_late = before.late_at.is_some() || seal.late_at.is_some();
    before.until_at < seal.until_at || (is_late && before.until_at == seal.until_at)
}

/// Returns the milliseconds since 1970 in the id of an event.
fn time_of(id: Uuid) -> i64 {
    i64::try_from(id.as_u128() >> 80).unwrap_or(i64::MAX)
}

/// Pure: whether two times are in order, allowing for clock differences.
fn is_in_order(earlier: Timestamp, later: Timestamp) -> bool {
    later.micros() + CLOCKS_MS * 1_000 >= earlier.micros()
}

/// Pure: return which columns of a launch contradict each other, if any do. `lost` is the number of its lost runs.
fn contradiction(launch: &FinishedLaunch, lost: i64) -> Option<&'static str> {
    use LaunchStatus::{Failed, Skipped, Succeeded};
    let status = launch.status;
    let has_started = launch.started_at.is_some();
    Some(match () {
        () if matches!(status, Succeeded | Failed) && launch.attempts == 0 => {
            "it has ended as if it ran, and was never claimed"
        }
        () if status == Skipped && launch.attempts > 0 => "it is skipped, and was claimed",
        () if status == Succeeded && launch.failure.is_some() => "it has succeeded, with a failure",
        () if status == Failed && launch.failure.is_none() => "it has failed, without a failure",
        () if has_started && launch.attempts == 0 => "it has started, and was never claimed",
        () if launch.slot_count > 1 && status != Skipped => {
            "it stands for several slots, and is not skipped"
        }
        () if launch.last_scheduled_time < launch.scheduled_time => {
            "its last slot is before its first"
        }
        () if launch.fire_time < launch.scheduled_time
            && launch.slot_count == 1
            && !launch.kind.is_by_hand() =>
        {
            "it fires before its slot"
        }
        () if lost > launch.recoveries => "it has more lost runs than recoveries",
        () => return None,
    })
}
