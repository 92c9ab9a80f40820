//! The `[limits]` table, the same in the configuration and in a sidecar.

use std::time::Duration;

use super::{Manifest, Sidecar};
use crate::toml_reader::{Error, Section};
use campanile_model::text;
use campanile_sandbox::Limits;

/// One page of a linear memory: less than this no task can have.
pub const MEMORY_BYTES_LEAST: u64 = 64 << 10;
/// No bound on text or bodies may pass this: it is held in the host's memory.
const BUFFER_BYTES_MOST: u64 = 1 << 30;
/// Each handle costs the host up to 60 KiB, and an open file is one of those that the process may have.
const HANDLES_MOST: u64 = 100_000;
/// The database keeps it, and every host reads from there.
const BUCKET_BYTES_MOST: u64 = 64 << 30;
/// What a value may be and still go through the database in one statement.
const VALUE_BYTES_MOST: u64 = 128 << 20;
/// A call that may take no time at all can only fail.
const TIMEOUT_LEAST: Duration = Duration::from_millis(1);
/// A year. Longer is a mistake, and far from where clocks overflow.
const TIMEOUT_MOST: Duration = Duration::from_secs(366 * 24 * 3600);

/// Read the time-out of a call; the error says what is wrong and reads after the key's name.
pub fn timeout(text: &str) -> Result<Duration, String> {
    text::duration_within(text, TIMEOUT_LEAST, TIMEOUT_MOST)
}

/// The limits that a file sets; the others stay what they were.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LimitChanges {
    pub timeout: Option<Duration>,
    pub cpu: Option<Duration>,
    pub memory_bytes_max: Option<u64>,
    pub table_elements_max: Option<u64>,
    pub output_bytes_max: Option<u64>,
    pub log_bytes_max: Option<u64>,
    pub stdio_bytes_max: Option<u64>,
    pub host_call_bytes_max: Option<u64>,
    pub handles_max: Option<u64>,
    pub random_bytes_max: Option<u64>,
    pub open_files_max: Option<u64>,
    pub http_requests_max: Option<u64>,
    pub http_wait: Option<Duration>,
    pub http_response_bytes_max: Option<u64>,
    pub keyvalue_bytes_max: Option<u64>,
    pub keyvalue_value_bytes_max: Option<u64>,
}

impl LimitChanges {
    /// Read `[limits]`; no memory limit may pass `memory_bytes_most`, for which the sandbox is sized.
    pub fn read(mut section: Section<'_>, memory_bytes_most: u64) -> Result<LimitChanges, Error> {
        let changes = LimitChanges {
            timeout: section.duration("timeout", TIMEOUT_LEAST, TIMEOUT_MOST)?,
            cpu: section.duration("cpu", TIMEOUT_LEAST, TIMEOUT_MOST)?,
            memory_bytes_max: section.size("memory", MEMORY_BYTES_LEAST, u64::MAX)?,
            table_elements_max: section.number("table_elements", 0, 100_000_000)?,
            output_bytes_max: section.size("output", 0, BUFFER_BYTES_MOST)?,
            log_bytes_max: section.size("log", 0, BUFFER_BYTES_MOST)?,
            stdio_bytes_max: section.size("stdio", 0, BUFFER_BYTES_MOST)?,
            host_call_bytes_max: section.size("host_call", 1 << 10, BUFFER_BYTES_MOST)?,
            handles_max: section.number("handles", 1, HANDLES_MOST)?,
            random_bytes_max: section.size("random", 0, BUFFER_BYTES_MOST)?,
            open_files_max: section.number("open_files", 0, HANDLES_MOST)?,
            http_requests_max: section.number("http_requests", 0, u64::from(u32::MAX))?,
            http_wait: section.duration("http_wait", TIMEOUT_LEAST, TIMEOUT_MOST)?,
            http_response_bytes_max: section.size("http_response", 0, BUFFER_BYTES_MOST)?,
            keyvalue_bytes_max: section.size("keyvalue", 0, BUCKET_BYTES_MOST)?,
            keyvalue_value_bytes_max: section.size("keyvalue_value", 0, VALUE_BYTES_MOST)?,
        };
        if let Some(bytes) = changes.memory_bytes_max
            && bytes > memory_bytes_most
        {
            return Err(section.error(
                "memory",
                format_args!(
                    "is {}, but this host allows no more than {}: lower it, or raise `sandbox.memory_max` in the host's configuration",
                    text::size_text(bytes),
                    text::size_text(memory_bytes_most),
                ),
            ));
        }
        section.finish()?;
        Ok(changes)
    }

