//! What the calls of all packages may have of this process together: memory, what the host keeps for them, mappings, file
//! descriptors, and the threads that wait for files.
//!
//! Each limit of a call has a bound for all calls here, so that many calls within their limits can't take what the host
//! itself needs. A call waits for what it needs at its start, and is refused what it wants to have more while it runs.

pub(crate) mod fair_shares;
pub(crate) mod footprint;
pub(crate) mod kept;
mod machine;

use std::sync::Arc;

use campanile_model::text::{size_rounded, size_text};

use crate::ledger::fair_shares::{Division, FairShare, FairShares};
use crate::ledger::footprint::Footprint;
use crate::ledger::kept::Kept;
use crate::limits::{Limits, Resource};
pub(crate) use machine::address_space_max;
pub use machine::{memory_of_machine, raise_descriptor_limit};

/// All calls of one package together may have this many times the memory of one, and in any case the bytes.
const CALLS_OF_MEMORY: u64 = 8;
const PACKAGE_BYTES_LEAST: u64 = 256 << 20;

/// What a call needs beside its instances: the stack that it touches, and the host's own state of it.
const CALL_BYTES: u64 = 64 << 10;

/// What the host keeps for an element of a table.
pub(crate) const TABLE_ELEMENT_BYTES: u64 = 8;

/// Beside the memory of all calls, the host keeps a fourth as much for calls and runs.
const KEPT_PART: u64 = 4;

/// A call's stack with its guard page.
const MAPPINGS_OF_STACK: u64 = 2;
/// A memory without the pool: two guards, the initial image, and what is written.
const MAPPINGS_OF_MEMORY: u64 = 4;
/// The allocator may map a table, or so many bytes of instances, apart.
const MAPPINGS_OF_TABLE: u64 = 1;
const BYTES_PER_MAPPING: u64 = 64 << 10;

/// Half of the mappings are the host's own: for threads, and for the code of up to 4,096 packages.
const MAPPINGS_PART: u64 = 2;
/// The host's own descriptors: half of all, and no more than these. Its API alone may have 2,000 connections.
const OWN_DESCRIPTORS_MAX: u64 = 4_096;

/// Threads for what blocks: most for files, and the others for walks of directories with quotas and for the host's own work, such as
/// the removal of secrets.
pub(crate) const BLOCKING_THREADS: usize = 64;
const FILE_THREADS: u64 = 48;

/// The bounds of all calls together. One for a sandbox.
pub(crate) struct Ledger {
    pub(crate) memory: Arc<FairShares>,
    /// What the host itself keeps for calls and runs. It's apart from `memory`, for which a call waits: a run that keeps results
    /// may be waiting to begin its next call.
    pub(crate) kept: Arc<FairShares>,
    pub(crate) mappings: Arc<FairShares>,
    pub(crate) descriptors: Arc<FairShares>,
    /// Threads that wait for files. An operation waits for its own, and begins no other one meanwhile.
    pub(crate) file_threads: Arc<FairShares>,
}

/// What a call has of the ledger.
pub(crate) struct Charge {
    memory: FairShare,
    _mappings: FairShare,
    /// The most memory of all calls of the package.
    memory_most: u64,
    /// What was taken for the least size of memories and tables, and not used yet.
    prepaid: u64,
    memory_total: u64,
    pub(crate) footprint: Footprint,
}

impl Ledger {
    /// All calls may have `memory_bytes` together, and what this machine gives of the rest.
    pub(crate) fn of_machine(memory_bytes: u64) -> Ledger {
        let descriptors = machine::descriptors_max();
        let own = (descriptors / 2).min(OWN_DESCRIPTORS_MAX);
        Ledger::new(
            memory_bytes,
            machine::mappings_max() / MAPPINGS_PART,
            descriptors - own,
        )
    }

    /// The ledger of what the host itself does for packages, from its own reserve.
    pub(crate) fn unbounded() -> Ledger {
        let plenty = u64::MAX / 4;
        Ledger::new(plenty, plenty, plenty)
    }

    pub(crate) fn new(memory_bytes: u64, mappings: u64, descriptors: u64) -> Ledger {
        let shares = |total| FairShares::new(total, Division::with_spare(total));
        Ledger {
            memory: shares(memory_bytes),
            kept: shares(memory_bytes / KEPT_PART),
            mappings: shares(mappings),
            descriptors: shares(descriptors),
            file_threads: FairShares::new(FILE_THREADS, Division::QUARTERS),
        }
    }

