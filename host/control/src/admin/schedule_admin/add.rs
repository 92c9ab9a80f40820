//! Add schedules, thousands of them with a few statements.

use std::collections::{BTreeMap, HashMap};

use super::error::{did_you_mean, no_task};
use super::holder::Holder;
use super::pause::pause_disabled;
use super::{
    Result, ScheduleDefinition, ScheduleError, check_args, form_of, known_package, next_slot_after,
    replace, revise, revision,
};
use crate::schedules::definition;
use campanile_model::clock::Timestamp;
use campanile_model::ids::ScheduleId;
use campanile_package::{Manifest, context, names};
use campanile_sandbox::Form;
use campanile_schedule::rule::{HashKey, Rule, RuleKind, RuleText};
use campanile_store::events::{self, EventKind, NewEvent};
use campanile_store::schedules::{self, History, NewSchedule, Schedule};
use campanile_store::{DbError, Origin, Tx, changes};

/// Adds a schedule, returning its id. See [`add_all`].
pub async fn add(
    tx: &mut Tx,
    wanted: &ScheduleDefinition,
    origin: Origin,
    now: Timestamp,
) -> Result<ScheduleId> {
    let mut added = add_all(tx, std::slice::from_ref(wanted), origin, now).await?;
    added.swap_remove(0)
}

/// Add schedules. For each of `wanted`, return its id, or why it is refused. The others are added.
///
/// A proposal yielding its name turns into the wanted schedule if both are of the same package; otherwise it ends.
///
/// # Errors
/// When the database fails, or another host took one of the names at the same moment. Nothing of the transaction can be kept.
pub async fn add_all(
    tx: &mut Tx,
    wanted: &[ScheduleDefinition],
    origin: Origin,
    now: Timestamp,
) -> Result<Vec<Result<ScheduleId>>> {
    let names: Vec<&str> = wanted.iter().map(|wanted| &*wanted.name).collect();
    let mut taken = holders(tx, &names).await?;
    let mut proposals = lock_yielding(tx, wanted, origin, &taken).await?;
    let mut packages = KnownPackages::default();
    let defaults = definition::recorded_defaults(tx).await?;
    let mut results = Vec::with_capacity(wanted.len());
    let (mut added, mut news) = (Vec::new(), Vec::new());
    for wanted in wanted {
        let proposal = proposals.remove(&wanted.name);
        let holder = match &proposal {
            Some(proposal) => Some(Holder::of(proposal)),
            None => taken.get(&wanted.name).cloned(),
        };
        if let Some(proposal) = &proposal
            && proposal.definition.package == wanted.package
            && Holder::of(proposal).yields_to(wanted, origin)
        {
            let revised = revise(tx, proposal, wanted, origin, now).await;
            let revised = revised.map(|()| proposal.state.id);
            if let Ok(id) = revised
                && proposal.state.enabled
            {
                pause_disabled(tx, &[(id, wanted)], origin, now).await?;
            }
            if let Err(error @ (ScheduleError::Db(_) | ScheduleError::Raced(_))) = revised {
                return Err(error);
            }
            results.push(revised);
            continue;
        }
        let id = ScheduleId::random();
        let result = match prepare(tx, &mut packages, (wanted, id), (origin, holder), now).await {
            Ok(next_slot) => {
                let package = wanted.package.clone();
                let holder = Holder { origin, package };
                if let Some(proposal) = &proposal {
                    replace(tx, proposal, &holder, now).await?;
                }
                taken.insert(wanted.name.clone(), holder);
                added.push(NewSchedule {
                    definition: revision(wanted, (id, 1), &defaults, now),
                    origin,
                    next_slot,
                });
                news.push(event(wanted, origin));
                Ok(id)
            }
            Err(error @ ScheduleError::Db(_)) => return Err(error),
            Err(refused) => Err(refused),
        };
        results.push(result);
    }
    if !added.is_empty() {
        schedules::insert_all(tx, &added).await?;
        events::record_all(tx, now, &news).await?;
        let ids = results.iter().zip(wanted);
        let ids = ids.filter_map(|(id, wanted)| Some((*id.as_ref().ok()?, wanted)));
        pause_disabled(tx, &ids.collect::<Vec<_>>(), origin, now).await?;
        changes::bump(tx).await?;
    }
    Ok(results)
}

/// Returns the holders of those `names` already taken by schedules.
pub(crate) async fn holders(
    tx: &mut Tx,
    names: &[&str],
) -> Result<BTreeMap<String, Holder>, DbError> {
    let taken = schedules::holders(tx, names).await?.into_iter();
    Ok(taken
        .map(|(name, origin, package)| (name, Holder { origin, package }))
        .collect())
}

/// Locks the proposals yielding their names to `wanted`, returning them as they are now.
async fn lock_yielding(
    tx: &mut Tx,
    wanted: &[ScheduleDefinition],
    origin: Origin,
    taken: &BTreeMap<String, Holder>,
) -> Result<BTreeMap<String, Schedule>> {
    let yields = |wanted: &&ScheduleDefinition| {
        let holder = taken.get(&wanted.name);
        holder.is_some_and(|holder| holder.yields_to(wanted, origin))
    };
    let names = wanted.iter().filter(yields).map(|wanted| &*wanted.name);
    let names: Vec<&str> = names.collect();
    if names.is_empty() {
        return Ok(BTreeMap::new());
    }
    schedules::lock_named(tx, &names).await?;
    let proposals = schedules::named(tx, &names).await?.into_iter();
    Ok(proposals
        .map(|proposal| (proposal.definition.name.clone(), proposal))
        .collect())
}

