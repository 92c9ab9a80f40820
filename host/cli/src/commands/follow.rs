//! `--follow` and `--wait`: read a run, a launch or the events from the record every 300 ms, and print the new rows.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use super::calls::print_logs;
use crate::Common;
use crate::client::Client;
use crate::output::{self, Result, failed};
use campanile_control::questions::launches::{GetLaunch, GetLogs};
use campanile_control::questions::record::ListEvents;
use campanile_control::records::ids;
use campanile_control::records::run::TaskLogs;
use campanile_control::reports::event_feed::EventFeed;
use campanile_model::clock::Timestamp;
use campanile_model::ids::{LaunchId, RunId, ShortId};
use campanile_model::text::printable_lines;
use campanile_store::events::{self, Event};
use campanile_store::launch::LaunchRow;
use campanile_store::runs::{self, RunRow};
use campanile_store::task_runs::{self, CallPlace};
use campanile_store::{DbError, RunStatus, Tx, history, hosts};

/// The least time between two reads.
const READ_INTERVAL: Duration = Duration::from_millis(300);
/// A host whose heartbeat is older than this does not serve.
const HEARTBEAT_AGE_MAX: Duration = Duration::from_secs(60);
/// A launch that has no run after this time may have no host.
const START_PATIENCE: Duration = Duration::from_secs(5);

/// Returns whether a host has recorded a heartbeat within [`HEARTBEAT_AGE_MAX`].
pub(crate) async fn is_served(tx: &mut Tx, now: Timestamp) -> Result<bool, DbError> {
    let oldest = now.minus(HEARTBEAT_AGE_MAX);
    let hosts = hosts::live(tx).await?;
    Ok(hosts.iter().any(|host| host.heartbeat_at >= oldest))
}

/// The calls of one run that are printed already.
struct Printed {
    run: RunId,
    calls: HashSet<(String, i64)>,
}

impl Printed {
    fn new(run: RunId) -> Printed {
        Printed {
            run,
            calls: HashSet::new(),
        }
    }

    /// Print the calls of the run that have ended since. Return false when the reader of stdout has closed it.
    async fn print_new(&mut self, tx: &mut Tx, as_json: bool) -> Result<bool> {
        if task_runs::count_of_run(tx, self.run).await? == self.calls.len() as i64 {
            return Ok(true);
        }
        for call in task_runs::sizes_of_run(tx, self.run, &CallPlace::first(), i64::MAX).await? {
            if self.calls.contains(&(call.task.clone(), call.attempt)) {
                continue;
            }
            let whole = task_runs::find(tx, self.run, &call.task, call.attempt).await?;
            if let Some(whole) = whole
                && !print_call(&TaskLogs::from(whole), as_json)?
            {
                return Ok(false);
            }
            self.calls.insert((call.task, call.attempt));
        }
        Ok(true)
    }
}

/// Print each call of a run when it ends, until the run ends. Fail when it does not succeed.
///
/// `id` may be short, or its launch's.
pub(crate) async fn run(common: &Common, id: &ShortId) -> Result {
    if let Some(client) = common.client()? {
        return match calls_by_api(client, &id.to_string(), common.json).await? {
            Some(run) => ended(&run),
            None => Ok(()),
        };
    }
    let db = common.open().await?;
    let id = ids::run(&mut db.read_long().await?, id, None).await?.id;
    let mut printed = Printed::new(id);
    loop {
        let mut tx = db.read_long().await?;
        let run = find(&mut tx, id).await?;
        let is_read = printed.print_new(&mut tx, common.json).await?;
        drop(tx);
        if !is_read {
            return Ok(());
        }
        if run.finished_at.is_some() {
            return ended(&run);
        }
        tokio::time::sleep(READ_INTERVAL).await;
    }
}

/// Say how a run ended. Fail when it did not succeed.
fn ended(run: &RunRow) -> Result {
    let status = run.status;
    let message = run.message.as_ref();
    let message = message.map_or_else(String::new, |text| format!(": {}", printable_lines(text)));
    output::print_message!("{status}{message}");
    output::check(status == RunStatus::Succeeded)
}

/// Print each call of a run when it ends. Return the run when it has ended; none when the reader of stdout has closed it.
async fn calls_by_api(client: &Client, id: &str, as_json: bool) -> Result<Option<RunRow>> {
    let mut printed = HashSet::new();
    let mut last = None;
    loop {
        let follow = GetLogs {
            follow: true,
            ..GetLogs::default()
        };
        let call = client.question(id, &follow)?;
        let mut events = call.last_event(last.as_deref()).listen().await?;
        while let Some(event) = events.next().await {
            if event.kind == "end" {
                return Ok(Some(event.read()?));
            }
            let logs: TaskLogs = event.read()?;
            // After a lost connection, calls that ended at the same time come again.
            let is_new = printed.insert((logs.task.clone(), logs.attempt));
            if is_new && !print_call(&logs, as_json)? {
                return Ok(None);
            }
            last = Some(event.id);
        }
        tokio::time::sleep(READ_INTERVAL).await;
    }
}

