//! The tools of the tests themselves.

use std::process::Command;
use std::time::Duration;

use campanile_store::Db;
use campanile_tests::{Cluster, HostProcess};

fn shell(script: &str) -> HostProcess {
    HostProcess::spawn(Command::new("sh").args(["-c", script]))
}

#[test]
fn a_process_is_heard_and_its_end_is_seen() {
    let mut process = shell("echo data; echo one >&2; echo two >&2; exit 3");
    assert_eq!(process.wait_for_line("tw"), "two");
    assert_eq!(process.wait_exit().code(), Some(3));
    assert_eq!(process.stderr_lines(), ["one", "two"]);
    assert_eq!(process.stdout_lines(), ["data"]);
}

#[test]
fn a_process_can_be_asked_to_stop_and_be_killed() {
    let mut asked = shell("trap 'exit 7' TERM; echo up >&2; while :; do sleep 0.01; done");
    asked.wait_for_line("up");
    asked.terminate();
    assert_eq!(asked.wait_exit().code(), Some(7));

    let mut killed = shell("echo up >&2; exec sleep 100");
    killed.wait_for_line("up");
    assert_eq!(killed.kill().code(), None);
}

#[test]
#[should_panic(expected = "never said `three` and ended; it said:\none\ntwo")]
fn a_line_that_does_not_come_fails_with_those_that_came() {
    shell("echo one >&2; echo two >&2").wait_for_line_within("three", Duration::from_secs(20));
}

#[tokio::test]
async fn a_cluster_stops_crashes_and_comes_back_with_its_data() {
    let mut cluster = Cluster::start().unwrap_or_else(|line| panic!("{line}"));
    let url = cluster.url().clone();
    Db::open_and_migrate(&url).await.unwrap().close().await;
    cluster.stop().unwrap();
    assert!(Db::open(&url).await.is_err(), "stopped");
    cluster.start_again().unwrap();
    cluster.crash().unwrap();
    cluster.start_again().unwrap();
    cluster.restart().unwrap();
    let db = Db::open_current(&url).await.unwrap();
    assert!(db.server_time().await.unwrap().is_some());
}