/// Checks a new schedule, given the current `holder` of its name, if any. Returns its first slot.
async fn prepare(
    tx: &mut Tx,
    packages: &mut KnownPackages,
    (wanted, id): (&ScheduleDefinition, ScheduleId),
    (origin, holder): (Origin, Option<Holder>),
    now: Timestamp,
) -> Result<Option<Timestamp>> {
    let rule = check(tx, packages, wanted, id).await?;
    if let Some(holder) = holder.filter(|holder| !holder.yields_to(wanted, origin)) {
        return Err(ScheduleError::exists(&wanted.name, holder));
    }
    if origin == Origin::Operator {
        refuse_nothing_ahead(wanted, &rule, now)?;
    }
    let (policies, history) = (&wanted.policies, History::default());
    Ok(next_slot_after(&rule, policies, &history, now, None))
}

/// Checks a schedule that an operator is about to add. Nothing is changed.
///
/// # Errors
/// Those of [`add`].
pub async fn check_new(tx: &mut Tx, wanted: &ScheduleDefinition, now: Timestamp) -> Result {
    let holder = holders(tx, &[&wanted.name]).await?.remove(&wanted.name);
    let (mut packages, id) = (KnownPackages::default(), ScheduleId::random());
    let of_name = (Origin::Operator, holder);
    prepare(tx, &mut packages, (wanted, id), of_name, now).await?;
    Ok(())
}

fn event(wanted: &ScheduleDefinition, origin: Origin) -> NewEvent {
    let RuleText {
        kind,
        expression,
        timezone,
        ..
    } = &wanted.rule;
    let package = wanted.package.clone();
    let origin = Holder { origin, package }.text();
    let detail = format!("{kind} {expression} {timezone}, {origin}");
    NewEvent::new(EventKind::ScheduleAdded, &wanted.name, detail)
}

/// The packages that a change of schedules has looked up, each with the manifest and the form of its active version.
#[derive(Default)]
pub(super) struct KnownPackages(HashMap<String, (Manifest, Option<Form>)>);

impl KnownPackages {
    /// Returns the manifest and the form of a package's active version.
    async fn active(&mut self, tx: &mut Tx, name: &str) -> Result<&(Manifest, Option<Form>)> {
        if !self.0.contains_key(name) {
            let package = known_package(tx, name).await?;
            let manifest = Manifest::from_stored(&package.name, &package.manifest);
            self.0
                .insert(name.to_owned(), (manifest, form_of(&package)));
        }
        Ok(&self.0[name])
    }
}

/// Refuse a name that no schedule of `package` can have.
pub(super) fn check_name(name: &str, package: &str) -> Result {
    if let Some(fault) = names::schedule_name_fault(name) {
        let name = name.to_owned();
        return Err(ScheduleError::Name { name, fault });
    }
    match names::namespace_of_schedule_fault(name, package) {
        Some(fault) => Err(ScheduleError::Invalid(fault)),
        None => Ok(()),
    }
}

/// Check a definition of the schedule `id`, except whether its name is free. Return its rule.
pub(super) async fn check(
    tx: &mut Tx,
    packages: &mut KnownPackages,
    wanted: &ScheduleDefinition,
    id: ScheduleId,
) -> Result<Rule> {
    check_name(&wanted.name, &wanted.package)?;
    context::check(&wanted.context)?;
    let rule = Rule::parse(&wanted.rule, HashKey::of(id))?;
    wanted.policies.check(&rule)?;
    let (manifest, form) = packages.active(tx, &wanted.package).await?;
    if let Some(args) = &wanted.args {
        check_args(args, &wanted.package, *form)?;
    }
    if let Some(task) = &wanted.task
        && manifest.task(task).is_none()
    {
        let hint = did_you_mean(task, manifest.tasks.iter().map(|task| &*task.id));
        let message = no_task(&wanted.package, manifest, task) + &hint;
        return Err(ScheduleError::Refused(message));
    }
    Ok(rule)
}

/// Refuse a schedule that would never fire. A file may define such a schedule, because it keeps a schedule that has ended.
pub(super) fn refuse_nothing_ahead(
    wanted: &ScheduleDefinition,
    rule: &Rule,
    now: Timestamp,
) -> Result {
    let policies = &wanted.policies;
    let fires = match rule.delay_after_completion() {
        Some(_) => policies.allowed_from(now, 0).is_some(),
        None => rule.at_host_start() || policies.next_slot(rule, now, 0).is_some(),
    };
    let is_at = wanted.rule.kind == RuleKind::At;
    match policies.end_at.filter(|end| *end <= now) {
        _ if fires => Ok(()),
        Some(end) => Err(ScheduleError::Past(end)),
        None if is_at => Err(ScheduleError::Past(
            wanted.rule.expression.parse().unwrap_or(now),
        )),
        None => Err(ScheduleError::NothingAhead),
    }
}
