//! A host as process 1 of a container.

use std::fs;
use std::process::Command;

use campanile_tests::{HostProcess, Place, campanile_binary, on_both_empty};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::site::{Site, eventually};

on_both_empty!(what_a_secrets_command_leaves_is_waited_for,);

/// Returns the ids and states of the children of `parent`.
fn children(parent: u32) -> Vec<(u32, char)> {
    let processes = fs::read_dir("/proc").expect("processes");
    let processes = processes.filter_map(|entry| {
        let id: u32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
        let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
        let (_, rest) = stat.rsplit_once(')')?;
        let mut words = rest.split_whitespace();
        let state = words.next()?.chars().next()?;
        (words.next()?.parse() == Ok(parent)).then_some((id, state))
    });
    processes.collect()
}

async fn what_a_secrets_command_leaves_is_waited_for(place: Place) {
    let site = Site::new(place);
    site.copy_package("guests");
    let left = site.folder().join("left");
    site.configure(&format!(
        "[secrets.token]\ncommand = ['sh', '-c', '(sh -c \"sleep 0.2; touch {}\" > /dev/null 2>&1 &); echo hunter2-and-more']\n",
        left.display()
    ));
    site.sidecar("guests", "[grants]\nsecrets = ['token']\n");
    let serve = site.command(["serve"]);
    let mut command = Command::new("unshare");
    command
        .args([
            "--user",
            "--map-root-user",
            "--pid",
            "--fork",
            "--kill-child",
        ])
        .arg(campanile_binary())
        .args(serve.get_args())
        .current_dir(site.folder());
    for (name, value) in serve.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let mut host = HostProcess::spawn(&mut command);
    host.wait_for_line("serving");
    host.wait_for_late_loads();
    let first = match children(host.id())[..] {
        [(first, _)] => first,
        ref others => panic!("not one process below unshare: {others:?}"),
    };
    site.ok([
        "schedule",
        "add",
        "s",
        "--package",
        "guests",
        "--task",
        "sleep",
        "--at",
        "2099-01-01T00:00:00Z",
    ]);
    let launch = site.trigger("s", &json!({"ms": 1}));
    assert_eq!(site.wait_until_ended("s", &launch)["status"], "succeeded");
    eventually(|| match left.exists() {
        true => Ok(()),
        false => Err("the command has not run".to_owned()),
    });
    eventually(|| {
        let waiting = children(first);
        match waiting.iter().any(|(_, state)| *state == 'Z') {
            true => Err(format!(
                "a process that ended is not waited for: {waiting:?}"
            )),
            false => Ok(()),
        }
    });
    let first = i32::try_from(first).ok().and_then(Pid::from_raw);
    kill_process(first.expect("an id"), Signal::TERM).expect("a signal");
    host.wait_for_line("stopping");
    assert_eq!(
        host.wait_exit().code(),
        Some(0),
        "{:#?}",
        host.stderr_lines()
    );
}
