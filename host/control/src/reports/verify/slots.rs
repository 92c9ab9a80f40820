//! Compute the slots of every schedule again, and compare them with the decisions.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use super::{FaultKind, Span, Verification};
use crate::schedules::definition;
use campanile_model::clock::Timestamp;
use campanile_model::ids::{LaunchId, ScheduleId};
use campanile_schedule::policy::Policies;
use campanile_schedule::rule::{Rule, tzdata_version};
use campanile_store::corrections::{self, CursorReset};
use campanile_store::events::Event;
use campanile_store::schedules::Revision;
use campanile_store::seals::{self, SlotRow, VerifiedSchedule};
use campanile_store::{Db, DbError, Tx, history, removed_launches};

/// The schedules of one page.
const SCHEDULES_PAGE: i64 = 256;
/// The decisions of one page.
const SLOTS_PAGE: i64 = 4_096;
const MICROSECOND: Duration = Duration::from_micros(1);
/// So many missing slots of one schedule are listed. The rest of that schedule is not compared.
const MISSING_MAX: usize = 20;

/// The definitions that a schedule had, the oldest first.
struct Definitions {
    name: String,
    rules: Vec<TimedRule>,
    /// Recorded resets of its cursor, oldest first.
    resets: Vec<CursorReset>,
}

/// A definition, and since when it holds: slots up to the next one's beginning are its own.
struct TimedRule {
    revision: i64,
    since: Timestamp,
    rule: Rule,
    policies: Policies,
}

/// The comparison of one schedule.
struct Comparison<'a> {
    db: &'a Db,
    report: &'a mut Verification,
    id: ScheduleId,
    definitions: &'a Definitions,
    uncounted_before: Option<i64>,
    /// Whether launches of a day were removed, of the days that were asked for.
    removed_days: HashMap<i64, bool>,
    /// Last slots of those earlier decisions whose ranges may reach past the current one.
    open_ranges: Vec<Timestamp>,
    missing: usize,
}

pub(super) async fn verify(db: &Db, span: Span, report: &mut Verification) -> Result<(), DbError> {
    let mut after = ScheduleId::FIRST;
    loop {
        let page = seals::schedules(&mut db.read().await?, after, SCHEDULES_PAGE).await?;
        let last = page.last().map(|schedule| schedule.id);
        let is_full = page.len() as i64 == SCHEDULES_PAGE;
        for schedule in page {
            verify_schedule(db, &schedule, span, report).await?;
        }
        match last {
            Some(last) if is_full => after = last,
            _ => return Ok(()),
        }
    }
}

async fn verify_schedule(
    db: &Db,
    schedule: &VerifiedSchedule,
    span: Span,
    report: &mut Verification,
) -> Result<(), DbError> {
    let definitions = match Definitions::read(db, schedule.id).await? {
        Ok(definitions) => definitions,
        Err(note) => {
            report.notes.push(note);
            return Ok(());
        }
    };
    // The clock gives these no slots.
    let has_slots = |timed: &TimedRule| {
        timed.rule.delay_after_completion().is_none() && !timed.rule.at_host_start()
    };
    if !definitions.rules.iter().all(has_slots) {
        return Ok(());
    }
    report.schedules += 1;
    let begin = span.from.minus(MICROSECOND).max(schedule.created_at);
    let end = span.to.min(schedule.cursor_at);
    let mut comparison = Comparison {
        db,
        report,
        id: schedule.id,
        definitions: &definitions,
        uncounted_before: schedule.uncounted_before,
        removed_days: HashMap::new(),
        open_ranges: Vec::new(),
        missing: 0,
    };
    comparison.run(begin, end).await
}

