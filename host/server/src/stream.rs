//! Server-sent events: new events of the record, and the logs of a run while it runs.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use futures_util::stream;
use serde::Serialize;
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;

use crate::app::State;
use crate::call::{Call, Reply, Result};
use crate::news::{FailureNews, News};
use crate::problem::ApiProblem;
use crate::shares::Share;
use crate::{auth, read};
use campanile_control::questions::launches::GetLogs;
use campanile_control::records::ids;
use campanile_control::records::run::TaskLogs;
use campanile_control::reports::event_feed::{EVENTS_OVERLAP, EventFeed};
use campanile_control::reports::failure_feed::FailureFeed;
use campanile_model::clock::Timestamp;
use campanile_model::ids::{EventId, LaunchId, RunId, ShortId};
use campanile_model::namespace::Namespace;
use campanile_store::events::{self, Event};
use campanile_store::runs;
use campanile_store::task_runs::{self, CallPlace, CallSize, TaskRun};
use campanile_store::troubles;

/// The header with the id of the last event that a client has.
const LAST_EVENT_ID: &str = "last-event-id";
/// The least time between two reads.
const READ_INTERVAL: Duration = Duration::from_millis(300);
/// How often a line is sent when nothing happens, so that a lost connection is noticed.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// The events that wait for a slow client.
const WAITING_MAX: usize = 16;
/// The events that are read at once for a client that has missed some.
const MISSED_PAGE: i64 = 500;
/// Under which name the turns of streams count.
const FEED: &str = "streams";

/// Where the events of one client go.
struct Sink {
    sender: mpsc::Sender<Bytes>,
    /// The places of listeners are few.
    _place: Share,
}

impl Sink {
    /// Opens a stream to the client of `call`, returning its body too. The principal is limited to a share of all streams.
    fn open(call: &Call) -> Result<(Sink, Body)> {
        let place = call.state.listeners.try_take(&call.principal_key(), 1);
        let place = place.ok_or_else(|| {
            let by = call.by();
            let message =
                format!("this host has no more streams of events for {by}, or too many for all");
            ApiProblem::unavailable(message).hint("close some of the others, or try again later")
        })?;
        let (sender, receiver) = mpsc::channel::<Bytes>(WAITING_MAX);
        let body = stream::unfold(receiver, |mut receiver| async move {
            let bytes = receiver.recv().await?;
            Some((Ok::<_, std::convert::Infallible>(bytes), receiver))
        });
        Ok((
            Sink {
                sender,
                _place: place,
            },
            Body::from_stream(body),
        ))
    }

    /// Send one event. False when the client is gone.
    async fn send(&self, kind: &str, id: &str, data: &impl Serialize) -> bool {
        self.send_as(&format!("{kind}\nid: {id}"), data).await
    }

    /// Send data of a kind; the last id of the client stays. False when the client is gone.
    async fn send_as(&self, kind: &str, data: &impl Serialize) -> bool {
        // JSON on one line.
        let Ok(data) = serde_json::to_string(data) else {
            return false;
        };
        let text = format!("event: {kind}\ndata: {data}\n\n");
        self.sender.send(text.into()).await.is_ok()
    }

    /// Send a line that clients ignore. False when the client is gone.
    async fn beat(&self) -> bool {
        self.sender.send(Bytes::from_static(b":\n\n")).await.is_ok()
    }
}

/// Wait until the host is to stop.
async fn stop(stopping: &mut watch::Receiver<bool>) {
    let _ = stopping.wait_for(|stop| *stop).await;
}

/// Returns the last event id of a client that connects again.
fn last_event_id(call: &Call) -> Option<&str> {
    call.headers
        .get(LAST_EVENT_ID)
        .and_then(|id| id.to_str().ok())
}

/// Stream new events. A client that names its last one first gets those since, and again those of the ten seconds before.
pub(crate) async fn events(call: Call) -> Result {
    listen(call, false).await
}

/// Stream new events to a page, and the launches that fail.
pub(crate) async fn updates(call: Call) -> Result {
    listen(call, true).await
}

