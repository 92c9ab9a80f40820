//! Named points at which a test lets the process die, as `kill -9` would: no destructor runs, nothing is flushed.
//!
//! A build with debug assertions aborts at the point that `CAMPANILE_CRASH_AT` names. In a release
//! build [`point`] is empty, so the product has no such switch. A cargo feature would say the same,
//! but as a second set of features for this crate it would have to be built a second time wherever the
//! tests run; the profile already distinguishes the two.
//!
//! At the point that `CAMPANILE_STOP_AT` names, the process stops instead, once, as a suspended machine does.

/// Whether this build has the points.
pub const IS_BUILT_IN: bool = cfg!(debug_assertions);

/// The points of the path of a launch and of recovery, in order. What [`point`] is called with.
pub const POINTS: [&str; 9] = [
    "before_decide_commit",
    "after_decide_commit",
    "after_claim_commit",
    "before_call",
    "after_call",
    "before_finish_commit",
    "after_finish_commit",
    "before_recover_commit",
    "after_recover_commit",
];

/// The points around the commit of a call that had writes in a bucket session, or messages for the outbox.
pub const CALL_POINTS: [&str; 2] = ["before_call_commit", "after_call_commit"];

/// The points of the delivery of a message: around its claim, after the receiver has answered, and around the record of that.
pub const MESSAGE_POINTS: [&str; 5] = [
    "before_message_claim_commit",
    "after_message_claim_commit",
    "after_message_delivery",
    "before_message_end_commit",
    "after_message_end_commit",
];

/// The points around the commit of a change of an alert with its messages.
pub const ALERT_POINTS: [&str; 2] = ["before_alert_commit", "after_alert_commit"];

/// The points of the delivery of a message about alerts, as those of another message.
pub const ALERT_MESSAGE_POINTS: [&str; 5] = [
    "before_alert_claim_commit",
    "after_alert_claim_commit",
    "after_alert_delivery",
    "before_alert_end_commit",
    "after_alert_end_commit",
];

/// The points of a backfill, beside that path.
pub const BACKFILL_POINTS: [&str; 2] = ["before_backfill_commit", "after_backfill_commit"];

/// The points around the commit that records a version of a package, active or pending.
pub const PACKAGE_POINTS: [&str; 2] = ["before_package_commit", "after_package_commit"];

/// The points around the commit that removes old launches.
pub const RETENTION_POINTS: [&str; 2] = ["before_retention_commit", "after_retention_commit"];

/// The points around the commit that seals launches and counts them in the rollup.
pub const SEAL_POINTS: [&str; 2] = ["before_seal_commit", "after_seal_commit"];

/// The points of a backup and of a restore.
pub const DATABASE_POINTS: [&str; 4] = [
    "after_backup_copy",
    "after_restore_copy",
    "before_restore_rename",
    "after_restore_rename",
];

/// The points just before the other commits at which a stopped host has locks.
pub const STOP_POINTS: [&str; 2] = ["before_claim_commit", "before_heartbeat_commit"];

/// Die or stop here, if this is the point that the environment names.
#[cfg(debug_assertions)]
pub fn point(name: &str) {
    use rustix::process::{Signal, getpid, kill_process};

    static CRASH_AT: std::sync::LazyLock<Option<String>> =
        std::sync::LazyLock::new(|| std::env::var("CAMPANILE_CRASH_AT").ok());
    static STOP_AT: std::sync::LazyLock<Option<String>> =
        std::sync::LazyLock::new(|| std::env::var("CAMPANILE_STOP_AT").ok());
    let all = [
        &POINTS[..],
        &CALL_POINTS,
        &MESSAGE_POINTS,
        &ALERT_POINTS,
        &ALERT_MESSAGE_POINTS,
        &BACKFILL_POINTS,
        &PACKAGE_POINTS,
        &RETENTION_POINTS,
        &SEAL_POINTS,
        &DATABASE_POINTS,
        &STOP_POINTS,
    ];
    debug_assert!(
        all.concat().contains(&name),
        "{name} is not among the crash points"
    );
    if CRASH_AT.as_deref() == Some(name) {
        std::process::abort();
    }
    if STOP_AT.as_deref() == Some(name) {
        static STOPPED: std::sync::Once = std::sync::Once::new();
        STOPPED.call_once(|| {
            let _ = kill_process(getpid(), Signal::STOP);
            // The signal may reach another thread first. This thread must not continue until all are stopped.
            std::thread::sleep(std::time::Duration::from_millis(200));
        });
    }
}

/// Nothing, in a release build.
#[cfg(not(debug_assertions))]
#[inline(always)]
pub fn point(_name: &str) {}