impl Definitions {
    /// Read the definitions of a schedule. The inner error is a note why they cannot be compared.
    async fn read(db: &Db, id: ScheduleId) -> Result<Result<Definitions, String>, DbError> {
        let mut tx = db.read().await?;
        let revisions = history::revisions(&mut tx, id).await?;
        let resets = resets(&mut tx, id, &revisions).await?;
        drop(tx);
        let name = revisions
            .last()
            .map_or_else(|| id.to_string(), |newest| newest.name.clone());
        let mut rules: Vec<TimedRule> = Vec::with_capacity(revisions.len());
        for revision in revisions {
            let since = revision.since;
            match definition::parse(&revision) {
                Ok((rule, policies)) => rules.push(TimedRule {
                    revision: revision.revision,
                    since,
                    rule,
                    policies,
                }),
                Err(why) => {
                    let number = revision.revision;
                    return Ok(Err(format!(
                        "the slots of `{name}` were not computed: this version cannot read its revision {number}: {why}"
                    )));
                }
            }
        }
        // A wrong clock may have dated a revision later than the reset, though it has been in use since then.
        for reset in &resets {
            for timed in &mut rules {
                if timed.revision <= reset.revision && timed.since > reset.to_at {
                    timed.since = reset.to_at;
                }
            }
        }
        Ok(Ok(Definitions {
            name,
            rules,
            resets,
        }))
    }

    /// Returns the resets allowing a slot to be decided again.
    fn resets_of(&self, slot: Timestamp) -> impl Iterator<Item = &CursorReset> {
        let resets = self.resets.iter();
        resets.filter(move |reset| reset.to_at < slot && slot <= reset.from_at)
    }

    /// Whether this revision's definition includes the slot.
    fn is_slot_of(&self, revision: i64, slot: Timestamp) -> bool {
        let mut rules = self.rules.iter();
        let before = slot.minus(Duration::from_micros(1));
        rules.any(|timed| {
            timed.revision == revision
                && timed.policies.next_slot(&timed.rule, before, 0) == Some(slot)
        })
    }

    /// Returns the definitions applying after `after`, each with its span, excluding the start and including the end.
    fn after(&self, after: Timestamp) -> impl Iterator<Item = (&TimedRule, Timestamp, Timestamp)> {
        let ends = self.rules.iter().skip(1).map(|next| next.since);
        let ends = ends.chain([Timestamp::LAST]);
        let spans = self.rules.iter().zip(ends);
        let spans = spans.filter(move |(_, end)| *end > after);
        spans.map(move |(timed, end)| (timed, after.max(timed.since), end))
    }

    /// Returns the last slot after `first` up to `until`, or else `first`, and the number of slots between. A range may cover too
    /// many slots for walking through.
    fn last_and_count(&self, first: Timestamp, until: Timestamp) -> (Timestamp, u64) {
        let (mut last, mut count) = (first, 0);
        for (timed, after, end) in self.after(first) {
            let policies = &timed.policies;
            let end = policies.end_at.unwrap_or(end).min(end).min(until);
            // `max_launches` ends the slots through the cursor, which stays at the last launch.
            let slot = policies.next_slot(&timed.rule, after, 0);
            if let Some(slot) = slot.filter(|slot| *slot <= end) {
                let (of_rule, slots) = timed.rule.run(slot, end.plus(MICROSECOND));
                (last, count) = (of_rule, count + slots);
            }
        }
        (last, count)
    }

    /// Returns the first slot after `after`, by the definition in effect at the time.
    fn next(&self, after: Timestamp) -> Option<Timestamp> {
        self.after(after).find_map(|(timed, after, end)| {
            // `max_launches` ends the slots through the cursor, which stays at the last launch.
            let slot = timed.policies.next_slot(&timed.rule, after, 0)?;
            (slot <= end).then_some(slot)
        })
    }

