//! A host that is suspended for longer than its lease: after others may have taken its runs over, these do nothing outside
//! any more.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use campanile_store::{RunStatus, probe};
use campanile_tests::{Backend, HostProcess, PATIENCE};
use rustix::process::Signal;

use crate::site::{Record, Site, guest};

/// A busy machine keeps a host from renewing its leases for seconds.
const RECOVERY: &str = "[recovery]\nlease = \"10s\"\nrenew = \"1s\"\ninterval = \"1s\"\n";
/// The kinds of effects. `udp` and `tcp` are sockets.
const KINDS: [&str; 5] = ["file", "request", "tcp", "udp", "bucket"];
/// The runs of each kind.
const RUNS: usize = 4;
const PAUSE_MS: u64 = 20;

/// The greatest number that each run has sent, by kind and run.
type Effects = BTreeMap<(&'static str, String), u32>;

/// A server that notes each line that runs send to it.
struct Server {
    tcp_port: u16,
    udp_port: u16,
    received: Arc<Mutex<Effects>>,
}

fn note(received: &Mutex<Effects>, kind: &'static str, line: &str) {
    let Some((run, number)) = line.trim().split_once([' ', '+']) else {
        return;
    };
    let Ok(number) = number.parse::<u32>() else {
        return;
    };
    let mut received = received.lock().expect("no reader panics");
    let last = received.entry((kind, run.to_owned())).or_default();
    *last = number.max(*last);
}

/// Note the lines of a connection, and answer requests.
fn serve(stream: TcpStream, received: &Mutex<Effects>) {
    let mut answer = stream.try_clone().expect("a second handle");
    for line in BufReader::new(stream).lines().map_while(Result::ok) {
        match line.strip_prefix("GET /?") {
            None => note(received, "tcp", &line),
            Some(query) => {
                note(
                    received,
                    "request",
                    query.split(' ').next().unwrap_or_default(),
                );
                let _ = answer.write_all(
                    b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
                );
            }
        }
    }
}

impl Server {
    fn start() -> Server {
        let tcp = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let udp = UdpSocket::bind(("127.0.0.1", 0)).expect("a port");
        let server = Server {
            tcp_port: tcp.local_addr().expect("an address").port(),
            udp_port: udp.local_addr().expect("an address").port(),
            received: Arc::default(),
        };
        let received = Arc::clone(&server.received);
        std::thread::spawn(move || {
            for stream in tcp.incoming().map_while(Result::ok) {
                let received = Arc::clone(&received);
                std::thread::spawn(move || serve(stream, &received));
            }
        });
        let received = Arc::clone(&server.received);
        std::thread::spawn(move || {
            let mut bytes = [0; 1000];
            while let Ok((count, _)) = udp.recv_from(&mut bytes) {
                note(&received, "udp", &String::from_utf8_lossy(&bytes[..count]));
            }
        });
        server
    }

    fn target(&self, kind: &str) -> String {
        match kind {
            "file" => "/out/lines.log".to_owned(),
            "request" => format!("http://127.0.0.1:{}/?", self.tcp_port),
            "tcp" => format!("127.0.0.1:{}", self.tcp_port),
            "udp" => format!("127.0.0.1:{}", self.udp_port),
            _ => "default".to_owned(),
        }
    }

    fn sidecar(&self) -> String {
        let (tcp, udp) = (self.tcp_port, self.udp_port);
        let mut text = format!(
            "[limits]\nhttp_requests = 100000\n\
             [[grants.directories]]\nhost = \"../out\"\nguest = \"/out\"\naccess = \"write\"\n\
             [[grants.http]]\nscheme = \"http\"\nhost = \"127.0.0.1\"\nport = {tcp}\n\
             [[grants.sockets]]\nhost = \"127.0.0.1\"\nport = {tcp}\n\
             [[grants.sockets]]\nhost = \"127.0.0.1\"\nport = {udp}\nprotocol = \"udp\"\n\
             [[grants.keyvalue]]\nbucket = \"default\"\naccess = \"write\"\n"
        );
        for kind in KINDS {
            for number in 0..RUNS {
                let target = self.target(kind);
                text += &format!(
                    "[[schedules]]\nname = \"{kind}-{number}\"\nat = \"2099-01-01T00:00:00Z\"\n\
                     context = {{ kind = \"{kind}\", target = \"{target}\", times = 100000, pause_ms = {PAUSE_MS} }}\n"
                );
            }
        }
        text
    }
}

/// Return all effects until now.
fn effects(site: &Site, server: &Server) -> Effects {
    let effects = Mutex::new(server.received.lock().expect("no reader panics").clone());
    let lines = std::fs::read_to_string(site.folder.join("out/lines.log")).unwrap_or_default();
    for line in lines.lines() {
        note(&effects, "file", line);
    }
    let values = site.with_db(async |db| {
        let mut tx = db.read().await.expect("a transaction");
        let values = "SELECT convert_from(value, 'UTF8') FROM bucket_entry";
        probe::rows(&mut tx, values).await.expect("values")
    });
    for value in values {
        note(&effects, "bucket", &value[0]);
    }
    effects.into_inner().expect("no reader panics")
}

/// Return the running runs of a host.
fn running(record: &Record, host: &str) -> Vec<String> {
    let runs = record.runs.iter();
    let runs =
        runs.filter(|run| run.status == RunStatus::Running && run.host.as_deref() == Some(host));
    runs.map(|run| run.id.to_string()).collect()
}

fn wait_until_all_run(site: &Site, host: &HostProcess, name: &str) -> Vec<String> {
    let record = site.record_when("every run", &[host], |record| {
        running(record, name).len() == KINDS.len() * RUNS
    });
    running(&record, name)
}

/// Wait until each of `runs` has had an effect.
fn wait_for_effects(site: &Site, server: &Server, runs: &[String]) {
    let until = std::time::Instant::now() + PATIENCE;
    loop {
        let effects = effects(site, server);
        let has_effect = |run: &String| effects.keys().any(|(_, of)| of == run);
        if runs.iter().all(has_effect) {
            return;
        }
        assert!(
            std::time::Instant::now() < until,
            "runs without effects: {effects:?}"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_resumed_host_does_nothing_outside_with_the_runs_that_it_lost() {
    let rounds = if crate::long() { 10 } else { 1 };
    let mut late: BTreeMap<&str, u32> = KINDS.map(|kind| (kind, 0)).into();
    for _ in 0..rounds {
        suspend_and_resume(&mut late);
    }
    println!(
        "effects of lost runs after their hosts resumed, in {rounds} rounds of {RUNS} runs: {late:?}"
    );
    late.remove("file");
    assert!(late.values().all(|count| *count == 0), "{late:?}");
}

/// Suspend a host until another has taken its runs over, resume it, and count what the lost runs still do.
fn suspend_and_resume(late: &mut BTreeMap<&'static str, u32>) {
    let site = Site::new(Backend::Postgres);
    site.configure(RECOVERY);
    let server = Server::start();
    site.install(&guest("repeat"), &server.sidecar());
    let mut suspended = site.start("suspended");
    for kind in KINDS {
        for number in 0..RUNS {
            let name = format!("{kind}-{number}");
            let mut trigger = site.command(campanile_tests::campanile_binary());
            let triggered = trigger.args(["schedule", "trigger", &name]).output();
            assert!(triggered.expect("a command").status.success(), "{name}");
        }
    }
    let lost = wait_until_all_run(&site, &suspended, "suspended");
    wait_for_effects(&site, &server, &lost);
    suspended.signal(Signal::STOP);
    let mut takes_over = site.start("takes-over");
    let taken = wait_until_all_run(&site, &takes_over, "takes-over");
    wait_for_effects(&site, &server, &taken);
    // A host takes runs over when their leases end. It marks a host as dead when it has itself served for as long as a lease.
    takes_over.wait_for_line("a host died; its runs are recovered");
    let before = effects(&site, &server);
    // The greatest number that a run has sent.
    let of_run = |effects: &Effects, run: &String| {
        let mut of_all = effects.iter();
        of_all.find_map(|((_, of), number)| (of == run).then_some(*number))
    };
    suspended.signal(Signal::CONT);
    suspended.wait_for_line("another host marked this one as dead");
    suspended.wait_for_line("dropped runs whose lease could not be renewed in time");
    let dropped = effects(&site, &server);
    suspended.stays_up(Duration::from_secs(2));
    let after = effects(&site, &server);
    for ((kind, run), number) in &after {
        if lost.contains(run) {
            let of = |effects: &Effects| effects.get(&(*kind, run.clone())).copied();
            let more = number - of(&before).unwrap_or_default();
            // A write that was handed to the system before the process was suspended may end when it resumes: at most one
            // for each run, and none after the runs are dropped.
            assert!(*kind != "file" || more <= 1, "{run}: {more} lines");
            assert_eq!(of(&dropped), Some(*number), "{kind} {run}");
            *late.entry(*kind).or_default() += more;
        }
        assert!(lost.contains(run) || taken.contains(run), "{run}");
    }
    // The runs of the other host continue.
    let until = std::time::Instant::now() + PATIENCE;
    loop {
        let after = effects(&site, &server);
        let goes_on = |run: &String| of_run(&after, run) > of_run(&before, run);
        if taken.iter().all(goes_on) {
            break;
        }
        let is_in_time = std::time::Instant::now() < until;
        assert!(is_in_time, "runs do not go on: {before:?}\n{after:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
    for host in [&mut suspended, &mut takes_over] {
        host.kill();
    }
}
