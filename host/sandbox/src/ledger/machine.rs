//! How much this process may use: memory, mappings and file descriptors.

use std::fs;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The kernel's default, used where the system doesn't say.
const MAPPINGS_DEFAULT: u64 = 65_530;
/// Assumed where the system doesn't say how much memory it has, or doesn't limit descriptors.
const MEMORY_DEFAULT: u64 = 4 << 30;
const DESCRIPTORS_DEFAULT: u64 = 1 << 20;
/// The soft limit is never raised beyond this, since child processes inherit it and some programs loop over all possible descriptors.
const DESCRIPTORS_RAISED_TO: u64 = 1 << 20;

/// Memory limits set by control groups, versions 2 and 1.
const MEMORY_FILES: [&str; 2] = [
    "/sys/fs/cgroup/memory.max",
    "/sys/fs/cgroup/memory/memory.limit_in_bytes",
];

/// Returns how many mappings a process may have.
pub(super) fn mappings_max() -> u64 {
    number_in("/proc/sys/vm/max_map_count").unwrap_or(MAPPINGS_DEFAULT)
}

/// Returns how many descriptors this process may currently have.
pub(super) fn descriptors_max() -> u64 {
    getrlimit(Resource::Nofile)
        .current
        .unwrap_or(DESCRIPTORS_DEFAULT)
}

/// Raises the descriptor limit of this process as far as the system allows, up to about a million.
pub fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.unwrap_or(u64::MAX).min(DESCRIPTORS_RAISED_TO);
    if limit.current.is_some_and(|current| current < wanted) {
        let raised = Rlimit {
            current: Some(wanted),
            ..limit
        };
        // If this fails, the host makes do with what it has.
        let _ = setrlimit(Resource::Nofile, raised);
    }
}

/// Returns the memory available to this process, in bytes: the smallest of the machine's, its control group's limit and its address space
/// limit.
pub fn memory_of_machine() -> u64 {
    let of_group = MEMORY_FILES.iter().filter_map(|file| number_in(file));
    let machine = machine_bytes().into_iter();
    let bounds = of_group.chain(address_space_max()).chain(machine);
    bounds.min().unwrap_or(MEMORY_DEFAULT)
}

/// Returns the address space limit of this process in bytes, if there's one.
pub(crate) fn address_space_max() -> Option<u64> {
    getrlimit(Resource::As).current
}

#[cfg(target_os = "linux")]
#[expect(
    clippy::useless_conversion,
    reason = "the number has fewer bits on other processors"
)]
fn machine_bytes() -> Option<u64> {
    let machine = rustix::system::sysinfo();
    let unit = u64::from(machine.mem_unit.max(1));
    Some(u64::from(machine.totalram).saturating_mul(unit))
}

#[cfg(not(target_os = "linux"))]
fn machine_bytes() -> Option<u64> {
    None
}

fn number_in(file: &str) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}
