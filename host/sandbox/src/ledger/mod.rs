//! Process-wide budgets for all calls together: guest memory, buffers on their behalf, memory mappings, file descriptors and
//! threads for blocking file operations.
//!
//! Every per-call limit has a total here. Otherwise many calls, each within its own limits, could exhaust what the host itself
//! needs. A call waits for its initial needs, then asks for more as it runs and may be refused.

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

/// A package's calls may share this multiple of one call's memory limit, and at least this many bytes.
const CALLS_OF_MEMORY: u64 = 8;
const PACKAGE_BYTES_LEAST: u64 = 256 << 20;

/// Overhead of a call besides its instances: touched stack and host-side state.
const CALL_BYTES: u64 = 64 << 10;

/// Size of a table element in the host.
pub(crate) const TABLE_ELEMENT_BYTES: u64 = 8;

/// The budget for buffers is this fraction of the budget for guest memory, on top of it.
const KEPT_PART: u64 = 4;

/// A stack and its guard page.
const MAPPINGS_OF_STACK: u64 = 2;
/// A memory allocated outside the pool: two guards, the initial image and the written part.
const MAPPINGS_OF_MEMORY: u64 = 4;
/// The allocator may map a table, or this many bytes of instances, separately.
const MAPPINGS_OF_TABLE: u64 = 1;
const BYTES_PER_MAPPING: u64 = 64 << 10;

/// The host reserves half the mappings for its threads and the code of up to 4,096 packages.
const MAPPINGS_PART: u64 = 2;
/// The host reserves half the descriptors, up to this many. Its API alone may have 2,000 connections.
const OWN_DESCRIPTORS_MAX: u64 = 4_096;

/// Threads for blocking work. Most serve file operations; the rest measure directories with quotas and do the host's own work, such as
/// redacting secrets.
pub(crate) const BLOCKING_THREADS: usize = 64;
const FILE_THREADS: u64 = 48;

/// Budgets for all calls of one sandbox.
pub(crate) struct Ledger {
    pub(crate) memory: Arc<FairShares>,
    /// Buffers held by the host on behalf of calls and runs. Separate from `memory` to rule out deadlock: a run holding results may
    /// be waiting for the memory of its next call.
    pub(crate) kept: Arc<FairShares>,
    pub(crate) mappings: Arc<FairShares>,
    pub(crate) descriptors: Arc<FairShares>,
    /// Threads blocked on files. An operation needs just one, so waiting for it can't deadlock.
    pub(crate) file_threads: Arc<FairShares>,
}

/// One call's charges.
pub(crate) struct Charge {
    memory: FairShare,
    _mappings: FairShare,
    /// Memory limit for the package's calls together.
    memory_most: u64,
    /// Charged up front for minimum sizes of memories and tables, not yet allocated.
    prepaid: u64,
    memory_total: u64,
    pub(crate) footprint: Footprint,
}

impl Ledger {
    /// Budgets `memory_bytes` for guest memory, taking the other budgets from this machine's limits.
    pub(crate) fn of_machine(memory_bytes: u64) -> Ledger {
        let descriptors = machine::descriptors_max();
        let own = (descriptors / 2).min(OWN_DESCRIPTORS_MAX);
        Ledger::new(
            memory_bytes,
            machine::mappings_max() / MAPPINGS_PART,
            descriptors - own,
        )
    }

    /// Effectively unlimited, for work the host does on packages using its own reserve.
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

    /// Returns an empty buffer charge for a call or run of `package`.
    pub(crate) fn nothing_kept(&self, package: &str) -> Kept {
        Kept::new(&self.kept, package)
    }

    /// Explains why `package` gets no descriptor.
    pub(crate) fn no_descriptor(&self, package: &str) -> String {
        format!(
            "all calls of this package have {} files and connections open, and no more of the {} that packages share can be had now; close some, let fewer calls run at once, or raise the limit of open files of the host's process (`ulimit -n`, `LimitNOFILE` of its unit)",
            self.descriptors.held(package),
            self.descriptors.total()
        )
    }

    /// Waits until a call of `package` can start.
    ///
    /// # Errors
    ///
    /// Returns a sentence if it needs more than one package can ever have.
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
    /// Charges `bytes` more for a growing memory or table.
    ///
    /// # Errors
    ///
    /// Returns a sentence if the package can't have them right now.
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

    /// Refunds `bytes` after failing to grow.
    pub(crate) fn shrink(&mut self, bytes: u64) {
        self.memory.give_back(bytes);
    }
}
