//! The tables of the configuration: what each holds, its defaults and its checks.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

use campanile_engine::secrets::Source;
use campanile_engine::watch::Mode;
use campanile_model::text::duration_text;
use campanile_package::toml_reader;
use campanile_package::toml_reader::Section;
use campanile_sandbox::Secret;
use campanile_schedule::policy::Defaults;

/// `[host]`: this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// None is the machine's name.
    pub name: Option<String>,
    /// Runs at once.
    pub runs_max: u32,
    pub guest_threads: usize,
    /// For the database at the start; zero tries once.
    pub wait: Duration,
    /// For running runs at the end.
    pub drain: Duration,
}

/// `[watch]`: how changes in the plugins folder are noticed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watch {
    pub mode: Mode,
    pub rescan: Duration,
}

/// `[recovery]`: what becomes of launches whose host is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovery {
    /// How long a claim holds without being renewed.
    pub lease: Duration,
    /// Shorter than the lease.
    pub renew: Duration,
    pub lost_threshold: Duration,
    /// Longer than the lost threshold.
    pub max_age: Duration,
    /// Zero recovers nothing.
    pub max_attempts: u32,
    pub interval: Duration,
}

/// `[audit]`: the loop that goes over everything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Audit {
    pub interval: Duration,
}

/// `[late]`: the defaults of schedules for slots that come late.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Late {
    /// A slot later than this is missed.
    pub misfire_grace: Duration,
    /// A missed slot older than this is not caught up.
    pub catchup_window: Duration,
}

/// `[sandbox]`: the engine that runs guests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sandbox {
    /// The greatest memory limit of any task.
    pub memory_bytes_max: u64,
    /// Of a guest's own stack.
    pub stack_bytes_max: u64,
    /// None keeps no compiled code.
    pub cache_dir: Option<PathBuf>,
}

/// `[secrets.NAME]`: where each comes from.
pub(super) fn secrets(
    named: Vec<(String, Section<'_>)>,
    home: &Path,
    env: &dyn Fn(&str) -> Option<OsString>,
) -> Result<BTreeMap<String, Source>, toml_reader::Error> {
    let mut sources = BTreeMap::new();
    for (name, mut section) in named {
        let variable = section.text("env")?;
        let file = section.path("file", "")?;
        let command = section.texts("command")?;
        let source = match (variable, file, command) {
            (Some(variable), None, None) => {
                let value = match env(&variable).map(OsString::into_string) {
                    None => None,
                    Some(Ok(value)) => Some(Secret::new(value)),
                    Some(Err(_)) => {
                        return Err(section.error(
                            "env",
                            format_args!("names {variable}, whose value is not UTF-8 text"),
                        ));
                    }
                };
                Source::Env { variable, value }
            }
            (None, Some(file), None) => Source::File(home.join(file)),
            (None, None, Some(words)) if !words.is_empty() => Source::Command(words),
            _ => {
                let error = section.error_of_table(
                    "needs one of `env = \"VARIABLE\"`, `file = \"PATH\"` or `command = [\"NAME\", \"ARGUMENT\"]`, and only one",
                );
                // A key that is mistyped is most likely the one that is missing.
                section.finish()?;
                return Err(error);
            }
        };
        section.finish()?;
        sources.insert(name, source);
    }
    Ok(sources)
}

const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(24 * 3600);
pub(super) const YEAR: Duration = Duration::from_secs(366 * 24 * 3600);
const RUNS_MOST: u64 = 10_000;
const GUEST_THREADS_MOST: u64 = 1024;

/// Why `name` cannot name a host, if it cannot.
pub(super) fn host_name_fault(name: &str) -> Option<String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if (1..=255).contains(&name.len()) && name.bytes().all(plain) {
        return None;
    }
    Some(format!(
        "is {name:?}, which cannot name a host: use 1 to 255 letters, digits, `.`, `_` or `-`"
    ))
}

impl Host {
    pub(super) fn read(mut section: Section<'_>) -> Result<Host, toml_reader::Error> {
        let name = section.text("name")?;
        if let Some(fault) = name.as_deref().and_then(host_name_fault) {
            return Err(section.error("name", fault));
        }
        let runs_max = section.number("runs_max", 1, RUNS_MOST)?.unwrap_or(256);
        let guest_threads = section.number("guest_threads", 1, GUEST_THREADS_MOST)?;
        let host = Host {
            name,
            runs_max: u32::try_from(runs_max).unwrap_or(u32::MAX),
            guest_threads: match guest_threads {
                Some(threads) => usize::try_from(threads).unwrap_or(usize::MAX),
                None => std::thread::available_parallelism().map_or(1, NonZeroUsize::get),
            },
            wait: section
                .duration("wait", Duration::ZERO, YEAR)?
                .unwrap_or(60 * SECOND),
            drain: section
                .duration("drain", Duration::ZERO, YEAR)?
                .unwrap_or(30 * SECOND),
        };
        section.finish()?;
        Ok(host)
    }
}

