//! What can be wrong with an installation. Health and alerts find symptoms; each becomes a sentence where it's shown or recorded.

use std::time::Duration;

use crate::rules::alert_rule::USUAL_TIMES;
use campanile_model::clock::Timestamp;
use campanile_model::labels::Labels;
use campanile_model::text::{counted, duration_text, printable_line, size_rounded, size_text};
use campanile_store::LaunchStatus;

/// Something an operator should know. Its text is one sentence.
// The derive gives the sentences; nothing returns a symptom as an error.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Symptom {
    #[error("the scheduler is stopped: no host serves {}; start `campanile serve`", counted(*.schedules, "enabled schedule"))]
    Stopped { schedules: i64 },

    #[error("{schedules} schedules have a slot that no host has decided for more than {} s", .span.as_secs())]
    ManyOverdue { schedules: i64, span: Duration },
    #[error("the schedule `{schedule}` has slots since {since} that no host has decided")]
    Overdue { schedule: String, since: Timestamp },
    #[error("{launches} launches or runs have stood still for more than {} s", .span.as_secs())]
    Stalled { launches: i64, span: Duration },

    #[error(
        "this machine's clock is {skew_s:.1} s off the database's; hosts use the database's, but let NTP set this one"
    )]
    ClockOff { skew_s: f64 },
    #[error("the clock of the host `{host}` stepped at {at}: {detail}")]
    ClockStepped {
        host: String,
        at: Timestamp,
        detail: String,
    },
    #[error("{schedules} schedules have decided slots ahead of the clock")]
    ManyCursorsAhead { schedules: i64 },
    #[error("the schedule `{schedule}` {}", silent_until(.schedule, *.cursor_at))]
    CursorAhead {
        schedule: String,
        cursor_at: Timestamp,
    },

    /// The database's disk has less than the reserve, or no space at all. In bytes.
    #[error("{}: hosts decide and claim nothing; free some space on it", no_space(*.free, *.reserve))]
    DiskFull { free: u64, reserve: u64 },
    #[error(
        "the log of the database, its file that ends in `-wal`, has grown to {}: a program reads the database in one long transaction, so that SQLite can't merge the log; end that program (`fuser -v` on the file lists those that have it open)",
        size_rounded(*.bytes)
    )]
    WalGrown { bytes: u64 },
    #[error(
        "the database's server accepts no writes, as a standby does: hosts launch nothing until one that accepts writes answers at their address"
    )]
    OnStandby,
    /// A host found the database damaged, and so did some others.
    #[error("the host `{host}`{}: {}", and_others(*.others), printable_line(.detail))]
    Damaged {
        host: String,
        others: usize,
        detail: String,
    },
    /// This process found it damaged.
    #[error(
        "the database is damaged ({why}): this host decides and claims nothing until it is started again; stop it, mend the database or restore a backup, and start it"
    )]
    DamageSeen { why: String },
    #[error("the host `{host}` has trouble with the database since {since}: {}", printable_line(.what))]
    DatabaseTrouble {
        host: String,
        since: Timestamp,
        what: String,
    },

    #[error(
        "the host `{host}` is silent since {since}: it died, or it lost its connection to the database"
    )]
    HostSilent { host: String, since: Timestamp },
    #[error("the host `{host}` is drained since {since} by {}: it claims nothing", printable_line(.by))]
    HostDrained {
        host: String,
        by: String,
        since: Timestamp,
    },
    #[error(
        "every live host is drained, so launches wait; `campanile host drain NAME --undo` lets one claim them"
    )]
    AllDrained,

    #[error(
        "the channel `{channel}` has not received an alert of {since}: {}; `campanile alert deliveries --channel {channel}` shows its messages",
        printable_line(.why)
    )]
    ChannelFailing {
        channel: String,
        since: Timestamp,
        why: String,
    },
    #[error(
        "{messages} messages of the outbox were given up; `campanile outbox list --status dead` shows them"
    )]
    MessagesDead { messages: i64 },
    #[error("{}; `campanile alert list` shows them", firing(*.alerts))]
    AlertsFiring { alerts: i64 },

    #[error("{}{}", last_failed(*.launches, .schedule), because(.why))]
    Failing {
        schedule: String,
        launches: u32,
        why: Option<String>,
    },
    #[error("{} of the schedule `{schedule}` failed within {}{}", counted(*.launches, "launch"), duration_text(*.span), because(.why))]
    FailedWithin {
        schedule: String,
        launches: usize,
        span: Duration,
        why: Option<String>,
    },
    #[error("the last launch of the schedule `{schedule}` is {status}{}", because(.why))]
    LastEnded {
        schedule: String,
        status: LaunchStatus,
        why: Option<String>,
    },
    #[error("no launch of the schedule `{schedule}` has succeeded for {}", duration_text(*.span))]
    NoSuccessFor { schedule: String, span: Duration },
    #[error("the slot {slot} of the schedule `{schedule}` has no launch {} later", duration_text(*.span))]
    NoLaunchWithin {
        schedule: String,
        slot: Timestamp,
        span: Duration,
    },
    #[error("no launch of the schedule `{schedule}` has succeeded within {} of the slot {slot}: its launch is {status}", duration_text(*.span))]
    NoSuccessWithin {
        schedule: String,
        slot: Timestamp,
        span: Duration,
        status: LaunchStatus,
    },
    #[error("{succeeded} of {ended} recovered launches have succeeded since {since}")]
    RecoveryRate {
        succeeded: i64,
        ended: i64,
        since: Timestamp,
    },

    #[error("no host has decided the slot {slot} of the schedule `{schedule}` within {}", duration_text(*.span))]
    Undecided {
        schedule: String,
        slot: Timestamp,
        span: Duration,
    },
    #[error("a launch of the schedule `{schedule}` that was due at {due} has not started within {}: it is {status}", duration_text(*.span))]
    NotStarted {
        schedule: String,
        due: Timestamp,
        span: Duration,
        status: LaunchStatus,
    },
    #[error("the last launch of the schedule `{schedule}` was due at {due} and started at {started_at}, more than {} later", duration_text(*.span))]
    StartedLate {
        schedule: String,
        due: Timestamp,
        started_at: Timestamp,
        span: Duration,
    },
    #[error("a launch of the schedule `{schedule}` runs since {since}, longer than {}", duration_text(*.limit))]
    RunsLong {
        schedule: String,
        since: Timestamp,
        limit: Duration,
    },
    #[error("a launch of the schedule `{schedule}` runs since {since}, longer than {USUAL_TIMES} times its usual {}", duration_text(*.usual))]
    RunsUnusuallyLong {
        schedule: String,
        since: Timestamp,
        usual: Duration,
    },
    #[error("the last launch of the schedule `{schedule}` succeeded after {}, in less than {}", duration_text(*.took), duration_text(*.limit))]
    Short {
        schedule: String,
        took: Duration,
        limit: Duration,
    },

    #[error("{launches} launches wait since {since} for a host with {}, and no live host has them", .labels.named())]
    LabelsMissing {
        labels: Labels,
        launches: i64,
        since: Timestamp,
    },
    #[error("a launch of the schedule `{schedule}` is queued since {since}, longer than its `catchup_window` of {}: its launches take longer than its slots are apart", duration_text(*.window))]
    QueuedLong {
        schedule: String,
        since: Timestamp,
        window: Duration,
    },
    #[error("the group `{group}` is too small: {launches} of its launches wait, the oldest since {since}, longer than the `catchup_window` of {}; give it a larger `max`, or its schedules fewer slots", duration_text(*.window))]
    GroupTooSmall {
        group: String,
        launches: i64,
        since: Timestamp,
        window: Duration,
    },
    #[error(
        "{launches} launches of the package `{package}` wait for a host since {since}, while other packages run: it has as many runs as it may, or too few hosts have it"
    )]
    PackageStarved {
        package: String,
        launches: i64,
        since: Timestamp,
    },
    #[error(
        "the schedule `{schedule}` has skipped {skipped} of its last {slots} slots: its launches take longer than its slots are apart, or come too late; `campanile schedule why {schedule}` says why, and a longer interval or another `overlap` ends it"
    )]
    MostlySkipped {
        schedule: String,
        skipped: i64,
        slots: i64,
    },
    /// One in a hundred launches of the last minutes started that late.
    #[error(
        "launches start late: one in a hundred of the last {minutes} minutes started {late_s:.1} s after its time"
    )]
    StartsLate { minutes: u64, late_s: f64 },
    #[error(
        "launches of the package `{package}` start late, and those of most other packages don't: one in a hundred of the last {minutes} minutes started {late_s:.1} s after its time; perhaps it has more launches than it may run at once, or they were recovered from a host that ended"
    )]
    PackageStartsLate {
        package: String,
        minutes: u64,
        late_s: f64,
    },

    #[error("the record has {} of the {} of `retention.max_bytes`", size_text(*.used), size_text(*.max))]
    RecordFull { used: u64, max: u64 },
    /// `whose` is a package or a namespace.
    #[error(
        "{whose} has used up its record quota of today, so its launches fail until midnight UTC"
    )]
    QuotaUsed { whose: String },
    #[error(
        "runs of the schedule `{schedule}` use more {what}: {last} in the last 7 days, {before} in the 7 days before, each in the median; see whether its input has grown, or a new version came with `campanile package show {package}`"
    )]
    UseGrown {
        schedule: String,
        package: String,
        what: &'static str,
        last: String,
        before: String,
    },

    #[error("the package `{package}` is loading since {since}")]
    Loading { package: String, since: Timestamp },
    #[error("the package `{}` has a file that cannot be used: {}", printable_line(.package), printable_line(.why))]
    Rejected { package: String, why: String },
    #[error("more packages have a file that cannot be used; see `campanile package list`")]
    MoreRejected,

    /// What another part of the host has to say.
    #[error("{0}")]
    Other(String),
}

