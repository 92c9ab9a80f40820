//! A host that is suspended between its claim of a message and the delivery: after another host may have delivered the
//! message, it sends nothing.

use std::time::Duration;

use campanile_tests::{Backend, HostProcess, PATIENCE, once_package};
use rustix::process::Signal;

use crate::receiver::Receiver;
use crate::site::Site;

const RECOVERY: &str = "[recovery]\nlease = \"5s\"\nrenew = \"1s\"\ninterval = \"1s\"\n";

#[test]
fn a_resumed_host_does_not_deliver_a_message_that_another_host_delivered() {
    let site = Site::new(Backend::Postgres);
    site.configure(RECOVERY);
    let receiver = Receiver::start(true);
    let port = receiver.port;
    site.install_bytes(
        "once",
        &once_package(),
        &format!(
            "[[grants.keyvalue]]\nbucket = \"state\"\naccess = \"write\"\n\
             [[grants.http]]\nscheme = \"http\"\nhost = \"127.0.0.1\"\nport = {port}\n\
             [grants.config]\nurl = \"http://127.0.0.1:{port}/hook\"\n\
             [[schedules]]\nname = \"once\"\nat = \"2099-01-01T00:00:00Z\"\n"
        ),
    );
    let mut suspended = HostProcess::spawn(
        site.serve("suspended")
            .env("CAMPANILE_STOP_AT", "after_message_claim_commit"),
    );
    suspended.wait_for_line("serving");
    let mut trigger = site.command(campanile_tests::campanile_binary());
    let triggered = trigger.args(["schedule", "trigger", "once"]).output();
    assert!(triggered.expect("a command").status.success());
    suspended.wait_stopped();
    assert!(receiver.received().is_empty(), "it was stopped too late");

    let mut takes_over = site.start("takes-over");
    let until = std::time::Instant::now() + PATIENCE;
    while receiver.received().is_empty() {
        assert!(
            std::time::Instant::now() < until,
            "the other host delivered nothing:\n{}",
            takes_over.stderr_lines().join("\n")
        );
        std::thread::sleep(Duration::from_millis(50));
    }
    suspended.signal(Signal::CONT);
    suspended.wait_for_line("dropped the delivery");
    suspended.stays_up(Duration::from_secs(2));
    let received = receiver.received();
    assert_eq!(received.len(), 1, "{received:?}");
    for host in [&mut suspended, &mut takes_over] {
        host.kill();
    }
}
