//! What the calls of each package used on this host since its start.
//!
//! A package is a label. The names are those of files in the plugin folder, and their number is bounded.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use campanile_control::lock::lock;
use campanile_sandbox::{Resource, Usage};

/// So many packages have metrics of their own. The others are summed under an empty name.
const PACKAGES_MAX: usize = 256;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PackageLabel {
    package: String,
}

/// The counters of all packages.
#[derive(Default)]
pub(super) struct PackageMetrics {
    calls: Family<PackageLabel, Counter>,
    cpu_seconds: Family<PackageLabel, Counter<f64, AtomicU64>>,
    memory_peak_bytes: Family<PackageLabel, Gauge>,
    record_bytes: Family<PackageLabel, Counter>,
    http_requests: Family<PackageLabel, Counter>,
    of_each: Mutex<HashMap<String, CountersOfPackage>>,
}

struct CountersOfPackage {
    calls: Counter,
    cpu_seconds: Counter<f64, AtomicU64>,
    memory_peak_bytes: Gauge,
    record_bytes: Counter,
    http_requests: Counter,
}

impl PackageMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        register! { registry;
            "package_calls", "Calls of the tasks of a package that ended on this host" => self.calls.clone();
            "package_cpu_seconds", "Processor time of these calls" => self.cpu_seconds.clone();
            "package_memory_peak_bytes", "The greatest memory that one of these calls used" => self.memory_peak_bytes.clone();
            "package_record_bytes", "What these calls gave to the record: outputs, logs, messages, and what they printed"
                => self.record_bytes.clone();
            "package_http_requests", "HTTP requests of these calls, and their messages for the outbox"
                => self.http_requests.clone();
        }
    }

    /// Count a call that ended.
    pub(super) fn count(&self, package: &str, usage: &Usage, record_bytes: u64) {
        let mut of_each = lock(&self.of_each);
        // The empty name does not count among them.
        let package = if of_each.contains_key(package) || of_each.len() < PACKAGES_MAX {
            package
        } else {
            ""
        };
        if !of_each.contains_key(package) {
            of_each.insert(package.to_owned(), self.counters_of(package));
        }
        let Some(counters) = of_each.get(package) else {
            return;
        };
        counters.calls.inc();
        counters.cpu_seconds.inc_by(usage.cpu_ms / 1e3);
        let peak = i64::try_from(usage.memory_peak_bytes).unwrap_or(i64::MAX);
        counters
            .memory_peak_bytes
            .set(peak.max(counters.memory_peak_bytes.get()));
        counters.record_bytes.inc_by(record_bytes);
        let mut shares = usage.shares.iter();
        let requests = shares.find(|share| share.resource == Resource::HttpRequests);
        counters
            .http_requests
            .inc_by(requests.map_or(0, |share| share.used));
    }

    fn counters_of(&self, package: &str) -> CountersOfPackage {
        let label = PackageLabel {
            package: package.to_owned(),
        };
        CountersOfPackage {
            calls: self.calls.get_or_create_owned(&label),
            cpu_seconds: self.cpu_seconds.get_or_create_owned(&label),
            memory_peak_bytes: self.memory_peak_bytes.get_or_create_owned(&label),
            record_bytes: self.record_bytes.get_or_create_owned(&label),
            http_requests: self.http_requests.get_or_create_owned(&label),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_beyond_a_number_are_summed_under_an_empty_name() {
        let metrics = PackageMetrics::default();
        let usage = Usage {
            cpu_ms: 250.0,
            memory_peak_bytes: 7,
            ..Usage::default()
        };
        for package in 0..PACKAGES_MAX + 3 {
            metrics.count(&format!("package-{package}"), &usage, 10);
        }
        // A known package keeps its own metrics.
        metrics.count("package-0", &usage, 10);
        let of = |package: &str| {
            let label = PackageLabel {
                package: package.to_owned(),
            };
            let calls = metrics.calls.get_or_create(&label).get();
            let seconds = metrics.cpu_seconds.get_or_create(&label).get();
            let bytes = metrics.record_bytes.get_or_create(&label).get();
            let peak = metrics.memory_peak_bytes.get_or_create(&label).get();
            (calls, seconds, bytes, peak)
        };
        assert_eq!(of("package-0"), (2, 0.5, 20, 7));
        assert_eq!(of("package-255"), (1, 0.25, 10, 7));
        assert_eq!(of(""), (3, 0.75, 30, 7));
        assert_eq!(lock(&metrics.of_each).len(), PACKAGES_MAX + 1);
    }
}