fn because(why: &Option<String>) -> String {
    why.as_ref()
        .map_or_else(String::new, |why| format!(": {}", printable_line(why)))
}

fn firing(alerts: i64) -> String {
    if alerts == 1 {
        "1 alert fires".to_owned()
    } else {
        format!("{alerts} alerts fire")
    }
}

fn last_failed(launches: u32, schedule: &str) -> String {
    if launches == 1 {
        format!("the last launch of the schedule `{schedule}` failed")
    } else {
        format!("the last {launches} launches of the schedule `{schedule}` all failed")
    }
}

fn and_others(hosts: usize) -> String {
    if hosts == 0 {
        return String::new();
    }
    format!(" and {}", counted(hosts as u64, "other host"))
}

fn no_space(free: u64, reserve: u64) -> String {
    if free < reserve {
        short_of(free, reserve)
    } else {
        let free = size_rounded(free);
        format!("the disk of the database is full, with {free} free")
    }
}

/// Says that free space is below the reserve.
pub fn short_of(free: u64, reserve: u64) -> String {
    format!(
        "the disk of the database has {} free, less than the `disk_reserve` of {}",
        size_rounded(free),
        size_rounded(reserve)
    )
}

/// Explains a cursor running ahead of the clock, and the remedy.
pub fn silent_until(schedule: &str, cursor_at: Timestamp) -> String {
    format!(
        "has decided its slots up to {cursor_at}, ahead of the clock, and decides none before: the clock was wrong before, or is now; when the clock is right, type `campanile schedule reset-cursor {schedule}`"
    )
}
