//! The restrictions of the child process, which the kernel enforces.
//!
//! * Resource limits: memory, processor time, the size of a file, open files, no core dump.
//! * Landlock, where the kernel has it: of the file system, only the folder of compiled code; no network.
//! * seccomp, where the kernel has it: no other program, no new process, no socket, no view of other processes.
//!
//! Calls of the kernel are denied by a list rather than allowed by one, because libraries and kernels change which
//! calls they use. A denied call returns an error.

use std::collections::BTreeMap;
use std::path::Path;

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, CompatLevel, Compatible as _, PathBeneath, PathFd,
    Ruleset, RulesetAttr as _, RulesetCreatedAttr as _, RulesetStatus,
};
use rustix::process::{Resource, Rlimit, nice, setrlimit};
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule, TargetArch,
};

use super::exchange::ChildSettings;

/// The largest file that the process may write: compiled code, in the cache.
const FILE_BYTES_MAX: u64 = 1 << 30;
const OPEN_FILES_MAX: u64 = 64;
/// The niceness of the process: the host and its tasks get the processor first.
const NICENESS: i32 = 10;

/// Calls of the kernel that reach beyond the process.
const DENIED: [i64; 29] = [
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_socket,
    libc::SYS_connect,
    libc::SYS_bind,
    libc::SYS_listen,
    libc::SYS_accept4,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_kill,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_send_signal,
    libc::SYS_pidfd_getfd,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_chroot,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_shmget,
    libc::SYS_init_module,
    libc::SYS_open_by_handle_at,
];

/// Confine this process, for good. It must have one thread.
///
/// # Errors
/// When the kernel refuses a limit. A kernel without Landlock or seccomp is not an error: the other limits still apply.
pub(super) fn confine(settings: &ChildSettings) -> Result<(), String> {
    limit(settings)?;
    // The priority is a matter of speed, not of safety.
    let _ = nice(NICENESS);
    restrict(&settings.cache_dir)?;
    Ok(())
}

/// What a load is confined by, besides limits of resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Confinement {
    /// Landlock: no file but the folder of compiled code, and no network.
    pub landlock: bool,
    /// seccomp: no other program, no new process, no socket.
    pub seccomp: bool,
}

/// Returns what the kernel of this machine confines a load by.
///
/// # Errors
/// When the kernel refuses a restriction: then no file can be loaded.
pub fn confinement() -> Result<Confinement, String> {
    // A restriction holds for the thread that asks for it, so a thread that ends can try them.
    let tried = std::thread::spawn(|| restrict(&std::env::temp_dir()));
    tried
        .join()
        .unwrap_or_else(|_| Err("the trial panicked".to_owned()))
}

/// Restrict this thread, and those that it begins, to the folder of compiled code, as far as the kernel can.
fn restrict(cache_dir: &Path) -> Result<Confinement, String> {
    let landlock = restrict_files(cache_dir).map_err(|error| format!("Landlock: {error}"))?;
    let filters = filters().map_err(|error| format!("seccomp: {error}"))?;
    let mut seccomp = !filters.is_empty();
    for filter in filters {
        match seccompiler::apply_filter(&filter) {
            Ok(()) => {}
            // A kernel without seccomp.
            Err(seccompiler::Error::Prctl(_) | seccompiler::Error::Seccomp(_)) => {
                seccomp = false;
                break;
            }
            Err(error) => return Err(format!("seccomp: {error}")),
        }
    }
    Ok(Confinement { landlock, seccomp })
}

fn limit(settings: &ChildSettings) -> Result<(), String> {
    let limits = [
        // Reserved addresses do not count here, only memory that can be written.
        (Resource::Data, settings.limits.memory_bytes),
        (Resource::Cpu, settings.limits.cpu_seconds()),
        (Resource::Fsize, FILE_BYTES_MAX),
        (Resource::Nofile, OPEN_FILES_MAX),
        (Resource::Core, 0),
    ];
    for (resource, most) in limits {
        let limit = Rlimit {
            current: Some(most),
            maximum: Some(most),
        };
        setrlimit(resource, limit).map_err(|error| format!("{resource:?}: {error}"))?;
    }
    Ok(())
}

/// Leave the thread only the folder of compiled code. Return whether the kernel does so.
fn restrict_files(cache_dir: &Path) -> Result<bool, Box<dyn std::error::Error>> {
    let abi = ABI::V5;
    let folder = PathFd::new(cache_dir)?;
    let restricted = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(abi))?
        .handle_access(AccessNet::from_all(abi))?
        .create()?
        .add_rule(PathBeneath::new(folder, AccessFs::from_all(abi)))?
        .restrict_self()?;
    Ok(restricted.ruleset != RulesetStatus::NotEnforced)
}

/// Returns the filters for seccomp; none on a processor that the crate does not know.
fn filters() -> Result<Vec<BpfProgram>, BackendError> {
    let Ok(arch) = TargetArch::try_from(std::env::consts::ARCH) else {
        return Ok(Vec::new());
    };
    let program = |rules: BTreeMap<i64, Vec<SeccompRule>>, error: i32| {
        let deny = SeccompAction::Errno(error.unsigned_abs());
        SeccompFilter::new(rules, SeccompAction::Allow, deny, arch)?.try_into()
    };
    let mut denied: BTreeMap<i64, Vec<SeccompRule>> =
        DENIED.into_iter().map(|call| (call, Vec::new())).collect();
    let no_thread = SeccompCmpOp::MaskedEq(u64::from(libc::CLONE_THREAD.unsigned_abs()));
    let new_process = SeccompCondition::new(0, SeccompCmpArgLen::Qword, no_thread, 0)?;
    denied.insert(libc::SYS_clone, vec![SeccompRule::new(vec![new_process])?]);
    #[cfg(target_arch = "x86_64")]
    denied.extend([libc::SYS_fork, libc::SYS_vfork].map(|call| (call, Vec::new())));
    // The flags of clone3 lie in memory, where no filter sees them. The C library then uses clone.
    let clone3 = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    Ok(vec![
        program(denied, libc::EPERM)?,
        program(clone3, libc::ENOSYS)?,
    ])
}
