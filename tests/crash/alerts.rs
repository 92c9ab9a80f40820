//! Tests of two hosts that watch the same rule while one dies at each named point of an alert.
//!
//! The table is the documented guarantee. It is the same on both databases, and the test prints it.
//!
//! ```text
//! the host dies               firing  resolved  deliveries
//! before_alert_commit              1         1           2
//! after_alert_commit               1         1           2
//! before_alert_claim_commit        1         1           2
//! after_alert_claim_commit         1         1           2
//! after_alert_delivery             1         1           3
//! before_alert_end_commit          1         1           3
//! after_alert_end_commit           1         1           2
//! ```
//!
//! `firing` and `resolved` are the messages by their `webhook-id`, `deliveries` the requests that the receiver got. A message
//! arrives twice only if the host dies between the receiver's answer and its record. Both requests have one `webhook-id`.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use campanile_engine::crash::ALERT_POINTS;
use campanile_tests::{Backend, HostProcess, is_signed};

use crate::site::Site;

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
/// A claim of a message lasts 20 seconds.
const LIMIT: Duration = Duration::from_secs(60);

/// What the receiver got.
#[derive(Debug, PartialEq, Eq)]
struct Told {
    firing: usize,
    resolved: usize,
    deliveries: usize,
}

fn expected(point: &str) -> Told {
    let deliveries = match point {
        "after_alert_delivery" | "before_alert_end_commit" => 3,
        _ => 2,
    };
    Told {
        firing: 1,
        resolved: 1,
        deliveries,
    }
}

#[test]
fn an_alert_is_told_once_after_a_crash_at_every_point_on_sqlite() {
    crash_at_every_point(Backend::Sqlite);
}

#[test]
fn an_alert_is_told_once_after_a_crash_at_every_point_on_postgres() {
    crash_at_every_point(Backend::Postgres);
}

fn crash_at_every_point(backend: Backend) {
    let mut table = format!(
        "{:<26} {:>7} {:>9} {:>11} on {}\n",
        "the host dies",
        "firing",
        "resolved",
        "deliveries",
        backend.name()
    );
    // Several cases at a time, because each case mostly waits.
    for points in ALERT_POINTS.chunks(4) {
        std::thread::scope(|scope| {
            let cases: Vec<_> = points
                .iter()
                .map(|point| (point, scope.spawn(move || crash_at(point, backend))))
                .collect();
            for (point, case) in cases {
                let told = case
                    .join()
                    .unwrap_or_else(|_| panic!("{point} on {}", backend.name()));
                table.push_str(&format!(
                    "{point:<26} {:>7} {:>9} {:>11}\n",
                    told.firing, told.resolved, told.deliveries
                ));
                assert_eq!(told, expected(point), "{point} on {}", backend.name());
            }
        });
    }
    println!("{table}");
}

/// The requests: the id and the type of each message, in their order.
type Received = Arc<Mutex<Vec<(String, String)>>>;

/// Start a receiver that verifies signatures.
fn receiver() -> (u16, Received) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let received = Received::default();
    let of_thread = Arc::clone(&received);
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            // A host that dies leaves half a request.
            let _ = receive(stream, &of_thread);
        }
    });
    (port, received)
}

fn receive(mut stream: TcpStream, received: &Received) -> std::io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        match line.trim().split_once(": ") {
            Some((name, value)) => headers.insert(name.to_ascii_lowercase(), value.to_owned()),
            None if line.trim().is_empty() => break,
            None => None,
        };
    }
    let mut body = vec![0; headers["content-length"].parse().unwrap_or(0)];
    reader.read_exact(&mut body)?;
    let body = String::from_utf8_lossy(&body).into_owned();
    let id = &headers["webhook-id"];
    let signed = format!("{id}.{}.{body}", headers["webhook-timestamp"]);
    let kind = match is_signed(SECRET, &signed, &headers["webhook-signature"]) {
        true => serde_json::from_str::<serde_json::Value>(&body)?["type"].to_string(),
        false => "not signed".to_owned(),
    };
    received
        .lock()
        .expect("no reader panics")
        .push((id.clone(), kind));
    stream.write_all(b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n")
}

fn crash_at(point: &str, backend: Backend) -> Told {
    let site = Site::new(backend);
    let (port, received) = receiver();
    site.write("webhook", SECRET);
    let secret = site.folder.join("webhook");
    private(&secret);
    // A file that is no package is rejected until it is gone.
    site.configure(&format!(
        "[[alerts]]\nkind = \"package_rejected\"\nchannels = [\"ops\"]\nresolve_after = \"0s\"\n\
         [channels.ops]\nurl = \"http://127.0.0.1:{port}/hook\"\nprivate = true\nsecret = \"webhook\"\ngroup_wait = \"0s\"\n\
         [secrets.webhook]\nfile = \"{}\"\n",
        secret.display()
    ));
    site.write("plugins/broken.wasm", "this is no package");
    site.crash_at(point);
    let mut hosts = [site.start("host-1"), site.start("host-2")];
    wait_for(&received, "\"alert.firing\"", &hosts);
    std::fs::remove_file(site.folder.join("plugins/broken.wasm")).expect("the file is removed");
    wait_for(&received, "\"alert.resolved\"", &hosts);
    // Each host evaluates the rules once more, and tells nothing.
    std::thread::sleep(Duration::from_secs(6));
    for host in &mut hosts {
        host.terminate();
        assert!(host.wait_exit().success());
    }
    let received = received.lock().expect("no reader panics");
    let ids = |wanted: &str| {
        let mut ids: Vec<&str> = received
            .iter()
            .filter(|(_, kind)| kind == wanted)
            .map(|(id, _)| id.as_str())
            .collect();
        ids.sort_unstable();
        ids.dedup();
        ids.len()
    };
    assert_eq!(
        received.last().map(|(_, kind)| kind.as_str()),
        Some("\"alert.resolved\""),
        "{received:?}"
    );
    Told {
        firing: ids("\"alert.firing\""),
        resolved: ids("\"alert.resolved\""),
        deliveries: received.len(),
    }
}

/// Let no other user read a file.
fn private(path: &PathBuf) {
    use std::os::unix::fs::PermissionsExt as _;

    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).expect("permissions");
}

fn wait_for(received: &Received, wanted: &str, hosts: &[HostProcess]) {
    let until = Instant::now() + LIMIT;
    loop {
        let seen = received.lock().expect("no reader panics").clone();
        if seen.iter().any(|(_, kind)| kind == wanted) {
            return;
        }
        let logs = hosts.iter().flat_map(HostProcess::stderr_lines);
        assert!(
            Instant::now() < until,
            "no {wanted}: {seen:?}\n{}",
            logs.collect::<Vec<_>>().join("\n")
        );
        std::thread::sleep(Duration::from_millis(50));
    }
}