/// Print what a call logged and printed. Return false when the reader of stdout has closed it.
fn print_call(logs: &TaskLogs, as_json: bool) -> Result<bool> {
    if as_json {
        output::print_next_json(logs)
    } else {
        print_logs(logs)
    }
}

async fn find(tx: &mut Tx, id: RunId) -> Result<RunRow> {
    let run = runs::find(tx, id).await?;
    run.ok_or_else(|| failed!("the run {id} was removed from the record"))
}

/// Wait until a launch has ended, and return it. Unless JSON is wanted, print each call of its runs when it ends.
pub(crate) async fn launch(common: &Common, id: LaunchId) -> Result<LaunchRow> {
    if let Some(client) = common.client()? {
        return launch_by_api(client, id, common.json).await;
    }
    let (db, clock) = common.open_with_clock().await?;
    let mut printed: Option<Printed> = None;
    let mut patience = Some(Instant::now() + START_PATIENCE);
    loop {
        let mut tx = db.read_long().await?;
        let decided = history::launch(&mut tx, id).await?;
        let row = decided.ok_or_else(|| failed!("the launch {id} was removed from the record"))?;
        let row = row.launch;
        if let (Some(run), false) = (row.run_id.0, common.json) {
            if printed.as_ref().is_none_or(|printed| printed.run != run) {
                printed = Some(Printed::new(run));
            }
            if let Some(printed) = &mut printed {
                printed.print_new(&mut tx, false).await?;
            }
        }
        if row.finished_at.is_some() {
            return Ok(row);
        }
        if row.run_id.0.is_none() && patience.is_some_and(|until| until <= Instant::now()) {
            patience = None;
            say_unserved(&mut tx, clock.now()).await?;
        }
        drop(tx);
        tokio::time::sleep(READ_INTERVAL).await;
    }
}

async fn launch_by_api(client: &Client, id: LaunchId, as_json: bool) -> Result<LaunchRow> {
    let mut followed = None;
    loop {
        let page = client.ask(&id.to_string(), &GetLaunch {}).await?;
        let launch = page.answer.decided.launch;
        match launch.run_id.0 {
            Some(run) if followed != Some(run) && !as_json => {
                calls_by_api(client, &run.to_string(), false).await?;
                followed = Some(run);
            }
            _ if launch.finished_at.is_some() => return Ok(launch),
            _ => tokio::time::sleep(READ_INTERVAL).await,
        }
    }
}

async fn say_unserved(tx: &mut Tx, now: Timestamp) -> Result {
    if !is_served(tx, now).await? {
        output::print_message(
            "no host serves this database, so the launch waits; start `campanile serve`",
        );
    }
    Ok(())
}

/// Print the newest `limit` events, oldest first, and then each event soon after it is recorded. Return when the reader of
/// stdout has closed it.
pub(crate) async fn events(common: &Common, limit: i64) -> Result {
    if let Some(client) = common.client()? {
        return events_by_api(common, client, limit).await;
    }
    let (db, clock) = common.open_with_clock().await?;
    let mut tx = db.read_long().await?;
    let mut newest = events::list(&mut tx, None, limit).await?;
    newest.reverse();
    let mut feed = EventFeed::default();
    let mut news = feed.unseen(newest);
    // Earlier events are beyond the limit. The next read must not return them as new ones.
    feed.read(&mut tx, clock.now()).await?;
    drop(tx);
    loop {
        for event in &news {
            if !print_event(event, common.json)? {
                return Ok(());
            }
        }
        tokio::time::sleep(READ_INTERVAL).await;
        news = feed.read(&mut db.read_long().await?, clock.now()).await?;
    }
}

/// Do the same with the events of the API.
async fn events_by_api(common: &Common, client: &Client, limit: i64) -> Result {
    let stream = || client.get(&["events", "stream"]);
    // It begins before the list is read, so that no event is between them.
    let mut events = stream().listen().await?;
    let source = common.source().await?;
    let mut newest = source.list(ListEvents::default(), limit).await?.rows;
    newest.reverse();
    let mut last = newest.last().map(|event| event.id);
    let mut feed = EventFeed::default();
    for event in feed.unseen(newest) {
        if !print_event(&event, common.json)? {
            return Ok(());
        }
    }
    loop {
        while let Some(event) = events.next().await {
            let event: Event = event.read()?;
            feed.forget_before(event.at);
            last = Some(event.id);
            for event in feed.unseen(vec![event]) {
                if !print_event(&event, common.json)? {
                    return Ok(());
                }
            }
        }
        tokio::time::sleep(READ_INTERVAL).await;
        // After a lost connection, the events of the last seconds come again.
        let last = last.map(|id| id.to_string());
        events = stream().last_event(last.as_deref()).listen().await?;
    }
}

/// Print an event. Return false when the reader of stdout has closed it.
fn print_event(event: &Event, as_json: bool) -> Result<bool> {
    if as_json {
        output::print_next_json(event)
    } else {
        output::print_next_line(&line(event))
    }
}

fn line(event: &Event) -> String {
    let Event {
        at,
        kind,
        subject,
        detail,
        ..
    } = event;
    format!("{at}  {kind}  {subject}  {}", detail.replace('\n', " "))
}