    /// `limits` with these changes.
    pub fn over(&self, limits: &Limits) -> Limits {
        let narrow = |change: Option<u64>, now: usize| {
            change.map_or(now, |bytes| usize::try_from(bytes).unwrap_or(usize::MAX))
        };
        Limits {
            timeout: self.timeout.unwrap_or(limits.timeout),
            cpu: self.cpu.or(limits.cpu),
            memory_bytes_max: self.memory_bytes_max.unwrap_or(limits.memory_bytes_max),
            table_elements_max: self.table_elements_max.unwrap_or(limits.table_elements_max),
            output_bytes_max: narrow(self.output_bytes_max, limits.output_bytes_max),
            log_bytes_max: narrow(self.log_bytes_max, limits.log_bytes_max),
            stdio_bytes_max: narrow(self.stdio_bytes_max, limits.stdio_bytes_max),
            host_call_bytes_max: narrow(self.host_call_bytes_max, limits.host_call_bytes_max),
            handles_max: narrow(self.handles_max, limits.handles_max),
            random_bytes_max: self.random_bytes_max.unwrap_or(limits.random_bytes_max),
            open_files_max: self.open_files_max.unwrap_or(limits.open_files_max),
            http_requests_max: self.http_requests_max.unwrap_or(limits.http_requests_max),
            http_wait: self.http_wait.unwrap_or(limits.http_wait),
            http_response_bytes_max: self
                .http_response_bytes_max
                .unwrap_or(limits.http_response_bytes_max),
            keyvalue_bytes_max: self.keyvalue_bytes_max.unwrap_or(limits.keyvalue_bytes_max),
            keyvalue_value_bytes_max: self
                .keyvalue_value_bytes_max
                .unwrap_or(limits.keyvalue_value_bytes_max),
        }
    }
}

/// The limits of a call of `task`: `base`, which are the host's, with the sidecar's changes.
///
/// A package knows how long its tasks take, and may ask for less time than it would be given. More
/// is the operator's to give, in the sidecar.
pub fn limits_of(manifest: &Manifest, sidecar: &Sidecar, base: &Limits, task: &str) -> Limits {
    let mut limits = sidecar.limits.over(base);
    if sidecar.limits.timeout.is_none()
        && let Some(proposed) = manifest.task(task).and_then(|task| task.timeout)
    {
        limits.timeout = limits.timeout.min(proposed);
    }
    limits
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::toml_reader::Document;
    use campanile_sandbox::Resource;

    fn read(text: &str) -> Result<LimitChanges, String> {
        let document = Document::parse("x.toml", text).unwrap();
        LimitChanges::read(document.section(), 1 << 30).map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_set_changes_and_the_rest_stays() {
        let base = Limits::default();
        let changed = read("timeout = '30s'\nlog = '1KiB'").unwrap().over(&base);
        assert_eq!(
            changed,
            Limits {
                timeout: Duration::from_secs(30),
                log_bytes_max: 1024,
                ..base.clone()
            }
        );
        assert_eq!(read("").unwrap().over(&base), base);
    }

    #[test]
    fn every_limit_reaches_its_own_bound() {
        let text = "timeout='1s'\nmemory='1MiB'\ntable_elements=2\noutput='3B'\nlog='4B'\nstdio='5B'\nhttp_response='6B'\n\
            cpu='7s'\nhost_call='8KiB'\nhandles=9\nrandom='10B'\nopen_files=11\nhttp_requests=12\nhttp_wait='13s'\n\
            keyvalue='14B'\nkeyvalue_value='15B'";
        let limits = read(text).unwrap().over(&Limits::default());
        assert_eq!(
            limits,
            Limits {
                timeout: Duration::from_secs(1),
                memory_bytes_max: 1 << 20,
                table_elements_max: 2,
                output_bytes_max: 3,
                log_bytes_max: 4,
                stdio_bytes_max: 5,
                http_response_bytes_max: 6,
                cpu: Some(Duration::from_secs(7)),
                host_call_bytes_max: 8 << 10,
                handles_max: 9,
                random_bytes_max: 10,
                open_files_max: 11,
                http_requests_max: 12,
                http_wait: Duration::from_secs(13),
                keyvalue_bytes_max: 14,
                keyvalue_value_bytes_max: 15,
            }
        );
    }

    #[test]
    fn memory_beyond_the_sandbox_is_refused_with_the_way_out() {
        let error = read("\nmemory = '2GiB'").unwrap_err();
        assert_eq!(
            error,
            "x.toml:2:1: `memory` is 2GiB, but this host allows no more than 1GiB: lower it, or raise `sandbox.memory_max` in the host's configuration"
        );
        assert!(
            read("memory = '1B'")
                .unwrap_err()
                .contains("from \"64KiB\"")
        );
        assert!(read("timeout = '0s'").unwrap_err().contains("from \"1ms\""));
    }

    #[test]
    fn every_bounded_resource_is_named_by_the_key_that_raises_it() {
        for resource in Resource::ALL {
            let key = resource.to_string();
            assert!(resource.raise().contains(&format!("`{key}`")));
            let accepted = ["1", "'1s'", "'1MiB'"]
                .iter()
                .any(|value| read(&format!("{key} = {value}")).is_ok());
            assert!(accepted, "`{key}` is no key of [limits]");
        }
        let unknown = read("unknown = 1").unwrap_err();
        let known = unknown.split("the keys known here are ").nth(1).unwrap();
        assert_eq!(known.split(", ").count(), Resource::ALL.len(), "{unknown}");
    }
}