    /// Whether a missing slot may come after the last launch that `max_launches` allowed. `next` is the next slot with a
    /// decision: one by the same definition shows that the schedule had not ended.
    fn may_have_ended(&self, slot: Timestamp, next: Option<Timestamp>) -> bool {
        let index = |at| {
            self.rules
                .iter()
                .rposition(|timed| timed.since < at)
                .unwrap_or(0)
        };
        let of_slot = index(slot);
        let limit = self
            .rules
            .get(of_slot)
            .and_then(|timed| timed.policies.max_launches);
        limit.is_some() && next.is_none_or(|next| index(next) != of_slot)
    }

    /// Whether slots depend on a time zone that changes.
    fn depends_on_zone(&self) -> bool {
        self.rules
            .iter()
            .any(|timed| timed.rule.timezone() != "UTC")
    }
}

/// Returns a schedule's cursor resets, as far as their events are on record. Retention may have removed old events.
async fn resets(
    tx: &mut Tx,
    id: ScheduleId,
    revisions: &[Revision],
) -> Result<Vec<CursorReset>, DbError> {
    let mut resets = Vec::new();
    let all = corrections::cursor_resets(tx, id).await?;
    if all.is_empty() {
        return Ok(resets);
    }
    let oldest_event = seals::oldest_event(tx).await?;
    let names: BTreeSet<&str> = revisions.iter().map(|it| it.name.as_str()).collect();
    for reset in all {
        let at = reset.reset_at;
        let is_removed = oldest_event.is_none_or(|oldest| at < oldest);
        let mut has_event = is_removed;
        for name in names.iter().take_while(|_| !is_removed) {
            let events = history::events(tx, name, at, at).await?;
            let moved = (Some(reset.from_at), Some(reset.to_at));
            let is_it = |event: &Event| (event.from_at, event.to_at) == moved;
            has_event |= events.iter().any(is_it);
        }
        if has_event {
            resets.push(reset);
        }
    }
    Ok(resets)
}

