//! The tables of the configuration: each key with its type, default, bounds and meaning in one place.
//!
//! Reading, printing, the default file and the reference are made from these tables.

use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::str::FromStr as _;
use std::time::Duration;

use campanile_engine::watch::Mode;
use campanile_model::ids::RunId;
use campanile_model::text::{duration_text, size_text};
use campanile_package::Approval;
use campanile_package::ForeignWriters;
use campanile_package::quota::{COUNT_MOST, RECORD_BYTES_LEAST, RECORD_BYTES_MOST};
use campanile_package::reference::KeyHelp;
use campanile_package::signature::PublicKey;
use campanile_package::toml_reader::{Error, Section};
use campanile_store::DatabaseUrl;

const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(24 * 3600);
/// A month and a year as `humantime` has them, so that defaults are printed as one number.
const MONTH: Duration = Duration::from_secs(2_630_016);
const LEAP_YEAR: Duration = Duration::from_secs(31_557_600);
/// The bounds of the ages in `[retention]`.
const AGE: (Duration, Duration) = (
    Duration::from_secs(60),
    Duration::from_secs(100 * 31_557_600),
);
/// How an age is written that never comes.
const FOR_EVER: &str = "forever";
pub(super) const YEAR: Duration = Duration::from_secs(366 * 24 * 3600);
/// The most recoveries of a launch.
const RECOVERIES_MAX: u32 = RunId::NUMBER_MAX as u32 - 1;
/// The least value of the durations in `[recovery]`.
const RECOVERY_LEAST: Duration = Duration::from_millis(100);

/// How the value of a key is read and written.
struct Kind<T> {
    /// The type and the unit, as the reference names them.
    name: &'static str,
    /// The least and the greatest value.
    bounds: Option<String>,
    read: Read<T>,
    /// Returns `None` for a value that is not set.
    toml: fn(&T) -> Option<toml::Value>,
}

/// Reads a key, or returns `None` when the file does not set it. A relative path starts at the given folder.
type Read<T> = Box<dyn Fn(&mut Section<'_>, &'static str, &Path) -> Result<Option<T>, Error>>;

/// One key with its value.
pub(super) struct Entry {
    /// The meaning has one line for each line of the default file.
    pub(super) help: KeyHelp,
    /// As TOML writes it.
    pub(super) value: Option<String>,
    /// A value to show for a key without a fixed default.
    pub(super) example: Option<&'static str>,
}