async fn listen(call: Call, has_failures: bool) -> Result {
    let last = last_event_id(&call).map(str::parse::<EventId>).transpose();
    let last = last.map_err(|error| ApiProblem::invalid(format!("`Last-Event-ID`: {error}")))?;
    let mut news = call.state.news.subscribe();
    let opened = call.now();
    let from = match last {
        Some(_) => EventId::FIRST,
        None => EventId::first_at(opened),
    };
    let (sink, body) = Sink::open(&call)?;
    let mut stopping = call.state.app.stopping.clone();
    let (state, principal) = (Arc::clone(&call.state), call.principal);
    let namespace = principal.as_ref();
    let namespace = namespace.and_then(|principal| principal.namespace.clone());
    tokio::spawn(async move {
        let is_hidden = |event: &Event| is_other(namespace.as_ref(), event);
        let sending = async {
            // The head of the answer goes out with the first bytes.
            if !sink.beat().await {
                return;
            }
            let sent = match last {
                Some(last) => send_missed(&state, last, namespace.as_ref(), &sink).await,
                None => Some(HashSet::new()),
            };
            let Some(sent) = sent else { return };
            loop {
                let one = tokio::select! {
                    // A client that is too slow is dropped, and can connect again.
                    one = news.recv() => one.ok(),
                    () = sleep(HEARTBEAT) => if sink.beat().await { continue } else { None },
                };
                let is_sent = match one {
                    None => return,
                    Some(News::Event(event))
                        if event.id < from || sent.contains(&event.id) || is_hidden(&event) =>
                    {
                        true
                    }
                    Some(News::Event(event)) => {
                        sink.send("event", &event.id.to_string(), &*event).await
                    }
                    // The page itself shows the launches that failed before its stream was opened.
                    Some(News::Failure(failure))
                        if !has_failures || failure.ended < Some(opened) =>
                    {
                        true
                    }
                    Some(News::Failure(failure)) => sink.send_as("failure", &*failure).await,
                };
                if !is_sent {
                    return;
                }
            }
        };
        tokio::select! {
            () = sending => {}
            () = sink.sender.closed() => {}
            () = stop(&mut stopping) => {}
            () = auth::ended(&state, principal.as_ref()) => {}
        }
    });
    Ok(Reply::events(body))
}

/// Whether an event is about another namespace than the one to which a client is limited.
fn is_other(namespace: Option<&Namespace>, event: &Event) -> bool {
    namespace.is_some_and(|namespace| !namespace.contains(&event.subject))
}

/// Send the events since `last` and of the ten seconds before, a page at a time. Return which of them may come again as
/// news; none when the client is gone or the database is away.
async fn send_missed(
    state: &State,
    last: EventId,
    namespace: Option<&Namespace>,
    sink: &Sink,
) -> Option<HashSet<EventId>> {
    let now = state.app.engine.clock().now();
    let may_come_again = EventId::first_at(now.minus(EVENTS_OVERLAP));
    let mut after = EventId::first_at(last.time().minus(EVENTS_OVERLAP));
    let mut sent = HashSet::new();
    loop {
        let page = {
            let _turn = state.turn_of(FEED, false).await.ok()?;
            let mut tx = state.app.engine.db().read().await.ok()?;
            events::list_after(&mut tx, after, MISSED_PAGE).await.ok()?
        };
        for event in &page {
            if is_other(namespace, event) {
                continue;
            }
            if !sink.send("event", &event.id.to_string(), event).await {
                return None;
            }
            if event.id >= may_come_again {
                sent.insert(event.id);
            }
        }
        match page.last() {
            Some(last) if page.len() as i64 >= MISSED_PAGE => after = last.id,
            _ => return Some(sent),
        }
    }
}

/// Read new events and new failures for all listeners, while there are any.
pub(crate) async fn feed(state: Arc<State>) {
    let (mut events, mut failures) = (EventFeed::default(), FailureFeed::default());
    loop {
        sleep(READ_INTERVAL).await;
        if state.news.receiver_count() == 0 {
            failures.reset();
            continue;
        }
        // An outage ends, and then the rest is read.
        let Ok(read) = read_news(&state, &mut events, &mut failures).await else {
            continue;
        };
        for one in read {
            // Without listeners there is nothing to do.
            let _ = state.news.send(one);
        }
    }
}

