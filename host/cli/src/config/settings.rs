//! The tables of the configuration: each key with its type, default, bounds and meaning in one place.
//!
//! Reading, printing, the default file and the reference are made from these tables.

use std::collections::BTreeMap;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::kinds::{
    Kind, age, age_text, boolean, database, duration, labels, number, optional, path, roles, size,
    text, texts, word,
};
use campanile_control::settings::{Placement, RetentionLimits};
use campanile_control::traces_endpoint::TracesEndpoint;
use campanile_engine::packages::watch::Mode;
use campanile_model::access::Role;
use campanile_model::ids::RunId;
use campanile_model::labels::Labels;
use campanile_model::text::{self, duration_text, size_text};
use campanile_package::quota::{COUNT_MOST, NamespaceQuota, RECORD_BYTES_LEAST, RECORD_BYTES_MOST};
use campanile_package::reference::KeyHelp;
use campanile_package::signature::PublicKey;
use campanile_package::toml_reader::{Error, Section};
use campanile_package::{Approval, ForeignWriters, Quota};
use campanile_sandbox::ComponentLimits;
use campanile_schedule::policy::{Catchup, Defaults, Delivery, Policies};
use campanile_server::{Listen, Network, RATE_LIMIT, check_header_name};
use campanile_store::DatabaseUrl;

const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(24 * 3600);
/// A month and a year as `humantime` has them, so that defaults are printed as one number.
const MONTH: Duration = Duration::from_secs(2_630_016);
const LEAP_YEAR: Duration = Duration::from_secs(31_557_600);
pub(super) const YEAR: Duration = Duration::from_secs(366 * 24 * 3600);
/// So many renewals fit into a lease at least.
const RENEWALS_MIN: u32 = 3;
/// The most recoveries of a launch.
const RECOVERIES_MAX: u32 = RunId::NUMBER_MAX as u32 - 1;
/// The least value of the durations in `[recovery]`.
const RECOVERY_LEAST: Duration = Duration::from_millis(100);

/// One key with its value.
pub(super) struct Entry {
    /// The meaning has one line for each line of the default file.
    pub(super) help: KeyHelp,
    /// As TOML writes it.
    pub(super) value: Option<String>,
    /// A value to show for a key without a fixed default.
    pub(super) example: Option<&'static str>,
}

/// A table of the configuration.
pub(super) trait Table: Sized {
    /// The name of the table within its outer table; empty for the top of the file.
    const NAME: &'static str;

