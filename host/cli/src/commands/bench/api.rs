//! `campanile bench api`: how much requests and listeners of the API delay launches, and how fast they are answered.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Bytes;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{AUTHORIZATION, HOST};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::{
    BenchHost, add_schedules, add_schedules_with, every, has_succeeded, lag, scratch_db, serve,
};
use crate::config::Config;
use crate::output::{Failure, Record, Result, failed};
use crate::progress::Line;
use campanile_control::admin::schedule_admin;
use campanile_control::rules::lateness::Lag;
use campanile_engine::packages::watch::Mode;
use campanile_model::clock::Timestamp;
use campanile_schedule::policy::Policies;
use campanile_schedule::rule::{RuleKind, RuleText};
use campanile_server::{App, Server, TlsFiles};
use campanile_store::schedules::Pause;

/// The connections over which the requests are sent.
const CONNECTIONS: u32 = 8;
/// The time before and after each half.
const MARGIN: Duration = Duration::from_secs(2);
/// The pause between two changes, each of which every listener gets as an event.
const EVENT_INTERVAL: Duration = Duration::from_millis(200);
/// How often the memory is read.
const MEMORY_INTERVAL: Duration = Duration::from_millis(250);
/// The schedule that is paused and resumed.
const CHANGED: &str = "changed-0";
/// What the clients ask for, in turns.
const PATHS: [&str; 10] = [
    "/api/v1/schedules?limit=50",
    "/api/v1/schedules/bench-0",
    "/api/v1/schedules/bench-1/why",
    "/api/v1/schedules/bench-2/next?n=20",
    "/api/v1/launches?limit=50",
    "/api/v1/launches?schedule=bench-3&limit=50",
    "/api/v1/runs?limit=50",
    "/api/v1/hosts",
    "/api/v1/events?limit=50",
    "/api/v1/stats?since=1m",
];

#[derive(Args)]
pub(crate) struct Api {
    /// The number of schedules, each due once a second
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(4..=10_000))]
    schedules: u32,
    /// The requests of a second
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    requests: u32,
    /// The listeners to events that read
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(0..=900))]
    listeners: u32,
    /// The listeners to events that never read
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(0..=100))]
    slow_listeners: u32,
    /// The duration in seconds, without clients and then with them
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
}

/// The result of `bench api`.
#[derive(Serialize, schemars::JsonSchema)]
pub(crate) struct ApiReport {
    backend: &'static str,
    schedules: u32,
    seconds: u64,
    /// Slots without a launch that succeeded, in both halves.
    missed: usize,
    /// How late launches started without clients.
    alone_lag_ms: Lag,
    /// How late they started with clients.
    lag_ms: Lag,
    /// The 99th percentile of the lag with clients, divided by that without.
    lag_p99_ratio: f64,
    requests: usize,
    /// Requests whose answer was not 200.
    failed_requests: usize,
    /// From when a request was due to the last byte of its answer.
    request_ms: Lag,
    listeners: u32,
    slow_listeners: u32,
    /// The changes, each of which is one event.
    events: usize,
    /// The fewest events that a listener that reads has got.
    events_received_min: usize,
    /// The memory of this process before the clients came, and the most while they were there. Null where it is not known.
    alone_memory_bytes: Option<u64>,
    memory_bytes_max: Option<u64>,
}

impl Record for ApiReport {}

/// What the clients have seen.
struct Seen {
    /// When they began to send requests.
    from: Timestamp,
    answered: Vec<Duration>,
    failed: usize,
    events: usize,
    events_received_min: usize,
    memory_bytes_max: Option<u64>,
}

/// Where the API answers, and to whom.
#[derive(Clone)]
struct Access {
    address: SocketAddr,
    token: String,
}