async fn read_news(
    state: &State,
    events: &mut EventFeed,
    failures: &mut FailureFeed,
) -> Result<Vec<News>> {
    let _turn = state.turn_of(FEED, false).await?;
    let engine = &state.app.engine;
    let mut tx = engine.db().read().await?;
    let events = events.read(&mut tx, engine.clock().now()).await?;
    let failed = failures.read(&mut tx).await?;
    let ids = Vec::from_iter(failed.iter().map(|row| row.id));
    let streaks = troubles::streaks_of_launches(&mut tx, &ids).await?;
    let streaks: HashMap<LaunchId, i64> = streaks.into_iter().collect();
    let events = events.into_iter().map(|event| News::Event(Arc::new(event)));
    let failed = failed.iter();
    let failed = failed.map(|row| {
        let streak = streaks.get(&row.id).copied().unwrap_or_default();
        News::Failure(Arc::new(FailureNews::new(row, streak)))
    });
    Ok(events.chain(failed).collect())
}

/// Returns the logs of a run, or stream each call when it ends, until the run ends.
pub(crate) async fn logs(call: Call) -> Result {
    if !call.query.question::<GetLogs>()?.follow {
        return read::question::<GetLogs>(call).await;
    }
    let id = call.id::<ShortId>("id")?;
    let run = ids::run(&mut call.read().await?, &id, call.namespace())
        .await?
        .id;
    let since = last_event_id(&call).map(str::parse::<i64>).transpose();
    let since = since.map_err(|error| ApiProblem::invalid(format!("`Last-Event-ID`: {error}")))?;
    let since = Timestamp::from_micros(since.unwrap_or(i64::MIN));
    let (sink, body) = Sink::open(&call)?;
    let (state, principal) = (Arc::clone(&call.state), call.principal);
    tokio::spawn(async move {
        let mut stopping = state.app.stopping.clone();
        tokio::select! {
            () = follow(&state, run, since, &sink) => {}
            () = sink.sender.closed() => {}
            () = stop(&mut stopping) => {}
            () = auth::ended(&state, principal.as_ref()) => {}
        }
    });
    Ok(Reply::events(body))
}

/// Send each call of a run that ended at `since` or later when it ends, and then the run. The id of a call is its end.
async fn follow(state: &State, run: RunId, since: Timestamp, sink: &Sink) {
    let mut sent = HashSet::new();
    let mut beaten: Option<Instant> = None;
    'reading: loop {
        if beaten.is_none_or(|at| at.elapsed() >= HEARTBEAT) {
            beaten = Some(Instant::now());
            if !sink.beat().await {
                return;
            }
        }
        let read = async {
            let _turn = state.turn_of(FEED, false).await?;
            let mut tx = state.app.engine.db().read().await?;
            let row = runs::find(&mut tx, run).await?;
            let count = task_runs::count_of_run(&mut tx, run).await?;
            let places = if count > sent.len() as i64 {
                task_runs::sizes_of_run(&mut tx, run, &CallPlace::first(), count).await?
            } else {
                Vec::new()
            };
            Ok::<_, ApiProblem>((row, places))
        };
        // An outage of the database ends.
        if let Ok((row, mut places)) = read.await {
            places.sort_by_key(|call| call.finished_at);
            for call in places {
                let ended = call.finished_at;
                let is_known = sent.contains(&(call.task.clone(), call.attempt));
                if is_known || ended < since {
                    sent.insert((call.task, call.attempt));
                    continue;
                }
                // Reading them one by one keeps just one call in memory.
                let Ok(whole) = find_call(state, run, &call).await else {
                    sleep(READ_INTERVAL).await;
                    continue 'reading;
                };
                let id = ended.micros().to_string();
                let logs = whole.map(TaskLogs::from);
                if let Some(logs) = logs
                    && !sink.send("call", &id, &logs).await
                {
                    return;
                }
                sent.insert((call.task, call.attempt));
            }
            // A run that retention has removed is over too.
            let Some(row) = row else { return };
            if let Some(ended) = row.finished_at {
                sink.send("end", &ended.micros().to_string(), &row).await;
                return;
            }
        }
        sleep(READ_INTERVAL).await;
    }
}

/// Reads one call of a run, or returns none if it has been removed meanwhile.
async fn find_call(state: &State, run: RunId, call: &CallSize) -> Result<Option<TaskRun>> {
    let _turn = state.turn_of(FEED, false).await?;
    let mut tx = state.app.engine.db().read().await?;
    Ok(task_runs::find(&mut tx, run, &call.task, call.attempt).await?)
}