impl Watch {
    pub(super) fn read(mut section: Section<'_>) -> Result<Watch, toml_reader::Error> {
        let mode = match section.text("mode")?.as_deref() {
            None | Some("auto") => Mode::Auto,
            Some("poll") => Mode::Poll,
            Some("off") => Mode::Off,
            Some(other) => {
                let what = format!("is {other:?}: write \"auto\", \"poll\" or \"off\"");
                return Err(section.error("mode", what));
            }
        };
        let rescan = section
            .duration("rescan", SECOND, DAY)?
            .unwrap_or(30 * SECOND);
        section.finish()?;
        Ok(Watch { mode, rescan })
    }
}

impl Recovery {
    pub(super) fn read(mut section: Section<'_>) -> Result<Recovery, toml_reader::Error> {
        let max_attempts = section.number("max_attempts", 0, 1000)?.unwrap_or(3);
        let mut duration = |key, default: Duration| {
            let least = Duration::from_millis(100);
            Ok::<_, toml_reader::Error>(section.duration(key, least, YEAR)?.unwrap_or(default))
        };
        let recovery = Recovery {
            lease: duration("lease", 30 * SECOND)?,
            renew: duration("renew", 10 * SECOND)?,
            lost_threshold: duration("lost_threshold", 300 * SECOND)?,
            max_age: duration("max_age", DAY)?,
            max_attempts: u32::try_from(max_attempts).unwrap_or(u32::MAX),
            interval: duration("interval", 5 * SECOND)?,
        };
        let shorter = |a: (&str, Duration), b: (&str, Duration), advice: &str| {
            section.error(
                a.0,
                format_args!(
                    "is {}, and `{}` is {}: {advice}",
                    duration_text(a.1),
                    section.path_of(b.0),
                    duration_text(b.1),
                ),
            )
        };
        let lease = ("lease", recovery.lease);
        if recovery.renew >= recovery.lease {
            let advice = "renew well within the lease, usually after a third of it, or runs are taken away while they go on";
            return Err(shorter(("renew", recovery.renew), lease, advice));
        }
        if recovery.max_age <= recovery.lost_threshold {
            let advice = "it must be longer, or nothing is ever recovered";
            let lost = ("lost_threshold", recovery.lost_threshold);
            return Err(shorter(("max_age", recovery.max_age), lost, advice));
        }
        section.finish()?;
        Ok(recovery)
    }
}

impl Audit {
    pub(super) fn read(mut section: Section<'_>) -> Result<Audit, toml_reader::Error> {
        let interval = section.duration("interval", SECOND, DAY)?;
        section.finish()?;
        Ok(Audit {
            interval: interval.unwrap_or(60 * SECOND),
        })
    }
}

impl Late {
    /// What holds for schedules that do not say it themselves.
    pub fn defaults(&self) -> Defaults {
        Defaults {
            misfire_grace: self.misfire_grace,
            catchup_window: self.catchup_window,
        }
    }

    pub(super) fn read(mut section: Section<'_>) -> Result<Late, toml_reader::Error> {
        let misfire_grace = section.duration("misfire_grace", Duration::ZERO, YEAR)?;
        let catchup_window = section.duration("catchup_window", Duration::ZERO, YEAR)?;
        let late = Late {
            misfire_grace: misfire_grace.unwrap_or(300 * SECOND),
            catchup_window: catchup_window.unwrap_or(DAY),
        };
        if late.catchup_window < late.misfire_grace {
            return Err(section.error(
                "catchup_window",
                "is shorter than misfire_grace: what is missed is late by more than that, so nothing would be caught up; write a longer one",
            ));
        }
        section.finish()?;
        Ok(late)
    }
}

impl Sandbox {
    pub(super) fn read(
        mut section: Section<'_>,
        home: &Path,
        env: &dyn Fn(&str) -> Option<OsString>,
    ) -> Result<Sandbox, toml_reader::Error> {
        // 4 GiB is what a 32-bit memory can have.
        let memory = section.size("memory_max", 64 << 10, 4 << 30)?;
        let stack = section.size("stack", 64 << 10, 64 << 20)?;
        let cache = section.boolean("cache")?.unwrap_or(true);
        let instead = "; to keep nothing, write cache = false";
        let cache_dir = match section.path("cache_dir", instead)? {
            Some(path) => Some(home.join(path)),
            None => user_cache(env),
        };
        section.finish()?;
        Ok(Sandbox {
            memory_bytes_max: memory.unwrap_or(1 << 30),
            stack_bytes_max: stack.unwrap_or(1 << 20),
            cache_dir: cache_dir.filter(|_| cache),
        })
    }
}

/// The folder for this program among the user's caches; none for a user without a home.
fn user_cache(env: &dyn Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let absolute = |name| {
        env(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let caches = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))?;
    Some(caches.join("campanile"))
}
