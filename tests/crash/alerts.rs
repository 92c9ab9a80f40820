//! Tests of hosts that watch the same rule while one dies at each named point of an alert: two on Postgres, one after the other
//! on SQLite.
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

use std::path::PathBuf;
use std::time::{Duration, Instant};

use campanile_engine::crash::{ALERT_MESSAGE_POINTS, ALERT_POINTS};
use campanile_tests::{Backend, HostProcess, PATIENCE, is_signed};

use crate::point_table::PointTable;
use crate::receiver::{Received, Receiver};
use crate::site::Site;

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

const TABLE: PointTable<3> = PointTable {
    columns: ["firing", "resolved", "deliveries"],
    crash_at,
    expected: |point| match point {
        "after_alert_delivery" | "before_alert_end_commit" => [1, 1, 3],
        _ => [1, 1, 2],
    },
};

#[test]
fn an_alert_is_sent_once_after_a_crash_at_every_point_on_sqlite() {
    crash_at_every_point(Backend::Sqlite);
}

#[test]
fn an_alert_is_sent_once_after_a_crash_at_every_point_on_postgres() {
    crash_at_every_point(Backend::Postgres);
}

fn crash_at_every_point(backend: Backend) {
    let points = [&ALERT_POINTS[..], &ALERT_MESSAGE_POINTS].concat();
    TABLE.check(&points, backend);
}

/// Return the requests in their order: the id and the type of each message.
fn sent(receiver: &Receiver) -> Vec<(String, String)> {
    let kind = |Received { headers, body }: &Received| {
        let id = &headers["webhook-id"];
        let signed = format!("{id}.{}.{body}", headers["webhook-timestamp"]);
        assert!(
            is_signed(SECRET, &signed, &headers["webhook-signature"]),
            "{headers:?}"
        );
        let body: serde_json::Value = serde_json::from_str(body).expect("JSON");
        (id.clone(), body["type"].to_string())
    };
    receiver.received().iter().map(kind).collect()
}

fn crash_at(point: &str, backend: Backend) -> [usize; 3] {
    let site = Site::new(backend);
    // Messages are delivered while alerts are recorded. Until the host has died there, it can deliver none by chance.
    let is_up = !ALERT_POINTS.contains(&point);
    let receiver = Receiver::start(is_up);
    let port = receiver.port;
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
    receiver.bring_up();
    // One host serves a SQLite file.
    let names = match backend {
        Backend::Sqlite => &["host-1"][..],
        Backend::Postgres => &["host-1", "host-2"],
    };
    let mut hosts = Vec::from_iter(names.iter().map(|name| site.start(name)));
    wait_for(&receiver, "\"alert.firing\"", &hosts);
    std::fs::remove_file(site.folder.join("plugins/broken.wasm")).expect("the file is removed");
    wait_for(&receiver, "\"alert.resolved\"", &hosts);
    // Each host evaluates the rules once more, and tells nothing.
    std::thread::sleep(Duration::from_secs(6));
    for host in &mut hosts {
        host.terminate();
        assert!(host.wait_exit().success());
    }
    let received = sent(&receiver);
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
    [
        ids("\"alert.firing\""),
        ids("\"alert.resolved\""),
        received.len(),
    ]
}

/// Let no other user read a file.
fn private(path: &PathBuf) {
    use std::os::unix::fs::PermissionsExt as _;

    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).expect("permissions");
}

fn wait_for(receiver: &Receiver, wanted: &str, hosts: &[HostProcess]) {
    let until = Instant::now() + PATIENCE;
    loop {
        let seen = sent(receiver);
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