    /// Return what the host keeps for a call or run of `package`, which is nothing yet.
    pub(crate) fn nothing_kept(&self, package: &str) -> Kept {
        Kept::new(&self.kept, package)
    }

    /// Return why `package` gets no descriptor.
    pub(crate) fn no_descriptor(&self, package: &str) -> String {
        format!(
            "all calls of this package have {} files and connections open, and no more of the {} that packages share can be had now; close some, let fewer calls run at once, or raise the limit of open files of the host's process (`ulimit -n`, `LimitNOFILE` of its unit)",
            self.descriptors.held(package),
            self.descriptors.total()
        )
    }

    /// Wait for what a call of `package` needs at its start.
    ///
    /// # Errors
    ///
    /// A sentence, when it needs more than the calls of one package can ever have.
    pub(crate) async fn admit(
        &self,
        package: &str,
        footprint: Footprint,
        limits: &Limits,
    ) -> Result<Charge, String> {
        if footprint.instance_bytes > limits.memory_bytes_max {
            return Err(format!(
                "the instances of this package take {} without any memory, and its limit is {}; {}",
                size_rounded(footprint.instance_bytes),
                size_text(limits.memory_bytes_max),
                Resource::Memory.raise()
            ));
        }
        let memories = footprint.memory_bytes.min(limits.memory_bytes_max);
        let tables = footprint.table_elements.min(limits.table_elements_max);
        let prepaid = memories.saturating_add(tables.saturating_mul(TABLE_ELEMENT_BYTES));
        let fixed = footprint.instance_bytes.saturating_add(CALL_BYTES);
        let bytes = prepaid.saturating_add(fixed);
        let memory_most = limits.memory_bytes_max.saturating_mul(CALLS_OF_MEMORY);
        let memory_most = memory_most.max(PACKAGE_BYTES_LEAST).max(bytes);
        let mappings = mappings_of(&footprint);
        let no_mappings = || {
            format!(
                "a call needs {mappings} mappings of memory, and all calls of one package may have {}; build it with fewer memories, tables and instances, or raise `vm.max_map_count` of the machine",
                self.mappings.most_of_one()
            )
        };
        let held = self.mappings.acquire(package, mappings, u64::MAX).await;
        let _mappings = held.ok_or_else(no_mappings)?;
        let no_memory = || {
            format!(
                "a call needs {} of memory at its start, and all calls of one package may have {} of the {} for all calls; raise `memory_total` under `[sandbox]`",
                size_rounded(bytes),
                size_rounded(self.memory.most_of_one()),
                size_rounded(self.memory.total())
            )
        };
        let held = self.memory.acquire(package, bytes, memory_most).await;
        Ok(Charge {
            memory: held.ok_or_else(no_memory)?,
            _mappings,
            memory_most,
            prepaid,
            memory_total: self.memory.total(),
            footprint,
        })
    }
}

fn mappings_of(footprint: &Footprint) -> u64 {
    MAPPINGS_OF_STACK
        .saturating_add(footprint.memories.saturating_mul(MAPPINGS_OF_MEMORY))
        .saturating_add(footprint.tables.saturating_mul(MAPPINGS_OF_TABLE))
        .saturating_add(footprint.instance_bytes.div_ceil(BYTES_PER_MAPPING))
}

impl Charge {
    /// Take `bytes` more for a memory or a table.
    ///
    /// # Errors
    ///
    /// A sentence, when the package can't have that now.
    pub(crate) fn grow(&mut self, bytes: u64) -> Result<(), String> {
        let more = bytes.saturating_sub(self.prepaid);
        if more == 0 || self.memory.try_grow(more, self.memory_most) {
            self.prepaid = self.prepaid.saturating_sub(bytes);
            return Ok(());
        }
        Err(format!(
            "the calls of this package have {} of memory and can't have {} more now: its share of the host's memory, {} for all calls, or {CALLS_OF_MEMORY} times its `limits.memory` is used up; let fewer run at once, or raise `memory_total` under `[sandbox]`",
            size_rounded(self.memory.of_package()),
            size_rounded(more),
            size_rounded(self.memory_total),
        ))
    }

    /// Undo the last growth, of `bytes`.
    pub(crate) fn shrink(&mut self, bytes: u64) {
        self.memory.give_back(bytes);
    }
}
