//! The `[limits]` table, the same in the configuration and in a sidecar.

use std::time::Duration;

use crate::reference::KeyHelp;
use crate::toml_reader::{Error, Section};
use campanile_model::text;
use campanile_sandbox::{LIMITS, LimitSpec, Limits, Resource, Unit};
use campanile_schedule::policy::MAX_ATTEMPTS_LIMIT;

/// Read the time-out of a call. The error says what is wrong, and reads after the key's name.
pub fn timeout(text: &str) -> Result<Duration, String> {
    let spec = Resource::Timeout.spec();
    let [least, most] = [spec.least, spec.most].map(Duration::from_nanos);
    text::duration_within(text, least, most)
}

/// Returns the keys of `[limits]`, for the reference.
pub fn keys() -> Vec<KeyHelp> {
    let defaults = Limits::default();
    let key = |spec: &LimitSpec| KeyHelp {
        key: spec.resource.to_string(),
        kind: match spec.unit {
            Unit::Time => "duration",
            Unit::Bytes => "size",
            Unit::Count => "number",
        }
        .to_owned(),
        default: defaults
            .get(spec.resource)
            .map(|amount| spec.unit.toml(amount)),
        bounds: Some(match spec.most {
            u64::MAX => format!("from {}", spec.unit.text(spec.least)),
            most => format!("{} to {}", spec.unit.text(spec.least), spec.unit.text(most)),
        }),
        meaning: spec.help.to_owned(),
    };
    LIMITS.iter().map(key).collect()
}

/// The most attempts that a task may be given for one run.
pub const MAX_ATTEMPTS_MOST: u64 = MAX_ATTEMPTS_LIMIT as u64;

/// The limits that a file sets, each in its unit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LimitChanges(Vec<(Resource, u64)>);

impl LimitChanges {
    /// Read `[limits]`. No memory limit may exceed `memory_bytes_most`, for which the sandbox is sized.
    pub fn read(mut section: Section<'_>, memory_bytes_most: u64) -> Result<LimitChanges, Error> {
        let mut changes = LimitChanges::default();
        for spec in LIMITS {
            let (key, least, most) = (spec.resource.as_str(), spec.least, spec.most);
            let amount = match spec.unit {
                Unit::Bytes => section.size(key, least, most)?,
                Unit::Count => section.number(key, least, most)?,
                Unit::Time => {
                    let [least, most] = [least, most].map(Duration::from_nanos);
                    let time = section.duration(key, least, most)?;
                    time.and_then(|time| u64::try_from(time.as_nanos()).ok())
                }
            };
            changes
                .0
                .extend(amount.map(|amount| (spec.resource, amount)));
        }
        if let Some(bytes) = changes.get(Resource::Memory)
            && bytes > memory_bytes_most
        {
            return Err(section.error(
                Resource::Memory.as_str(),
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

    /// Returns the limit of `resource` that the file sets, if it sets one.
    pub fn get(&self, resource: Resource) -> Option<u64> {
        let mut changes = self.0.iter();
        changes.find_map(|(changed, amount)| (*changed == resource).then_some(*amount))
    }

    /// Returns `limits` with these changes.
    pub fn over(&self, limits: &Limits) -> Limits {
        let mut limits = limits.clone();
        for (resource, amount) in &self.0 {
            limits.set(*resource, *amount);
        }
        limits
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::toml_reader::Document;

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
            keyvalue='14B'\nkeyvalue_value='15B'\nrun_context='16B'\nuncommitted='17B'";
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
                run_context_bytes_max: 16,
                uncommitted_bytes_max: 17,
            }
        );
    }

    #[test]
    fn the_reference_has_each_limit_with_its_default_and_bounds() {
        let keys = keys();
        assert_eq!(keys.len(), Resource::ALL.len());
        let shown = |key: &str| keys.iter().find(|help| help.key == key).unwrap();
        let memory = shown("memory");
        assert_eq!(memory.default.as_deref(), Some("\"64MiB\""));
        assert_eq!(memory.bounds.as_deref(), Some("from 64KiB"));
        assert_eq!(shown("cpu").default, None);
        assert_eq!(shown("handles").bounds.as_deref(), Some("1 to 100000"));
        assert_eq!(shown("timeout").default.as_deref(), Some("\"5m\""));
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
                .contains("at least \"64KiB\"")
        );
        assert!(read("timeout = '0s'").unwrap_err().contains("from \"1ms\""));
    }

    #[test]
    fn every_bounded_resource_is_named_by_the_key_that_raises_it() {
        for resource in Resource::ALL {
            let key = resource.to_string();
            assert!(resource.raise().contains(&format!("`limits.{key}`")));
            let accepted = ["1", "'1s'", "'1MiB'"]
                .iter()
                .any(|value| read(&format!("{key} = {value}")).is_ok());
            assert!(accepted, "`{key}` is no key of [limits]");
        }
        let unknown = read("unknown = 1").unwrap_err();
        assert!(unknown.contains("unknown key `unknown`"), "{unknown}");
    }
}