impl Api {
    pub(super) async fn measure(&self, config: &Config) -> Result<ApiReport> {
        let step = Line::step(format_args!(
            "measuring {} launches a second without clients",
            self.schedules
        ));
        let host = BenchHost::start(config, scratch_db(config).await?, Mode::Off).await?;
        let clock = host.engine.clock().clone();
        let never = every("8760h", clock.now());
        let idle = (CHANGED.trim_end_matches('0'), 0..1);
        let db = host.engine.db();
        add_schedules_with(db, idle, &never, &Policies::default(), clock.now()).await?;
        let rule = RuleText::new(RuleKind::Every, "1s", "UTC");
        let alone_from = clock.now().plus(MARGIN);
        add_schedules(db, 0..self.schedules, &rule, alone_from).await?;
        let span = Duration::from_secs(self.seconds);
        let alone_until = alone_from.plus(span);
        clock.sleep_until(alone_until.plus(MARGIN)).await;

        step.say(format_args!(
            "measuring with {} requests a second and {} listeners",
            self.requests,
            self.listeners + self.slow_listeners
        ));
        let alone_memory_bytes = memory_bytes();
        let (stop, stopping) = watch::channel(false);
        let (access, server) = start_server(config, &host, stopping).await?;
        let seen = self.clients(&host, &access, span).await;
        stop.send_replace(true);
        server.await.map_err(Failure::failed)?;
        let seen = seen?;

        let alone = host.launches(alone_from, alone_until).await?;
        let until = seen.from.plus(span);
        let with_clients = host.launches(seen.from, until).await?;
        host.stop().await?;
        let slots = |rows: &[_]| rows.iter().filter(has_succeeded).count();
        // Each half has a slot in each second.
        let wanted = 2 * self.seconds as usize * self.schedules as usize;
        let (alone_lag_ms, lag_ms) = (lag(&alone), lag(&with_clients));
        Ok(ApiReport {
            backend: config.files.database.backend(),
            schedules: self.schedules,
            seconds: self.seconds,
            missed: wanted.saturating_sub(slots(&alone) + slots(&with_clients)),
            lag_p99_ratio: lag_ms.p99 / alone_lag_ms.p99,
            alone_lag_ms,
            lag_ms,
            requests: seen.answered.len() + seen.failed,
            failed_requests: seen.failed,
            request_ms: Lag::of_times(seen.answered),
            listeners: self.listeners,
            slow_listeners: self.slow_listeners,
            events: seen.events,
            events_received_min: seen.events_received_min,
            alone_memory_bytes,
            memory_bytes_max: seen.memory_bytes_max,
        })
    }

    /// Run all clients for the time `span`.
    async fn clients(&self, host: &BenchHost, access: &Access, span: Duration) -> Result<Seen> {
        let (stop, stopping) = watch::channel(false);
        let mut listening = JoinSet::new();
        for _ in 0..self.listeners {
            listening.spawn(listen(access.clone(), stopping.clone()));
        }
        let mut slow = Vec::new();
        for _ in 0..self.slow_listeners {
            slow.push(subscribe(access).await?);
        }
        // All listen before the first event.
        tokio::time::sleep(MARGIN).await;
        let mut asking = JoinSet::new();
        let interval = Duration::from_secs(1) * CONNECTIONS / self.requests;
        let from = host.engine.clock().now();
        for number in 0..CONNECTIONS {
            asking.spawn(ask(access.clone(), (number as usize, interval), span));
        }
        let mut seen = Seen {
            from,
            answered: Vec::new(),
            failed: 0,
            events: 0,
            events_received_min: if self.listeners == 0 { 0 } else { usize::MAX },
            memory_bytes_max: None,
        };
        let begun = Instant::now();
        let mut next_event = Duration::ZERO;
        while begun.elapsed() < span {
            if begun.elapsed() >= next_event {
                next_event += EVENT_INTERVAL;
                change(host, seen.events).await?;
                seen.events += 1;
            }
            seen.memory_bytes_max = seen.memory_bytes_max.max(memory_bytes());
            tokio::time::sleep(MEMORY_INTERVAL.min(EVENT_INTERVAL)).await;
        }
        while let Some(asked) = asking.join_next().await {
            let (answered, failed) = asked.map_err(Failure::failed)??;
            seen.answered.extend(answered);
            seen.failed += failed;
        }
        // The last events need a moment.
        tokio::time::sleep(MARGIN).await;
        stop.send_replace(true);
        drop(slow);
        while let Some(listened) = listening.join_next().await {
            let received = listened.map_err(Failure::failed)??;
            seen.events_received_min = seen.events_received_min.min(received);
        }
        Ok(seen)
    }
}

/// Serve the API of `host` on a free port.
async fn start_server(
    config: &Config,
    host: &BenchHost,
    stopping: watch::Receiver<bool>,
) -> Result<(Access, tokio::task::JoinHandle<()>)> {
    let token_file = host.dir.path().join("token");
    let server = Server {
        listen: "127.0.0.1:0"
            .parse()
            .map_err(|why: String| Failure::failed(why))?,
        tls: TlsFiles::default(),
        token_file: token_file.clone(),
        // One client sends what many would.
        rate_limit: u32::MAX,
        ..Server::default()
    };
    let bound = campanile_server::bind(&server, None).await;
    let bound = bound.map_err(Failure::failed)?;
    let bound = bound.ok_or_else(|| failed!("the server is off"))?;
    let token = std::fs::read_to_string(&token_file).map_err(Failure::failed)?;
    let address = bound.url.trim_start_matches("http://");
    let address = address.trim_end_matches("/api/v1").parse();
    let access = Access {
        address: address.map_err(|_| failed!("{} is no address", bound.url))?,
        token: token.trim().to_owned(),
    };
    let app = App {
        engine: Arc::clone(&host.engine),
        configuration: Vec::new(),
        settings: serve::settings(config),
        stopping,
        uploads: None,
        machine_notes: Arc::new(Vec::new),
    };
    Ok((access, tokio::spawn(campanile_server::serve(bound, app))))
}

