//! Tests of the shared test support.

use std::process::Command;

use campanile_store::Db;
use campanile_tests::{Cluster, HostProcess};

fn shell(script: &str) -> HostProcess {
    HostProcess::spawn(Command::new("sh").args(["-c", script]))
}

#[test]
fn the_output_and_the_exit_code_of_a_process_are_read() {
    let mut process = shell("echo data; echo one >&2; echo two >&2; exit 3");
    assert_eq!(process.wait_for_line("tw"), "two");
    assert_eq!(process.wait_exit().code(), Some(3));
    assert_eq!(process.stderr_lines(), ["one", "two"]);
    assert_eq!(process.stdout_lines(), ["data"]);
}

#[test]
fn a_process_can_be_terminated_and_killed() {
    let mut terminated = shell("trap 'exit 7' TERM; echo up >&2; while :; do sleep 0.01; done");
    terminated.wait_for_line("up");
    terminated.terminate();
    assert_eq!(terminated.wait_exit().code(), Some(7));

    let mut killed = shell("echo up >&2; exec sleep 100");
    killed.wait_for_line("up");
    assert_eq!(killed.kill().code(), None);
}

#[test]
#[should_panic(expected = "did not print `three` and ended; it printed:\none\ntwo")]
fn waiting_for_a_line_that_is_not_printed_fails_with_the_printed_lines() {
    shell("echo one >&2; echo two >&2").wait_for_line("three");
}

#[tokio::test]
async fn a_cluster_keeps_its_data_over_a_stop_and_a_crash() {
    let mut cluster = Cluster::start().unwrap_or_else(|line| panic!("{line}"));
    let url = cluster.url().clone();
    Db::open_and_migrate(&url).await.unwrap().close().await;
    cluster.stop().unwrap();
    assert!(Db::open(&url).await.is_err(), "the server is stopped");
    cluster.start_again().unwrap();
    cluster.crash().unwrap();
    cluster.start_again().unwrap();
    cluster.restart().unwrap();
    let db = Db::open_current(&url).await.unwrap();
    assert!(db.server_time().await.unwrap().is_some());
}