/// Declare a table: a struct with its defaults, and how it is read and listed.
macro_rules! table {
    ($(#[doc = $doc:literal])+ $name:ident {
        $($(#[doc = $meaning:literal])+ $field:ident $key:literal: $type:ty = $default:expr, $kind:expr $(, example $example:literal)?;)*
    }) => {
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

        impl $name {
            /// Read the keys that `section` sets. A relative path starts at `home`.
            pub(super) fn read(section: &mut Section<'_>, home: &Path) -> Result<$name, Error> {
                let default = $name::default();
                Ok($name {
                    $($field: ($kind.read)(section, $key, home)?.unwrap_or(default.$field),)*
                })
            }

            /// List the keys with their values.
            pub(super) fn entries(&self) -> Vec<Entry> {
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
    Files {
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
    Host {
        /// The name that identifies this host after a restart. Without it, the machine's name.
        name "name": Option<String> = None, optional_text(), example "\"host-1\"";
        /// The most runs at once on this host.
        runs_max "runs_max": u32 = 256, number(1, 10_000);
        /// The threads that call tasks. Without it, one for each processor.
        guest_threads "guest_threads": u32 = processors(), number(1, 1024), example "4";
        /// How long to wait for the database at the start. "0s" tries once.
        wait "wait": Duration = 60 * SECOND, duration(Duration::ZERO, YEAR);
        /// The least free space on the disk of a SQLite database: with less, the host launches nothing until there is more.
        /// Runs continue, and use it for their ends. "0" is no bound.
        disk_reserve_bytes "disk_reserve": u64 = 256 << 20, size(0, 1 << 40);
        /// How long runs may continue after the host is told to stop.
        drain "drain": Duration = 30 * SECOND, duration(Duration::ZERO, YEAR);
    }
}

table! {
    /// `[watch]`: how the host notices changes in the plugins folder.
    Watch {
        /// "auto" uses events of the operating system, "poll" looks every 2 s (for network file systems and shared
        /// folders of containers), "off" relies on the rescan.
        mode "mode": Mode = Mode::Auto, mode();
        /// How often to scan the folder in every mode.
        rescan "rescan": Duration = 30 * SECOND, duration(SECOND, DAY);
    }
}

table! {
    /// `[recovery]`: launches whose host died or lost its lease.
    Recovery {
        /// How long a lease is valid without being renewed.
        lease "lease": Duration = 30 * SECOND, duration(RECOVERY_LEAST, YEAR);
        /// How often a host renews its leases. It must be shorter than `lease`.
        renew "renew": Duration = 10 * SECOND, duration(RECOVERY_LEAST, YEAR);
        /// When a launch that no host claimed, although there was capacity, counts as lost.
        lost_threshold "lost_threshold": Duration = 300 * SECOND, duration(RECOVERY_LEAST, YEAR);
        /// The age after which a launch is not recovered. It must be longer than `lost_threshold`.
        max_age "max_age": Duration = DAY, duration(RECOVERY_LEAST, YEAR);
        /// How often one launch is recovered. 0 recovers none.
        max_attempts "max_attempts": u32 = 3, number(0, RECOVERIES_MAX);
        /// How often to look for lost launches.
        interval "interval": Duration = 5 * SECOND, duration(RECOVERY_LEAST, YEAR);
    }
}

table! {
    /// `[audit]`: the regular check of all schedules.
    Audit {
        /// How often to repair next slots, compute statistics and judge health.
        interval "interval": Duration = 60 * SECOND, duration(SECOND, DAY);
    }
}

table! {
    /// `[retention]`: how long launches, logs and events stay on record. An age counts from the end; "forever" keeps them.
    Retention {
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
        /// So many of the newest launches of each schedule stay, whatever their age. At least as many stay as the
        /// schedule's `pause_on_failure` counts.
        keep_last "keep_last": u32 = 10, number(1, 10_000);
        /// The greatest size of the record. Past it, the oldest launches are removed before their age. Without it, there is no
        /// limit.
        max_bytes "max_bytes": Option<u64> = None, optional_size(64 << 20, 1 << 50), example "\"50GiB\"";
    }
}

table! {
    /// `[late]`: the defaults of schedules for late and missed slots.
    Late {
        /// A slot that is later than this counts as missed.
        misfire_grace "misfire_grace": Duration = 300 * SECOND, duration(Duration::ZERO, YEAR);
        /// A missed slot that is older than this is not caught up. It may not be shorter than `misfire_grace`.
        catchup_window "catchup_window": Duration = DAY, duration(Duration::ZERO, YEAR);
    }
}

table! {
    /// `[packages]`: the limits of the process that loads a file of the plugins folder.
    Packages {
        /// The most memory of the process. A file that needs more is refused.
        load_memory_bytes "load_memory": u64 = 512 << 20, size(64 << 20, 64 << 30);
        /// The longest time that a load may take.
        load_time "load_time": Duration = 120 * SECOND, duration(SECOND, DAY);
    }
}

table! {
    /// `[policy]`: which files a host accepts.
    Policy {
        /// Which new versions wait for an approval: "requests" those that request more than they are granted, "always" all,
        /// "pinned" none, because a version runs only if its sidecar pins it with `sha256`.
        approval "approval": Approval = Approval::Requests, approval();
        /// The public keys whose signatures count: the second line of each public key file.
        trusted_keys "trusted_keys": Vec<PublicKey> = Vec::new(), public_keys();
        /// Whether a version runs only with a signature by a trusted key, in NAME.wasm.minisig beside NAME.wasm.
        require_signature "require_signature": bool = false, boolean();
        /// What to do when other users of this machine can write a file that the host relies on, or replace it: the
        /// plugins folder, this file, the schedules file, a SQLite database, and the files and commands of secrets.
        /// "refuse" does not start the host, and rejects such packages and sidecars. "warn" logs a warning.
        foreign_writers "foreign_writers": ForeignWriters = ForeignWriters::default(), foreign_writers();
    }
}

table! {
    /// `[quota]`: what one package may use on this host. A sidecar changes it for its package.
    Quota {
        /// The most runs of one package at once. Without it, seven times as many as stay free.
        runs_max "runs_max": Option<u32> = None, optional_number(1, COUNT_MOST), example "64";
        /// The most launches of one package in a second. Without it, as many as are due.
        launches_per_second "launches_per_second": Option<u32> = None, optional_number(1, COUNT_MOST), example "1000";
        /// The most runs at once of the schedules that one package proposes.
        proposed_runs_max "proposed_runs_max": u32 = 32, number(1, COUNT_MOST);
        /// The most launches in a second of the schedules that one package proposes.
        proposed_launches_per_second "proposed_launches_per_second": u32 = 100, number(1, COUNT_MOST);
        /// The most bytes that the tasks of one package add to the record in a day, on all hosts: outputs, logs and
        /// messages, and 1 KiB for each launch of a schedule that it proposes. Its later launches of that day fail as
        /// `quota_exceeded`, and the schedules that it proposes are paused until midnight UTC.
        record_bytes_per_day "record_per_day": u64 = 1 << 30, size(RECORD_BYTES_LEAST, RECORD_BYTES_MOST);
    }
}

table! {
    /// `[sandbox]`: the engine that calls tasks.
    Sandbox {
        /// The largest memory limit of a task. A 32-bit memory has at most 4GiB.
        memory_bytes_max "memory_max": u64 = 1 << 30, size(64 << 10, 4 << 30);
        /// The stack of a task, which bounds how deep it may recurse.
        stack_bytes_max "stack": u64 = 1 << 20, size(64 << 10, 64 << 20);
        /// Whether the host stores compiled code between starts.
        cache "cache": bool = true, boolean();
        /// The folder of the compiled code. Without it, a folder `campanile` in the user's cache folder. A folder that
        /// other users can write is not used.
        cache_dir "cache_dir": Option<PathBuf> = None, optional_path(), example "\"/var/cache/campanile\"";
    }
}

fn processors() -> u32 {
    let count = std::thread::available_parallelism().map_or(1, NonZero::get);
    u32::try_from(count).unwrap_or(1)
}

/// Refuse a name that a host cannot have; the error is a clause.
pub(super) fn check_host_name(name: &str) -> Result<(), String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    match (1..=255).contains(&name.len()) && name.bytes().all(is_plain) {
        true => Ok(()),
        false => Err(format!(
            "is {name:?}, which cannot name a host: use 1 to 255 letters, digits, `.`, `_` or `-`"
        )),
    }
}

impl Recovery {
    /// Check the durations against each other.
    pub(super) fn check(&self, section: &Section<'_>) -> Result<(), Error> {
        let wrong = |key, value, other, other_value, advice| {
            let (value, other_value) = (duration_text(value), duration_text(other_value));
            let other = section.path_of(other);
            let what = format_args!("is {value}, and `{other}` is {other_value}: {advice}");
            Err(section.error(key, what))
        };
        if self.renew >= self.lease {
            let advice = "renew well within the lease, usually after a third of it, or hosts lose the leases of their runs";
            return wrong("renew", self.renew, "lease", self.lease, advice);
        }
        let (age, lost) = (self.max_age, self.lost_threshold);
        if age <= lost {
            let advice = "it must be longer, or no launch is ever recovered";
            return wrong("max_age", age, "lost_threshold", lost, advice);
        }
        Ok(())
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
        late: &Late,
    ) -> Result<(), Error> {
        let ages = [
            ("succeeded", self.succeeded),
            ("failed", self.failed),
            ("skipped", self.skipped),
        ];
        let looked_back = [
            (
                "recovery.max_age",
                recovery.max_age,
                "recovery may still look for such launches",
            ),
            (
                "late.catchup_window",
                late.catchup_window,
                "their slots may still be caught up",
            ),
        ];
        for (key, age) in ages {
            for (other, least, reason) in looked_back {
                if let Some(age) = age.filter(|age| *age < least) {
                    let (age, least) = (duration_text(age), duration_text(least));
                    let what = format_args!(
                        "is {age}, shorter than `{other}`, which is {least}: {reason}; write at least \"{least}\""
                    );
                    return Err(section.error(key, what));
                }
            }
        }
        self.check_logs(section)
    }

    /// Refuse an age of logs that no launch reaches.
    fn check_logs(&self, section: &Section<'_>) -> Result<(), Error> {
        let ages = [self.succeeded, self.failed, self.skipped];
        let longest = ages.into_iter().collect::<Option<Vec<Duration>>>();
        let Some(longest) = longest.and_then(|ages| ages.into_iter().max()) else {
            return Ok(());
        };
        if self.logs.is_some_and(|logs| logs <= longest) {
            return Ok(());
        }
        let (logs, longest) = (age_text(self.logs), duration_text(longest));
        let what = format_args!(
            "is {logs}, and every launch is removed with its logs after {longest}: write at most \"{longest}\", or keep launches longer"
        );
        Err(section.error("logs", what))
    }
}

fn age_text(age: Option<Duration>) -> String {
    age.map_or_else(|| FOR_EVER.to_owned(), duration_text)
}

impl Policy {
    /// Refuse to require signatures that no key can make.
    pub(super) fn check(&self, section: &Section<'_>) -> Result<(), Error> {
        match self.require_signature && self.trusted_keys.is_empty() {
            true => Err(section.error(
                "require_signature",
                format_args!(
                    "is true, and `{}` is empty, so that no package could run: add the public keys that you trust",
                    section.path_of("trusted_keys")
                ),
            )),
            false => Ok(()),
        }
    }
}

fn duration(least: Duration, most: Duration) -> Kind<Duration> {
    Kind {
        name: "duration",
        bounds: Some(format!(
            "{} to {}",
            duration_text(least),
            duration_text(most)
        )),
        read: Box::new(move |section, key, _| section.duration(key, least, most)),
        toml: |it| Some(duration_text(*it).into()),
    }
}

/// An age, or never.
fn age() -> Kind<Option<Duration>> {
    let (least, most) = AGE;
    Kind {
        name: "duration, or \"forever\"",
        bounds: Some(format!(
            "{} to {}",
            duration_text(least),
            duration_text(most)
        )),
        read: Box::new(move |section, key, _| section.duration_or(key, FOR_EVER, least, most)),
        toml: |it| Some(age_text(*it).into()),
    }
}

fn optional_size(least: u64, most: u64) -> Kind<Option<u64>> {
    Kind {
        name: "size",
        bounds: Some(format!("{} to {}", size_text(least), size_text(most))),
        read: Box::new(move |section, key, _| Ok(section.size(key, least, most)?.map(Some))),
        toml: |it| it.map(|bytes| size_text(bytes).into()),
    }
}

/// A number of bytes.
fn size(least: u64, most: u64) -> Kind<u64> {
    Kind {
        name: "size",
        bounds: Some(format!("{} to {}", size_text(least), size_text(most))),
        read: Box::new(move |section, key, _| section.size(key, least, most)),
        toml: |it| Some(size_text(*it).into()),
    }
}

fn number(least: u32, most: u32) -> Kind<u32> {
    Kind {
        name: "number",
        bounds: Some(format!("{least} to {most}")),
        read: Box::new(move |section, key, _| section.number(key, least.into(), most.into())),
        toml: |it| Some(i64::from(*it).into()),
    }
}

fn optional_number(least: u32, most: u32) -> Kind<Option<u32>> {
    Kind {
        name: "number",
        bounds: Some(format!("{least} to {most}")),
        read: Box::new(move |section, key, _| {
            let number = section.number(key, least.into(), most.into())?;
            Ok(number.map(Some))
        }),
        toml: |it| it.map(|number| i64::from(number).into()),
    }
}

fn boolean() -> Kind<bool> {
    Kind {
        name: "true or false",
        bounds: None,
        read: Box::new(|section, key, _| section.boolean(key)),
        toml: |it| Some((*it).into()),
    }
}

fn optional_text() -> Kind<Option<String>> {
    Kind {
        name: "text",
        bounds: None,
        read: Box::new(|section, key, _| Ok(section.text(key)?.map(Some))),
        toml: |it| it.as_deref().map(toml::Value::from),
    }
}

fn mode() -> Kind<Mode> {
    Kind {
        name: "\"auto\", \"poll\" or \"off\"",
        bounds: None,
        read: Box::new(|section, key, _| section.parsed(key, Mode::read)),
        toml: |it| Some(it.as_str().into()),
    }
}

fn foreign_writers() -> Kind<ForeignWriters> {
    Kind {
        name: "\"refuse\" or \"warn\"",
        bounds: None,
        read: Box::new(|section, key, _| section.parsed(key, ForeignWriters::read)),
        toml: |it| Some(it.as_str().into()),
    }
}

fn approval() -> Kind<Approval> {
    Kind {
        name: "\"requests\", \"always\" or \"pinned\"",
        bounds: None,
        read: Box::new(|section, key, _| section.parsed(key, Approval::read)),
        toml: |it| Some(it.as_str().into()),
    }
}

fn public_keys() -> Kind<Vec<PublicKey>> {
    Kind {
        name: "list of texts",
        bounds: None,
        read: Box::new(|section, key, _| {
            let texts = section.texts(key)?;
            let read = |texts: Vec<String>| {
                let keys = texts.iter().zip(1..).map(|(text, number)| {
                    PublicKey::read(text).map_err(|why| format!("item {number} {why}"))
                });
                keys.collect::<Result<_, _>>()
            };
            let keys = texts.map(read).transpose();
            keys.map_err(|what: String| section.error(key, what))
        }),
        toml: |it| {
            let keys = it.iter().map(|key| toml::Value::from(key.as_str()));
            Some(toml::Value::Array(keys.collect()))
        },
    }
}

fn path() -> Kind<PathBuf> {
    Kind {
        name: "path",
        bounds: None,
        read: Box::new(|section, key, home| Ok(section.path(key)?.map(|path| home.join(path)))),
        toml: |it| Some(it.to_string_lossy().as_ref().into()),
    }
}

fn optional_path() -> Kind<Option<PathBuf>> {
    Kind {
        name: path().name,
        bounds: None,
        read: Box::new(|section, key, home| Ok((path().read)(section, key, home)?.map(Some))),
        toml: |it| it.as_ref().and_then(path().toml),
    }
}

/// A database, which is shown without its password.
fn database() -> Kind<DatabaseUrl> {
    Kind {
        name: "text",
        bounds: None,
        read: Box::new(|section, key, home| {
            let parse = |url: &str| DatabaseUrl::from_str(url).map_err(|error| error.to_string());
            Ok(section.parsed(key, parse)?.map(|url| url.within(home)))
        }),
        toml: |it| Some(it.to_string().into()),
    }
}
