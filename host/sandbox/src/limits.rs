//! The limits of a call and of its run: one table that the sidecar reader, the configuration, messages, reports and the reference read.

use std::time::Duration;

use campanile_model::text::{duration_text, size_text};
use campanile_model::words;
use serde::{Deserialize, Serialize};

/// One page of WebAssembly. A task that has any memory has at least one.
pub const MEMORY_BYTES_LEAST: u64 = 64 << 10;
/// The largest limit of outputs, logs and bodies: the host buffers them in its memory.
const BUFFER_BYTES_MOST: u64 = 1 << 30;
/// Each handle costs the host up to 60 KiB, and each open file uses a file descriptor of the host process.
const HANDLES_MOST: u64 = 100_000;
const MILLISECOND_NANOS: u64 = 1_000_000;
/// A year, in nanoseconds. A longer limit is surely a mistake, and a deadline must fit into a timestamp.
const YEAR_NANOS: u64 = 366 * 24 * 3_600 * 1_000 * MILLISECOND_NANOS;

/// How the amount of a limit is counted and written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Nanoseconds, written as `30s`.
    Time,
    /// Bytes, written as `64MiB`.
    Bytes,
    /// A plain number.
    Count,
}

impl Unit {
    /// Returns `amount` as a person writes it in a sidecar file, without quotes.
    pub fn text(self, amount: u64) -> String {
        match self {
            Unit::Time => duration_text(Duration::from_nanos(amount)),
            Unit::Bytes => size_text(amount),
            Unit::Count => amount.to_string(),
        }
    }

    /// Returns `amount` as a value of TOML.
    pub fn toml(self, amount: u64) -> String {
        match self {
            Unit::Time | Unit::Bytes => format!("\"{}\"", self.text(amount)),
            Unit::Count => self.text(amount),
        }
    }
}

/// One limit: its unit, and the values that an operator may set.
#[derive(Clone, Copy, Debug)]
pub struct LimitSpec {
    /// Its word is the key in `[limits]`.
    pub resource: Resource,
    pub unit: Unit,
    pub least: u64,
    pub most: u64,
    /// What the limit bounds, as one line.
    pub help: &'static str,
}

/// A type that a field of [`Limits`] may have. `None` means no limit.
trait Amount {
    fn set(&mut self, amount: u64);
    fn get(&self) -> Option<u64>;
}

impl Amount for u64 {
    fn set(&mut self, amount: u64) {
        *self = amount;
    }

    fn get(&self) -> Option<u64> {
        Some(*self)
    }
}

impl Amount for usize {
    fn set(&mut self, amount: u64) {
        *self = usize::try_from(amount).unwrap_or(usize::MAX);
    }

    fn get(&self) -> Option<u64> {
        Some(*self as u64)
    }
}

impl Amount for Duration {
    fn set(&mut self, amount: u64) {
        *self = Duration::from_nanos(amount);
    }