    /// Read the keys that `section` sets. A relative path starts at `home`.
    fn read(section: &mut Section<'_>, home: &Path) -> Result<Self, Error>;

    /// List the keys with their values.
    fn entries(&self) -> Vec<Entry>;

    /// Read the table of `outer`, empty when it is absent, and refuse its unknown keys.
    fn of(outer: &mut Section<'_>, home: &Path) -> Result<Self, Error> {
        Self::whole(outer.table_or_empty(Self::NAME)?, home)
    }

    /// Read a table, and refuse its unknown keys.
    fn whole(mut section: Section<'_>, home: &Path) -> Result<Self, Error> {
        let table = Self::read(&mut section, home)?;
        section.finish()?;
        Ok(table)
    }
}

/// Declare a table: how it is read and listed, and a struct with its defaults unless there is such a struct already.
macro_rules! table {
    ($(#[doc = $doc:literal])+ $table:literal struct $name:ident {
        $($(#[doc = $meaning:literal])+ $field:ident $key:literal: $type:ty = $default:expr, $kind:expr $(, example $example:literal)?;)*
    } $(check $check:expr)?) => {
        $(#[doc = $doc])+
        #[derive(Clone, Debug, PartialEq)]
        pub struct $name {
            $($(#[doc = $meaning])+ pub $field: $type,)*
        }

        impl Default for $name {
            fn default() -> $name {
                $name { $($field: $default,)* }
            }
        }

        table! {
            $table $name {
                $($(#[doc = $meaning])+ $field $key: $type, $kind $(, example $example)?;)*
            } $(check $check)?
        }
    };
    ($table:literal $name:ident {
        $($(#[doc = $meaning:literal])+ $field:ident $key:literal: $type:ty, $kind:expr $(, example $example:literal)?;)*
    } $(check $check:expr)?) => {
        impl Table for $name {
            const NAME: &'static str = $table;

            fn read(section: &mut Section<'_>, home: &Path) -> Result<$name, Error> {
                let default = $name::default();
                let table = $name {
                    $($field: ($kind.read)(section, $key, home)?.unwrap_or(default.$field),)*
                };
                $($check(&table, section)?;)?
                Ok(table)
            }

            fn entries(&self) -> Vec<Entry> {
                vec![$({
                    let kind: Kind<$type> = $kind;
                    Entry {
                        help: KeyHelp {
                            key: $key.to_owned(),
                            kind: kind.name.to_owned(),
                            default: None,
                            bounds: kind.bounds,
                            meaning: [$($meaning.trim()),+].join("\n"),
                        },
                        value: (kind.toml)(&self.$field).map(|value| value.to_string()),
                        example: None $(.or(Some($example)))?,
                    }
                },)*]
            }
        }
    };
}

table! {
    /// The top of the file: where Campanile keeps its data and finds its files.
    "" struct Files {
        /// The database of schedules, launches and runs: "sqlite:PATH" or "postgres://user:password@host/name".
        /// The variable CAMPANILE_DATABASE_URL overrides it and keeps the password out of this file.
        database "database": DatabaseUrl = DatabaseUrl::Sqlite("campanile.db".into()), database();
        /// The plugins folder: each .wasm file in it is a package. The variable CAMPANILE_PLUGINS overrides it.
        plugins "plugins": PathBuf = "plugins".into(), path();
        /// The schedules file. The host applies each change of it by the schedules' names. The file may be absent.
        schedules "schedules": PathBuf = super::SCHEDULES_NAME.into(), path();
    }
}

table! {
    /// `[host]`: this process.
    "host" struct Host {
        /// The name that identifies this host after a restart. Without it, the machine's name.
        name "name": Option<String> = None, optional(text()), example "\"host-1\"";
        /// The most runs at once on this host.
        runs_max "runs_max": u32 = 512, number(1, 10_000);
        /// The private folder in which this host keeps which files were in its plugins folder, and the last good sidecars. Without
        /// it, the path of a SQLite database and ".state", or campanile.state in the working directory.
        state_dir "state_dir": Option<PathBuf> = None, optional(path()), example "\"/var/lib/campanile/state\"";
        /// The labels of this host. A schedule with `run_on` launches only on hosts that have its labels.
        labels "labels": Labels = Labels::default(), labels();
        /// Which of several hosts executes a launch: "spread" the one that uses the smallest part of its capacity, "pack" the
        /// one with the most runs that has room. Give every host of a database the same.
        placement "placement": Placement = Placement::default(),
            word("\"spread\" or \"pack\"", Placement::read);
        /// The threads that call tasks. Without it, one for each processor.
        guest_threads "guest_threads": u32 = processors(), number(1, 1024), example "4";
        /// How long to wait for the database at the start. "0s" tries once.
        wait "wait": Duration = 60 * SECOND, duration(Duration::ZERO, YEAR);
        /// The least free space on the disk of a SQLite database: with less, the host launches nothing until there is more.
        /// Runs continue, and use it for their ends. "0" is no bound.
        disk_reserve_bytes "disk_reserve": u64 = 256 << 20, size(0, 1 << 40);
        /// How long runs may continue after the host is told to stop.
        drain "drain": Duration = 30 * SECOND, duration(Duration::ZERO, YEAR);
    } check check_host
}

table! {
    /// `[server]`: the API over HTTP.
    "server" struct Server {
        /// Where the API listens: an address and a port, "unix:PATH" for a socket that the host's user opens without a token,
        /// or "off". Another machine reaches it only with a certificate. The variable CAMPANILE_LISTEN overrides it.
        listen "listen": Listen = Listen::default(), text();
        /// The file with the token of the API, which the host writes at its first start. Without it, the path of a SQLite
        /// database and ".token", or campanile.token in the working directory.
        token_file "token_file": Option<PathBuf> = None, optional(path()), example "\"/var/lib/campanile/token\"";
        /// What the requests of one token or user may cost in a second; four times as much at once. `x-cost` in
        /// docs/openapi.json is the cost of each.
        rate_limit "rate_limit": u32 = RATE_LIMIT, number(10, 1_000_000);
        /// The addresses of proxies that say who a user is, in `user_header`. From any other address that header is refused. A
        /// program on such a machine can be any user.
        trusted_proxies "trusted_proxies": Vec<Network> = Vec::new(), texts();
        /// The header with the user's name, which the proxy sets, and removes from what clients send.
        user_header "user_header": String = "X-Forwarded-User".to_owned(), text();
        /// The header with the user's role, in place of `proxy_roles`.
        role_header "role_header": Option<String> = None, optional(text()), example "\"X-Forwarded-Role\"";
        /// The role of each user of a proxy.
        proxy_roles "proxy_roles": BTreeMap<String, Role> = BTreeMap::new(), roles();
        /// Whether a person with the role approver may upload the files of packages, over the API or on a page. The host writes
        /// them to its plugins folder.
        upload "upload": bool = false, boolean();
    } check check_server
}

table! {
    /// `[server.tls]`: the certificate of the API.
    "tls" struct ServerTls {
        /// The certificate in PEM, followed by the certificates of its issuers.
        certificate "certificate": Option<PathBuf> = None, optional(path()), example "\"/etc/campanile/server.pem\"";
        /// The key of the certificate in PEM.
        key "key": Option<PathBuf> = None, optional(path()), example "\"/etc/campanile/server.key\"";
    }
}

table! {
    /// `[watch]`: how the host notices changes in the plugins folder.
    "watch" struct Watch {
        /// "auto" uses events of the operating system, "poll" looks every 2 s (for network file systems and shared
        /// folders of containers), "off" relies on the rescan.
        mode "mode": Mode = Mode::Auto, word("\"auto\", \"poll\" or \"off\"", Mode::read);
        /// How often to scan the folder in every mode.
        rescan "rescan": Duration = 30 * SECOND, duration(SECOND, DAY);
    }
}

table! {
    /// `[recovery]`: launches whose host died or lost its lease.
    "recovery" struct Recovery {
        /// How long a lease is valid without being renewed: a dead host's runs start on another host after it. The holder
        /// drops its runs 2 s before the end, or at three quarters of a shorter lease.
        lease "lease": Duration = 8 * SECOND, duration(RECOVERY_LEAST, YEAR);
        /// How often a host renews its leases. At most a third of `lease`.
        renew "renew": Duration = 2 * SECOND, duration(RECOVERY_LEAST, YEAR);
        /// When a launch that no host claimed, although there was capacity, counts as lost.
        lost_threshold "lost_threshold": Duration = 300 * SECOND, duration(RECOVERY_LEAST, YEAR);
        /// The age after which a launch is not recovered. It must be longer than `lost_threshold`.
        max_age "max_age": Duration = DAY, duration(RECOVERY_LEAST, YEAR);
        /// How many runs of one launch, lost in a row, are replaced by another run. A run that was lost ten minutes after its start or later begins the count again. Recoveries of a launch that no host has claimed do not count.
        max_attempts "max_attempts": u32 = 3, number(0, RECOVERIES_MAX);
        /// How often to look for lost launches at least. A host also looks when the lease of another host ends.
        interval "interval": Duration = 5 * SECOND, duration(RECOVERY_LEAST, YEAR);
    } check check_recovery
}

table! {
    /// `[audit]`: the regular check of all schedules.
    "audit" struct Audit {
        /// How often to repair next slots, compute statistics and judge health.
        interval "interval": Duration = 60 * SECOND, duration(SECOND, DAY);
    }
}

table! {
    /// `[retention]`: how long launches, logs and events stay on record. An age counts from the end; "forever" keeps them.
    "retention" struct Retention {
        /// The age at which launches that succeeded are removed.
        succeeded "succeeded": Option<Duration> = Some(30 * DAY), age();
        /// The age at which launches are removed that failed, are unknown or abandoned, or were cancelled.
        failed "failed": Option<Duration> = Some(6 * MONTH), age();
        /// The age at which the decisions to skip a slot are removed.
        skipped "skipped": Option<Duration> = Some(30 * DAY), age();
        /// The age at which outputs, logs and usage of the calls of a launch are removed. The launch stays.
        logs "logs": Option<Duration> = Some(14 * DAY), age();
        /// The age at which events are removed.
        events "events": Option<Duration> = Some(LEAP_YEAR), age();
        /// How long after another version replaced it the bytes of a version of a package are removed.
        artifacts "artifacts": Option<Duration> = Some(6 * MONTH), age();
        /// The age at which the counts of removed launches are removed. A backfill without `--force` leaves all days before
        /// them alone. It may not be shorter than the ages of launches.
        counts "counts": Option<Duration> = Some(10 * LEAP_YEAR), age();
        /// So many of the newest launches of each schedule stay, whatever their age. At least as many stay as the
        /// schedule's `pause_on_failure` counts.
        keep_last "keep_last": u32 = 10, number(1, 10_000);
        /// The greatest size of the record. Past it, the oldest launches are removed before their age. Without it, there is no
        /// limit.
        max_bytes "max_bytes": Option<u64> = None, optional(size(64 << 20, 1 << 50)), example "\"50GiB\"";
    }
}

// `[late]`: the defaults of schedules for late and missed slots.
table! {
    "late" Defaults {
        /// A slot that is later than this counts as missed.
        misfire_grace "misfire_grace": Duration, duration(Duration::ZERO, YEAR);
        /// A missed slot that is older than this is not caught up. It may not be shorter than `misfire_grace`.
        catchup_window "catchup_window": Duration, duration(Duration::ZERO, YEAR);
    } check check_late
}

table! {
    /// `[defaults]`: the policies of schedules that do not set them. Give every host of a database the same: those of the host
    /// that started last apply to all schedules, whichever host decides.
    "defaults" struct ScheduleDefaults {
        /// Which missed slots are launched: the newest one, the oldest one, all, or none.
        catchup "catchup": Catchup = Catchup::default(),
            word("\"none\", \"latest\", \"earliest\" or \"all\"", Catchup::read);
        /// Whether a launch is run again after its run was lost. "at_most_once" also calls no task again after a failure.
        delivery "delivery": Delivery = Delivery::default(),
            word("\"at_least_once\" or \"at_most_once\"", Delivery::read);
    }
}

table! {
    /// `[outbox]`: the delivery of messages that tasks send to other systems.
    "outbox" struct Outbox {
        /// How long after it was sent a message is delivered again after each failed delivery. Then it is dead:
        /// `campanile outbox retry` delivers it again.
        give_up_after "give_up_after": Duration = 3 * DAY, duration(60 * SECOND, YEAR);
    }
}

table! {
    /// `[traces]`: where traces of launches are sent.
    "traces" struct Traces {
        /// The address of a collector of OpenTelemetry, to which traces of launches are sent over OTLP/HTTP: `/v1/traces` is
        /// added to it. Without it, no traces are sent. Give every host of a database the same.
        endpoint "endpoint": Option<TracesEndpoint> = None, optional(text()), example "\"http://127.0.0.1:4318\"";
    }
}

table! {
    /// `[packages]`: how files of the plugins folder are loaded, and when absent ones are forgotten.
    "packages" struct Packages {
        /// The most memory of the process. A file that needs more is refused.
        load_memory_bytes "load_memory": u64 = 512 << 20, size(64 << 20, 64 << 30);
        /// The longest time that a load may take. On a busy machine it may take ten times as long, until its process has
        /// had this much of a processor.
        load_time "load_time": Duration = 120 * SECOND, duration(SECOND, DAY);
        /// The most memory that the compiled code of all packages takes, with the data in their files. Code that is not in
        /// use is unloaded when other code needs its room, and loaded again for its next launch. One file that needs more
        /// than half of this is refused.
        loaded_bytes_max "loaded_max": u64 = 512 << 20, size(64 << 20, 1 << 40);
        /// When no live host has had the file of a package for so long, the schedules end that the package or its
        /// sidecar defined. "forever" keeps them: each of their slots is skipped.
        forget_after "forget_after": Option<Duration> = Some(30 * DAY), age();
    }
}

table! {
    /// `[policy]`: which files a host accepts.
    "policy" struct Policy {
        /// Which new versions wait for an approval: "requests" those that request more than they are granted, "always" all,
        /// "pinned" none, because a version runs only if its sidecar pins it with `sha256`.
        approval "approval": Approval = Approval::Requests,
            word("\"requests\", \"always\" or \"pinned\"", Approval::read);
        /// The key file that seals decisions about versions and the tokens of approvers, the same on all hosts: see
        /// `campanile package approval-key`. Without it, a host makes a key in its `state_dir`, and counts no other seals.
        approval_key "approval_key": Option<PathBuf> = None, optional(path()), example "\"/etc/campanile/approval.key\"";
        /// The public keys whose signatures count: the second line of each public key file.
        trusted_keys "trusted_keys": Vec<PublicKey> = Vec::new(), texts();
        /// Whether a version runs only with a signature by a trusted key, in NAME.wasm.minisig beside NAME.wasm.
        require_signature "require_signature": bool = false, boolean();
        /// What to do when other users of this machine can write a file that the host relies on, or replace it: the
        /// plugins folder, this file, the schedules file, a SQLite database, and the files and commands of secrets.
        /// "refuse" does not start the host, and rejects such packages and sidecars. "warn" logs a warning.
        foreign_writers "foreign_writers": ForeignWriters = ForeignWriters::default(),
            word("\"refuse\" or \"warn\"", ForeignWriters::read);
    } check check_policy
}

// `[quota]`: what one package may use on this host. A sidecar changes it for its package.
table! {
    "quota" Quota {
        /// The most runs of one package at once. Without it, seven times as many as stay free.
        runs_max "runs_max": Option<u32>, optional(number(1, COUNT_MOST)), example "64";
        /// The most launches of one package in a second. Without it, as many as are due.
        launches_per_second "launches_per_second": Option<u32>, optional(number(1, COUNT_MOST)), example "1000";
        /// The most runs at once of the schedules that one package proposes.
        proposed_runs_max "proposed_runs_max": u32, number(1, COUNT_MOST);
        /// The most launches in a second of the schedules that one package proposes.
        proposed_launches_per_second "proposed_launches_per_second": u32, number(1, COUNT_MOST);
        /// The most bytes that the tasks of one package add to the record in a day, on all hosts: outputs, logs and
        /// messages, and 1 KiB for each launch of a schedule that it proposes. Its later launches of that day fail as
        /// `quota_exceeded`, and the schedules that it proposes are paused until midnight UTC.
        record_bytes_per_day "record_per_day": u64, size(RECORD_BYTES_LEAST, RECORD_BYTES_MOST);
    }
}

// `[namespaces.NAME]`: what the packages of one namespace may use together.
table! {
    "namespaces" NamespaceQuota {
        /// The most runs at once of the packages of this namespace, on one host.
        runs_max "runs_max": Option<u32>, optional(number(1, COUNT_MOST));
        /// The most launches of its packages in a minute, on one host. Later ones wait.
        launches_per_minute "launches_per_minute": Option<u32>, optional(number(1, COUNT_MOST));
        /// The most bytes that its tasks add to the record in a day, on all hosts.
        record_bytes_per_day "record_per_day": Option<u64>, optional(size(RECORD_BYTES_LEAST, RECORD_BYTES_MOST));
        /// The most bytes in all its buckets.
        bucket_bytes "buckets": Option<u64>, optional(size(RECORD_BYTES_LEAST, RECORD_BYTES_MOST));
    }
}

table! {
    /// `[groups.NAME]`: a concurrency group.
    "groups" struct Group {
        /// The most runs of this concurrency group at the same time, on all hosts together.
        max "max": Option<u32> = None, optional(number(1, COUNT_MOST));
    }
}

table! {
    /// `[sandbox]`: the engine that calls tasks.
    "sandbox" struct Sandbox {
        /// The largest memory limit of a task. A 32-bit memory has at most 4GiB.
        memory_bytes_max "memory_max": u64 = 1 << 30, size(64 << 10, 4 << 30);
        /// Caps the memory shared by all running tasks, counting linear memories, tables and instances. Each package may use up to
        /// two thirds of what others leave free, but no more than eight times its `limits.memory` (at least 256MiB). Buffers for
        /// outputs, logs and the like may add up to a quarter. Defaults to half of the machine's memory.
        memory_total_bytes "memory_total": Option<u64> = None, optional(size(64 << 20, 1 << 50)), example "\"4GiB\"";
        /// The stack of a task, which bounds how deep it may recurse.
        stack_bytes_max "stack": u64 = 1 << 20, size(64 << 10, 64 << 20);
        /// The most instances of core modules that a package may have. A larger package is refused when it is loaded.
        core_instances_max "core_instances_max": u32 = ComponentLimits::default().core_instances_max, number(1, 10_000);
        /// The most memories that a package may have.
        memories_max "memories_max": u32 = ComponentLimits::default().memories_max, number(1, 1000);
        /// The most tables that a package may have.
        tables_max "tables_max": u32 = ComponentLimits::default().tables_max, number(1, 10_000);
        /// What the engine may keep for the instances of a package, beside memories and tables: globals, functions, imports.
        instance_bytes_max "instance_max": u64 = ComponentLimits::default().instance_bytes_max, size(64 << 10, 256 << 20);
        /// Whether the host stores compiled code between starts.
        cache "cache": bool = true, boolean();
        /// The folder of the compiled code. Without it, a folder `campanile` in the user's cache folder. A folder that
        /// other users can write is not used.
        cache_dir "cache_dir": Option<PathBuf> = None, optional(path()), example "\"/var/cache/campanile\"";
    } check check_sandbox
}

fn processors() -> u32 {
    let count = std::thread::available_parallelism().map_or(1, NonZero::get);
    u32::try_from(count).unwrap_or(1)
}

/// Refuse a name that a host cannot have; the error is a clause.
pub(super) fn check_host_name(name: &str) -> Result<(), String> {
    if text::is_plain_name(name, 255) {
        return Ok(());
    }
    Err(format!(
        "is {name:?}, which cannot name a host: use 1 to 255 letters, digits, `.`, `_` or `-`, but not `.` or `..` alone"
    ))
}

/// Refuse proxies without roles for their users, and what has no use without proxies.
fn check_server(server: &Server, section: &Section<'_>) -> Result<(), Error> {
    for (key, header) in [
        ("user_header", Some(&server.user_header)),
        ("role_header", server.role_header.as_ref()),
    ] {
        let checked = header.map_or(Ok(()), |header| check_header_name(header));
        checked.map_err(|what| section.error(key, what))?;
    }
    let is_same = |role: &String| role.eq_ignore_ascii_case(&server.user_header);
    if server.role_header.as_ref().is_some_and(is_same) {
        return Err(section.error(
            "role_header",
            "is the header of the user too: name another one",
        ));
    }
    let roles = [
        ("proxy_roles", !server.proxy_roles.is_empty()),
        ("role_header", server.role_header.is_some()),
    ];
    let set = Vec::from_iter(roles.iter().filter(|(_, is_set)| *is_set));
    match (server.trusted_proxies.is_empty(), &*set) {
        (true, []) | (false, [_]) => Ok(()),
        (true, [(key, _), ..]) => {
            Err(section.error(key, "has no use: `trusted_proxies` lists no address"))
        }
        (false, _) => {
            let what = "needs exactly one of `role_header` and `proxy_roles`, which say what a user may do";
            Err(section.error("trusted_proxies", what))
        }
    }
}

fn check_sandbox(sandbox: &Sandbox, section: &Section<'_>) -> Result<(), Error> {
    let most = sandbox.memory_bytes_max;
    let Some(total) = sandbox.memory_total_bytes.filter(|total| *total < most) else {
        return Ok(());
    };
    let (total, most) = (size_text(total), size_text(most));
    let what = format!(
        "is {total} for all tasks together, less than the {most} that `memory_max` allows one: raise the one or lower the other"
    );
    Err(section.error("memory_total", what))
}

fn check_host(host: &Host, section: &Section<'_>) -> Result<(), Error> {
    let name = host.name.as_deref().map_or(Ok(()), check_host_name);
    name.map_err(|what| section.error("name", what))
}

/// Check the durations against each other.
fn check_recovery(recovery: &Recovery, section: &Section<'_>) -> Result<(), Error> {
    let least = recovery.renew.saturating_mul(RENEWALS_MIN);
    if least > recovery.lease {
        let [renew, lease, least] = [recovery.renew, recovery.lease, least].map(duration_text);
        let what = format_args!(
            "is {renew}, and `recovery.lease` is {lease}: a lease must last for three renewals, or hosts lose the leases of their runs when one fails; write a `lease` of at least \"{least}\""
        );
        return Err(section.error("renew", what));
    }
    if recovery.max_age <= recovery.lost_threshold {
        let [age, lost] = [recovery.max_age, recovery.lost_threshold].map(duration_text);
        let what = format_args!(
            "is {age}, and must be longer than `recovery.lost_threshold`, which is {lost}, or no launch is ever recovered"
        );
        return Err(section.error("max_age", what));
    }
    Ok(())
}

fn check_late(late: &Defaults, section: &Section<'_>) -> Result<(), Error> {
    if late.catchup_window >= late.misfire_grace {
        return Ok(());
    }
    let what = "is shorter than misfire_grace: every missed slot is later than that, so none would be caught up; write a longer one";
    Err(section.error("catchup_window", what))
}

/// Refuse to require signatures that no key can make.
fn check_policy(policy: &Policy, section: &Section<'_>) -> Result<(), Error> {
    if !policy.require_signature || !policy.trusted_keys.is_empty() {
        return Ok(());
    }
    let what = "is true, and `policy.trusted_keys` is empty, so that no package could run: add the public keys that you trust";
    Err(section.error("require_signature", what))
}

impl ScheduleDefaults {
    /// Returns the policies that are not those of a schedule without any configuration.
    pub fn policies(&self) -> Policies {
        Policies {
            catchup: Some(self.catchup).filter(|word| *word != Catchup::default()),
            delivery: Some(self.delivery).filter(|word| *word != Delivery::default()),
            ..Policies::default()
        }
    }
}

impl Retention {
    /// Check the ages against each other and against what recovery and catch-up look back.
    ///
    /// `recovery.lost_threshold` is shorter than `recovery.max_age`.
    pub(super) fn check(
        &self,
        section: &Section<'_>,
        recovery: &Recovery,
        late: &Defaults,
    ) -> Result<(), Error> {
        let outlasts = |key, age: Option<Duration>, other: &str, least: Duration, reason: &str| {
            let Some(age) = age.filter(|age| *age < least) else {
                return Ok(());
            };
            let [age, least] = [age, least].map(duration_text);
            let what = format_args!(
                "is {age}, shorter than `{other}`, which is {least}: {reason}; write at least \"{least}\""
            );
            Err(section.error(key, what))
        };
        for (key, age) in [
            ("succeeded", self.succeeded),
            ("failed", self.failed),
            ("skipped", self.skipped),
        ] {
            let reason = "recovery may still look for such launches";
            outlasts(key, age, "recovery.max_age", recovery.max_age, reason)?;
            let reason = "their slots may still be caught up";
            outlasts(key, age, "late.catchup_window", late.catchup_window, reason)?;
            if let Some(age) = age {
                let other = format!("retention.{key}");
                let reason = "a launch would be removed and not counted";
                outlasts("counts", self.counts, &other, age, reason)?;
            }
        }
        // An age of logs that no launch reaches.
        match self.limits().greatest_age() {
            Some(longest) if self.logs.is_none_or(|logs| logs > longest) => {
                let (logs, longest) = (age_text(self.logs), duration_text(longest));
                let what = format_args!(
                    "is {logs}, and every launch is removed with its logs after {longest}: write at most \"{longest}\", or keep launches longer"
                );
                Err(section.error("logs", what))
            }
            _ => Ok(()),
        }
    }

    /// Returns how long the record keeps what has ended.
    pub fn limits(&self) -> RetentionLimits {
        RetentionLimits {
            succeeded: self.succeeded,
            failed: self.failed,
            skipped: self.skipped,
            logs: self.logs,
            events: self.events,
            artifacts: self.artifacts,
            counts: self.counts,
            keep_last: self.keep_last,
            max_bytes: self.max_bytes,
        }
    }
}