/// Change the record with one event.
async fn change(host: &BenchHost, number: usize) -> Result {
    let (db, now) = (host.engine.db(), host.engine.clock().now());
    let mut tx = db.write().await?;
    match number % 2 {
        0 => {
            let pause = Pause {
                by: "bench",
                note: None,
                until: None,
            };
            schedule_admin::pause(&mut tx, CHANGED, pause, now).await?;
        }
        _ => schedule_admin::resume(&mut tx, CHANGED, "bench", false, now).await?,
    }
    tx.commit().await?;
    Ok(())
}

/// Send a request every `interval`, for the time `span`. Return how long each took, and how many were not done.
///
/// Each time begins when the request is due, so a slow answer also lengthens the times of the requests after it.
async fn ask(
    access: Access,
    (number, interval): (usize, Duration),
    span: Duration,
) -> Result<(Vec<Duration>, usize)> {
    let mut sender = connect(&access).await?;
    let (mut answered, mut failed) = (Vec::new(), 0);
    let begun = Instant::now();
    let offset = interval.mul_f64(number as f64 / f64::from(CONNECTIONS));
    for turn in 0.. {
        let due = offset + interval * turn;
        if due >= span {
            break;
        }
        tokio::time::sleep(due.saturating_sub(begun.elapsed())).await;
        let path = PATHS[(number + turn as usize) % PATHS.len()];
        match get(&mut sender, &access, path).await {
            Ok(StatusCode::OK) => answered.push(begun.elapsed().saturating_sub(due)),
            Ok(_) => failed += 1,
            Err(_) => {
                failed += 1;
                sender = connect(&access).await?;
            }
        }
    }
    Ok((answered, failed))
}

async fn connect(access: &Access) -> Result<SendRequest<Empty<Bytes>>> {
    let stream = TcpStream::connect(access.address).await;
    let stream = TokioIo::new(stream.map_err(Failure::failed)?);
    let (sender, connection) = http1::handshake(stream).await.map_err(Failure::failed)?;
    tokio::spawn(connection);
    Ok(sender)
}

/// Send one request, and read its whole answer.
async fn get(
    sender: &mut SendRequest<Empty<Bytes>>,
    access: &Access,
    path: &str,
) -> Result<StatusCode> {
    let request = Request::get(path)
        .header(HOST, access.address.to_string())
        .header(AUTHORIZATION, format!("Bearer {}", access.token))
        .body(Empty::new())
        .map_err(Failure::failed)?;
    let answer = sender.send_request(request).await;
    let answer = answer.map_err(Failure::failed)?;
    let status = answer.status();
    answer
        .into_body()
        .collect()
        .await
        .map_err(Failure::failed)?;
    Ok(status)
}

/// Open a stream of events, and read nothing of it.
async fn subscribe(access: &Access) -> Result<TcpStream> {
    let mut stream = TcpStream::connect(access.address)
        .await
        .map_err(Failure::failed)?;
    let request = format!(
        "GET /api/v1/events/stream HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\n\r\n",
        access.address, access.token
    );
    let sent = stream.write_all(request.as_bytes()).await;
    sent.map_err(Failure::failed)?;
    Ok(stream)
}

/// Read the stream of events until the measurement ends. Return how many events came.
async fn listen(access: Access, mut stopping: watch::Receiver<bool>) -> Result<usize> {
    let mut stream = subscribe(&access).await?;
    let (mut events, mut buffer) = (0, vec![0; 16 << 10]);
    // A line can arrive in parts.
    let mut rest = Vec::new();
    loop {
        let read = tokio::select! {
            read = stream.read(&mut buffer) => read.map_err(Failure::failed)?,
            _ = stopping.wait_for(|stop| *stop) => return Ok(events),
        };
        if read == 0 {
            return Err(failed!("the stream of events ended early"));
        }
        rest.extend_from_slice(&buffer[..read]);
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = rest.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line);
            events += usize::from(line.starts_with("data: ") && line.contains(CHANGED));
        }
    }
}

/// Returns the memory of this process.
fn memory_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib << 10)
}