    fn get(&self) -> Option<u64> {
        Some(u64::try_from(self.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl Amount for Option<Duration> {
    fn set(&mut self, amount: u64) {
        *self = Some(Duration::from_nanos(amount));
    }

    fn get(&self) -> Option<u64> {
        self.as_ref().and_then(Amount::get)
    }
}

/// Declare all limits at once: the resource, its key, the field, its default, and the amounts that may be set.
macro_rules! limits {
    ($($help:literal
        $resource:ident $key:literal = $field:ident: $type:ty = $default:expr, $unit:ident $least:expr, $most:expr;)*) => {
        words! {
            /// A resource that a call uses up to a limit, by the key of the limit.
            Resource {
                $(#[doc = $help] $resource => $key,)*
            }
        }

        /// The limits of one call and of its run. The operator can set each of them.
        #[derive(Clone, Debug, PartialEq)]
        pub struct Limits {
            $(#[doc = $help] pub $field: $type,)*
        }

        impl Default for Limits {
            fn default() -> Limits {
                Limits { $($field: $default,)* }
            }
        }

        /// All limits, in the order of the reference.
        pub const LIMITS: &[LimitSpec] = &[
            $(LimitSpec {
                resource: Resource::$resource,
                unit: Unit::$unit,
                least: $least,
                most: $most,
                help: $help,
            },)*
        ];

        impl Limits {
            /// Returns the limit of `resource` in its unit, or none when there is no limit.
            pub fn get(&self, resource: Resource) -> Option<u64> {
                match resource {
                    $(Resource::$resource => self.$field.get(),)*
                }
            }

            /// Set the limit of `resource`, in its unit.
            pub fn set(&mut self, resource: Resource, amount: u64) {
                match resource {
                    $(Resource::$resource => self.$field.set(amount),)*
                }
            }
        }
    };
}

limits! {
    "Wall-clock time of the whole call, computing and waiting alike. A package may lower it; only its sidecar raises it."
    Timeout "timeout" = timeout: Duration = Duration::from_secs(5 * 60), Time MILLISECOND_NANOS, YEAR_NANOS;
    "Processor time, checked every 10 ms. By default, only `timeout` bounds it."
    Cpu "cpu" = cpu: Option<Duration> = None, Time MILLISECOND_NANOS, YEAR_NANOS;
    "All linear memories together, and what the engine keeps for the instances, such as globals, in whole pages of 64 KiB."
    Memory "memory" = memory_bytes_max: u64 = 64 << 20, Bytes MEMORY_BYTES_LEAST, u64::MAX;
    "Elements of all tables together."
    TableElements "table_elements" = table_elements_max: u64 = 100_000, Count 0, 100_000_000;
    "The output, and the returned context, each. A larger one fails the call with `invalid_output`."
    Output "output" = output_bytes_max: usize = 1 << 20, Bytes 0, BUFFER_BYTES_MOST;
    "The contexts and outputs of all tasks of one run together, with the context of its schedule: keys, values, and 64 bytes for each key. The result that exceeds it fails the run with `invalid_output`."
    RunContext "run_context" = run_context_bytes_max: usize = 64 << 20, Bytes 0, BUFFER_BYTES_MOST;
    "All log lines together. The rest is dropped and marked."
    Log "log" = log_bytes_max: usize = 256 << 10, Bytes 0, BUFFER_BYTES_MOST;
    "Stdout and stderr as text, each. The rest is dropped and marked; the stream stays open."
    Stdio "stdio" = stdio_bytes_max: usize = 64 << 10, Bytes 0, BUFFER_BYTES_MOST;
    "The bytes that one call between task and host may pass."
    HostCall "host_call" = host_call_bytes_max: usize = 16 << 20, Bytes 1 << 10, BUFFER_BYTES_MOST;
    "Files, streams, requests and other handles of the task at once."
    Handles "handles" = handles_max: usize = 1_000, Count 1, HANDLES_MOST;
    "Random bytes over the whole call."
    Random "random" = random_bytes_max: u64 = 16 << 20, Bytes 0, BUFFER_BYTES_MOST;
    "Files, directories and sockets open at once."
    OpenFiles "open_files" = open_files_max: u64 = 256, Count 0, HANDLES_MOST;
    "HTTP requests and messages for the outbox over the whole call. A redirect is not followed; it needs a request of its own."
    HttpRequests "http_requests" = http_requests_max: u64 = 1_000, Count 0, u32::MAX as u64;
    "The longest wait for the head of a response, and for each part of its body."
    HttpWait "http_wait" = http_wait: Duration = Duration::from_secs(5 * 60), Time MILLISECOND_NANOS, YEAR_NANOS;
    "The body of one HTTP response."
    HttpResponse "http_response" = http_response_bytes_max: u64 = 16 << 20, Bytes 0, BUFFER_BYTES_MOST;
    "All entries of one bucket: keys, values, and 64 bytes for each entry."
    Keyvalue "keyvalue" = keyvalue_bytes_max: u64 = 64 << 20, Bytes 0, 64 << 30;
    "One value in a bucket."
    KeyvalueValue "keyvalue_value" = keyvalue_value_bytes_max: u64 = 1 << 20, Bytes 0, 128 << 20;
    "What the host keeps in memory until the call succeeds: the keys that its bucket session reads or writes, with the written values and 64 bytes for each, and its messages for the outbox."
    Uncommitted "uncommitted" = uncommitted_bytes_max: u64 = 4 << 20, Bytes 0, BUFFER_BYTES_MOST;
}

impl Resource {
    /// Returns the clause that says how to raise this limit.
    pub fn raise(self) -> String {
        format!("raise `limits.{self}` in the package's sidecar file")
    }

    /// Returns what may be set for this limit.
    pub fn spec(self) -> &'static LimitSpec {
        // `limits!` makes `ALL` and `LIMITS` from one list, in one order.
        &LIMITS[self as usize]
    }
}

impl Limits {
    /// Returns how many bytes one host call may pass. The margin lets a slightly oversized result be reported as such.
    pub(crate) fn list_bytes_max(&self) -> usize {
        self.host_call_bytes_max
            .max(self.output_bytes_max.saturating_mul(4))
    }

    /// Returns how much of `resource` was used, or none when it has no limit. Time is in milliseconds.
    pub fn share(&self, resource: Resource, used: u64) -> Option<Share> {
        let limit = self.get(resource)?;
        let limit = match resource.spec().unit {
            Unit::Time => limit / MILLISECOND_NANOS,
            Unit::Bytes | Unit::Count => limit,
        };
        Some(Share {
            resource,
            used,
            limit,
        })
    }
}

/// How much of a resource a call used, and its limit. Time is in milliseconds, other resources in their unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Share {
    pub resource: Resource,
    pub used: u64,
    pub limit: u64,
}

impl Share {
    /// Whether the amounts are milliseconds.
    pub fn is_time(&self) -> bool {
        self.resource.spec().unit == Unit::Time
    }

    /// Whether the amounts are bytes.
    pub fn is_bytes(&self) -> bool {
        self.resource.spec().unit == Unit::Bytes
    }

    /// Whether at least 80 % of the limit was used: a warning is due.
    pub fn is_close(&self) -> bool {
        self.used.saturating_mul(5) >= self.limit.saturating_mul(4) && self.used > 0
    }
}

/// What a call used.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Usage {
    /// From the start of instantiation to the end of the call, with the removal of secrets, in milliseconds.
    pub wall_ms: f64,
    /// Processor time inside the guest or a host call, and that to remove secrets, in milliseconds.
    pub cpu_ms: f64,
    /// The greatest sum of the guest's linear memories, in bytes.
    pub memory_peak_bytes: u64,
    /// Each measured resource of which the call used anything. `host_call`, `handles`, `http_wait` and
    /// `keyvalue_value` are not measured, and `run_context` only in a run of a host.
    pub shares: Vec<Share>,
    /// Each granted directory with a quota that the call made grow, or tried to. Absent without one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub directories: Vec<DirectoryShare>,
}

/// What a directory with a quota held when a call ended, as its quota counts: also what others put there. What was
/// removed may still be included.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct DirectoryShare {
    /// The path under which the task sees the directory.
    pub guest: String,
    /// The files' sizes, in whole blocks of 4 KiB, and at least one block for each entry.
    pub bytes: u64,
    pub max_bytes: Option<u64>,
    /// Files, directories and links.
    pub files: u64,
    pub max_files: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_limit_is_set_and_read_by_its_own_field_and_its_default_may_be_set() {
        for (resource, spec) in Resource::ALL.iter().zip(LIMITS) {
            assert_eq!(resource.spec().resource, *resource);
            let mut limits = Limits::default();
            limits.set(*resource, spec.least + 1);
            assert_eq!(limits.get(*resource), Some(spec.least + 1));
            let changed = Resource::ALL
                .iter()
                .filter(|other| limits.get(**other) != Limits::default().get(**other));
            assert_eq!(changed.collect::<Vec<_>>(), [resource]);
            if let Some(default) = Limits::default().get(*resource) {
                assert!((spec.least..=spec.most).contains(&default), "{resource}");
            }
        }
    }
}
