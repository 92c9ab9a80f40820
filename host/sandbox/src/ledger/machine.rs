//! What the machine gives this process: memory, mappings and file descriptors.

use std::fs;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The kernel's default, for systems that don't say.
const MAPPINGS_DEFAULT: u64 = 65_530;
/// Taken where a system says neither how much memory there is nor that a process may have any number of descriptors.
const MEMORY_DEFAULT: u64 = 4 << 30;
const DESCRIPTORS_DEFAULT: u64 = 1 << 20;
/// The soft limit isn't raised beyond this: some programs, which inherit it, walk over all possible descriptors.
const DESCRIPTORS_RAISED_TO: u64 = 1 << 20;

/// The kernel bounds the memory of a process in these files, of control groups version 2 and 1.
const MEMORY_FILES: [&str; 2] = [
    "/sys/fs/cgroup/memory.max",
    "/sys/fs/cgroup/memory/memory.limit_in_bytes",
];

/// Return the most mappings of a process.
pub(super) fn mappings_max() -> u64 {
    number_in("/proc/sys/vm/max_map_count").unwrap_or(MAPPINGS_DEFAULT)
}

/// Return the most descriptors that this process may have now.
pub(super) fn descriptors_max() -> u64 {
    getrlimit(Resource::Nofile)
        .current
        .unwrap_or(DESCRIPTORS_DEFAULT)
}

/// Raise the most descriptors of this process as far as the system allows.
pub fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.unwrap_or(u64::MAX).min(DESCRIPTORS_RAISED_TO);
    if limit.current.is_some_and(|current| current < wanted) {
        let raised = Rlimit {
            current: Some(wanted),
            ..limit
        };
        // Where the system refuses, the host shares out what it has.
        let _ = setrlimit(Resource::Nofile, raised);
    }
}

/// Return the memory that this process may use: that of the machine or of its control group.
pub fn memory_of_machine() -> u64 {
    let of_group = MEMORY_FILES.iter().filter_map(|file| number_in(file));
    let machine = machine_bytes().into_iter();
    let bounds = of_group.chain(address_space_max()).chain(machine);
    bounds.min().unwrap_or(MEMORY_DEFAULT)
}

/// Return the most address space of this process, if that is limited.
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