impl Comparison<'_> {
    /// Compare the slots after `begin` and up to `end` with the decisions.
    async fn run(&mut self, begin: Timestamp, end: Timestamp) -> Result<(), DbError> {
        // A range may have begun before.
        let range = seals::range_over(&mut self.db.read().await?, self.id, begin).await?;
        let mut last = range.unwrap_or(begin);
        self.open_ranges.extend(range);
        let mut expected = self.definitions.next(last);
        let mut after = begin;
        loop {
            let mut tx = self.db.read().await?;
            let page = seals::slots(&mut tx, self.id, after, end, SLOTS_PAGE).await?;
            drop(tx);
            let is_full = page.len() as i64 == SLOTS_PAGE;
            for row in &page {
                if self.is_of_other_zones(row) {
                    return Ok(());
                }
                while let Some(slot) = expected.filter(|slot| *slot < row.scheduled_time) {
                    if !self.missing(slot, Some(row.scheduled_time)).await? {
                        return Ok(());
                    }
                    expected = self.definitions.next(slot);
                }
                self.decision(row, expected, last);
                last = row.last_scheduled_time.max(last);
                expected = self.definitions.next(last);
                after = row.scheduled_time;
            }
            if !is_full {
                break;
            }
        }
        while let Some(slot) = expected.filter(|slot| *slot <= end) {
            if !self.missing(slot, None).await? {
                return Ok(());
            }
            expected = self.definitions.next(slot);
        }
        Ok(())
    }

    /// Whether a row was decided with other rules of time zones than this binary has. Then its slots may differ.
    fn is_of_other_zones(&mut self, row: &SlotRow) -> bool {
        let other = row.tzdata_version.as_deref();
        let other = other.filter(|version| *version != tzdata_version());
        match other.filter(|_| self.definitions.depends_on_zone()) {
            None => false,
            Some(version) => {
                let (name, slot, own) =
                    (&self.definitions.name, row.scheduled_time, tzdata_version());
                self.report.notes.push(format!(
                    "the slots of `{name}` from {slot} on were not computed: they were decided with tzdata {version}, and this binary has {own}"
                ));
                true
            }
        }
    }

    /// Compare one decision with the slot that comes next.
    fn decision(&mut self, row: &SlotRow, expected: Option<Timestamp>, last: Timestamp) {
        let (slot, until) = (row.scheduled_time, row.last_scheduled_time);
        let name = self.definitions.name.clone();
        // `slot` needn't be one by the rule.
        let (at, further) = self.definitions.last_and_count(slot, until);
        let slots = i64::try_from(1 + further).unwrap_or(i64::MAX);
        self.report.slots += 1 + further;
        self.open_ranges.retain(|end| *end >= slot);
        let decided_before = self.open_ranges.len();
        self.open_ranges.push(until);
        // Each reset allows deciding a slot once more. A slot with its own launch has just one id, so one of the two is a range.
        let resets: Vec<&CursorReset> = self.definitions.resets_of(slot).collect();
        let why = resets.last().map(|reset| {
            format!(
                "the cursor was reset at {}, from {} to {}",
                reset.reset_at, reset.from_at, reset.to_at
            )
        });
        let is_own_slot = self.definitions.is_slot_of(row.schedule_revision, slot);
        let mut fault = |kind, text: String| self.report.fault(kind, &name, text);
        if slot <= last
            && expected != Some(slot)
            && let Some(why) = why.clone()
            && decided_before <= resets.len()
            && is_own_slot
        {
            self.report.explain(FaultKind::SlotTwice, &name, why);
        } else if slot <= last && expected != Some(slot) {
            let text = format!(
                "the slot {slot} has two decisions; the second is launch {}",
                row.id
            );
            fault(FaultKind::SlotTwice, text);
        } else if expected != Some(slot)
            && let Some(why) = why
            && is_own_slot
        {
            self.report.explain(FaultKind::SlotWrong, &name, why);
        } else if expected != Some(slot) {
            let text = format!("launch {} is of {slot}, which is no slot", row.id);
            fault(FaultKind::SlotWrong, text);
        } else if at != until || slots != row.slot_count {
            let (id, count) = (row.id, row.slot_count);
            let text = format!(
                "launch {id} stands for {count} slots from {slot} to {until}, and there are {slots} up to {at}"
            );
            fault(FaultKind::SlotWrong, text);
        }
        if row.id != LaunchId::of(self.id, slot, row.kind) {
            let mut fault = |kind, text: String| self.report.fault(kind, &name, text);
            let text = format!(
                "launch {} is of the slot {slot}, and its id is of another slot or schedule",
                row.id
            );
            fault(FaultKind::SlotWrong, text);
        }
    }

    /// Report a slot without a decision, unless the schedule may have ended before it, or retention may have removed it.
    /// `next` is the next slot with a decision. Return whether to continue.
    async fn missing(&mut self, slot: Timestamp, next: Option<Timestamp>) -> Result<bool, DbError> {
        if self.definitions.may_have_ended(slot, next) {
            return Ok(true);
        }
        let day = slot.day();
        let is_removed = match self.removed_days.get(&day) {
            Some(is_removed) => *is_removed,
            None => {
                let is_uncounted = self.uncounted_before.is_some_and(|before| day < before);
                let mut tx = self.db.read().await?;
                let removed = removed_launches::of_day(&mut tx, self.id, day).await?;
                let is_removed = is_uncounted || removed.is_some();
                self.removed_days.insert(day, is_removed);
                is_removed
            }
        };
        if is_removed {
            self.report.slots_removed += 1;
            return Ok(true);
        }
        self.missing += 1;
        self.report.slots += 1;
        let name = self.definitions.name.clone();
        let text = format!("the slot {slot} has no decision");
        self.report.fault(FaultKind::SlotMissing, &name, text);
        if self.missing < MISSING_MAX {
            return Ok(true);
        }
        let note = format!(
            "the slots of `{name}` after {slot} were not computed: {MISSING_MAX} before it are missing"
        );
        self.report.notes.push(note);
        Ok(false)
    }
}
