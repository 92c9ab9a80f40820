//! The bounds of a call, and how much of them it used.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use campanile_model::words;

/// The bounds of one call. Every bound can be set by the operator.
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    /// Wall-clock time for the whole call, CPU loops and blocked host calls alike.
    pub timeout: Duration,
    /// Time on a processor, looked at every 10 ms; none is as much as the time-out lets.
    pub cpu: Option<Duration>,
    /// All linear memories together.
    pub memory_bytes_max: u64,
    /// Elements of all tables together.
    pub table_elements_max: u64,
    /// Of stdout and of stderr as they are kept on the record, each; what is beyond is dropped and marked, the stream
    /// stays open. What a command prints may be longer when it is its output: that has a limit of its own.
    pub stdio_bytes_max: usize,
    /// Of all log lines together; what is beyond is dropped and marked.
    pub log_bytes_max: usize,
    /// Of the output and of the returned context, each; more is `invalid_output`.
    pub output_bytes_max: usize,
    /// What crosses between guest and host in one call of either.
    pub host_call_bytes_max: usize,
    /// Files, streams, requests and the like that the guest holds at once.
    pub handles_max: usize,
    /// Random bytes over the whole call.
    pub random_bytes_max: u64,
    /// Files and directories open at once.
    pub open_files_max: u64,
    /// Over the whole call. The host follows no redirects: where one leads is asked for by a request of its own.
    pub http_requests_max: u64,
    /// For the head of a response, and between two parts of its body.
    pub http_wait: Duration,
    /// Of one HTTP response body.
    pub http_response_bytes_max: u64,
    /// Of all entries of one bucket.
    pub keyvalue_bytes_max: u64,
    /// Of one value in a bucket.
    pub keyvalue_value_bytes_max: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            timeout: Duration::from_secs(5 * 60),
            cpu: None,
            memory_bytes_max: 64 << 20,
            table_elements_max: 100_000,
            stdio_bytes_max: 64 << 10,
            log_bytes_max: 256 << 10,
            output_bytes_max: 1 << 20,
            host_call_bytes_max: 16 << 20,
            handles_max: 1_000,
            random_bytes_max: 16 << 20,
            open_files_max: 256,
            http_requests_max: 1_000,
            http_wait: Duration::from_secs(5 * 60),
            http_response_bytes_max: 16 << 20,
            keyvalue_bytes_max: 64 << 20,
            keyvalue_value_bytes_max: 1 << 20,
        }
    }
}

words! {
    /// What a call uses up to a limit, by the name of the limit.
    Resource {
        /// Wall-clock time, in milliseconds.
        Timeout => "timeout",
        /// Time on a processor, in milliseconds.
        Cpu => "cpu",
        /// The greatest sum of the linear memories, in bytes.
        Memory => "memory",
        /// The greatest sum of the tables' elements.
        TableElements => "table_elements",
        /// Of the result or of the returned context, whichever is larger, in bytes.
        Output => "output",
        /// Of all log lines, in bytes.
        Log => "log",
        /// Of stdout or of stderr, whichever is larger, in bytes.
        Stdio => "stdio",
        /// Random bytes.
        Random => "random",
        /// The most files and directories open at once.
        OpenFiles => "open_files",
        /// HTTP requests.
        HttpRequests => "http_requests",
        /// The largest body of an HTTP response, in bytes.
        HttpResponse => "http_response",
        /// The largest that a bucket was after a change, in bytes.
        Keyvalue => "keyvalue",
        /// One value in a bucket, in bytes. How much is used is not told.
        KeyvalueValue => "keyvalue_value",
        /// What crosses between guest and host in one call, in bytes. How much is used is not told.
        HostCall => "host_call",
        /// What the guest holds of the host at once. How much is used is not told.
        Handles => "handles",
        /// Waiting for a server, in milliseconds. How much is used is not told.
        HttpWait => "http_wait",
    }
}

impl Resource {
    /// What to do about a limit that is too narrow, as a clause.
    pub fn raise(self) -> String {
        format!("raise `{self}` among the limits of the package's sidecar file")
    }
}

/// How much of a resource a call used, and how much it may; in the unit of [`Resource`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Share {
    pub resource: Resource,
    pub used: u64,
    pub limit: u64,
}

impl Share {
    /// Whether at least 80 % of the limit was used: time to raise it, or to use less.
    pub fn is_close(&self) -> bool {
        self.used.saturating_mul(5) >= self.limit.saturating_mul(4) && self.used > 0
    }
}

/// What a call used.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Usage {
    /// From the start of instantiation to the end of the call, in milliseconds.
    pub wall_ms: f64,
    /// Of which on a processor inside the guest or a host call, in milliseconds.
    pub cpu_ms: f64,
    /// The greatest sum of the guest's linear memories, in bytes.
    pub memory_peak_bytes: u64,
    /// Of each resource that has a limit and of which anything was used.
    pub shares: Vec<Share>,
}
