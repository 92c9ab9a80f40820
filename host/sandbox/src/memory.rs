//! Limiting linear memories, tables and instances.

use wasmtime::ResourceLimiter;

use crate::ledger::{Charge, TABLE_ELEMENT_BYTES};
use crate::limits::{Limits, MEMORY_BYTES_LEAST, Resource};

/// Allowance for the engine's own instances connecting components: a multiple of the package's, plus a few.
const INSTANCES_FACTOR: u64 = 2;
const INSTANCES_MORE: u64 = 8;

/// Counts the linear memories, tables and instances of a guest, refusing to grow them beyond the call's limits or the package's share of
/// the host's memory.
pub(crate) struct MemoryMeter {
    memory: Growth,
    tables: Growth,
    charge: Charge,
    /// Why the host refused memory within the call's limits.
    refused_by_host: Option<String>,
}

#[derive(Default)]
struct Growth {
    used: u64,
    peak: u64,
    max: u64,
    /// The last growth that was allowed. It is undone when it fails after all.
    last: u64,
    refused: Option<u64>,
}

impl MemoryMeter {
    /// Starts counting for a call. Instances count as memory in whole pages, rounding down, which makes ordinary ones of a few kilobytes
    /// free.
    pub(crate) fn new(limits: &Limits, charge: Charge) -> MemoryMeter {
        let growth = |max| Growth {
            max,
            ..Growth::default()
        };
        let instances = charge.footprint.instance_bytes / MEMORY_BYTES_LEAST * MEMORY_BYTES_LEAST;
        let mut memory = growth(limits.memory_bytes_max);
        memory.grow(instances);
        MemoryMeter {
            memory,
            tables: growth(limits.table_elements_max),
            charge,
            refused_by_host: None,
        }
    }

    /// Returns the peak of linear memories and instances together, in bytes.
    pub(crate) fn memory_peak_bytes(&self) -> u64 {
        self.memory.peak
    }

    /// Returns the greatest sum of the elements of the tables so far.
    pub(crate) fn table_elements_peak(&self) -> u64 {
        self.tables.peak
    }

    /// Charges `bytes` to the ledger, keeping the reason if that's refused. Returns whether it succeeded.
    fn take(&mut self, bytes: u64) -> bool {
        let taken = self.charge.grow(bytes);
        taken
            .map_err(|why| self.refused_by_host = Some(why))
            .is_ok()
    }

    /// Returns the sentence that says which growth was refused, if any was.
    pub(crate) fn refusal(&self) -> Option<String> {
        if let Some(why) = &self.refused_by_host {
            return Some(why.clone());
        }
        if let Some(wanted) = self.memory.refused {
            return Some(format!(
                "the task wanted {} of memory and its limit is {}; {}, or use less",
                size(wanted),
                size(self.memory.max),
                Resource::Memory.raise(),
            ));
        }
        self.tables.refused.map(|wanted| {
            format!(
                "the task wanted tables of {wanted} elements and its limit is {}; {}, or use less",
                self.tables.max,
                Resource::TableElements.raise(),
            )
        })
    }
}

fn size(bytes: u64) -> bytesize::Display {
    bytesize::ByteSize(bytes).display().iec()
}

impl Growth {
    fn grow(&mut self, more: u64) -> bool {
        let wanted = self.used.saturating_add(more);
        if wanted > self.max {
            self.refused = Some(wanted);
            self.last = 0;
            return false;
        }
        self.used = wanted;
        self.peak = self.peak.max(wanted);
        self.last = more;
        true
    }

    /// Undoes the last growth, returning its size.
    fn undo(&mut self) -> u64 {
        let last = std::mem::take(&mut self.last);
        self.used -= last;
        last
    }
}

impl ResourceLimiter for MemoryMeter {
    fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        _: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let more = desired.saturating_sub(current) as u64;
        if !self.memory.grow(more) {
            return Ok(false);
        }
        let taken = self.take(more);
        if !taken {
            self.memory.undo();
        }
        Ok(taken)
    }

    fn memory_grow_failed(&mut self, _: wasmtime::Error) -> wasmtime::Result<()> {
        let bytes = self.memory.undo();
        self.charge.shrink(bytes);
        Ok(())
    }

    fn table_growing(
        &mut self,
        current: usize,
        desired: usize,
        _: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let more = desired.saturating_sub(current) as u64;
        if !self.tables.grow(more) {
            return Ok(false);
        }
        let taken = self.take(more.saturating_mul(TABLE_ELEMENT_BYTES));
        if !taken {
            self.tables.undo();
        }
        Ok(taken)
    }

    fn table_grow_failed(&mut self, _: wasmtime::Error) -> wasmtime::Result<()> {
        let elements = self.tables.undo();
        self.charge
            .shrink(elements.saturating_mul(TABLE_ELEMENT_BYTES));
        Ok(())
    }

    // Counted when loading the package. The engine asks just once, before instantiating.

    fn instances(&self) -> usize {
        let counted = self.charge.footprint.instances;
        whole(
            counted
                .saturating_mul(INSTANCES_FACTOR)
                .saturating_add(INSTANCES_MORE),
        )
    }

    fn tables(&self) -> usize {
        whole(self.charge.footprint.tables)
    }

    fn memories(&self) -> usize {
        whole(self.charge.footprint.memories)
    }
}

fn whole(count: u64) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;
    use crate::ledger::Ledger;
    use crate::ledger::footprint::Footprint;

    fn meter(memory_bytes_max: u64) -> MemoryMeter {
        let limits = Limits {
            memory_bytes_max,
            ..Limits::default()
        };
        MemoryMeter::new(&limits, charge(&limits, 1 << 20))
    }

    fn charge(limits: &Limits, total: u64) -> Charge {
        let ledger = Ledger::new(total, 1_000, 1_000);
        let admitted = pin!(ledger.admit("package", Footprint::default(), limits));
        match admitted.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(charge) => charge.unwrap(),
            Poll::Pending => panic!("it waits"),
        }
    }

    #[test]
    fn memory_that_the_host_has_no_more_is_refused_and_said() {
        let limits = Limits::default();
        let mut meter = MemoryMeter::new(&limits, charge(&limits, 1 << 20));
        assert!(meter.memory_growing(0, 400 << 10, None).unwrap());
        assert!(!meter.memory_growing(400 << 10, 900 << 10, None).unwrap());
        let refusal = meter.refusal().unwrap();
        assert!(
            refusal.contains("can't have 500.0 KiB more now"),
            "{refusal}"
        );
        assert!(refusal.contains("raise `memory_total`"), "{refusal}");
        assert_eq!(meter.memory.used, 400 << 10);
        // Tables are charged to the same ledger.
        assert!(!meter.table_growing(0, 60_000, None).unwrap());
        assert!(meter.table_growing(0, 10_000, None).unwrap());
    }

    #[test]
    fn memories_are_counted_together() {
        let mut meter = meter(300);
        assert!(meter.memory_growing(0, 100, None).unwrap());
        assert!(meter.memory_growing(0, 100, None).unwrap());
        assert!(meter.memory_growing(100, 200, None).unwrap());
        assert_eq!(meter.refusal(), None);
        assert!(!meter.memory_growing(100, 101, None).unwrap());
        assert_eq!(meter.memory_peak_bytes(), 300);
        assert!(meter.refusal().unwrap().contains("wanted 301 B"));
    }

    #[test]
    fn growth_that_failed_after_all_is_not_counted() {
        let mut meter = meter(300);
        assert!(meter.memory_growing(0, 200, None).unwrap());
        assert!(meter.memory_growing(200, 300, None).unwrap());
        meter
            .memory_grow_failed(wasmtime::Error::msg("no"))
            .unwrap();
        // A second report of the same failure, or one of a growth that was never allowed, takes nothing more.
        meter
            .memory_grow_failed(wasmtime::Error::msg("no"))
            .unwrap();
        assert!(meter.memory_growing(200, 300, None).unwrap());
        assert!(!meter.memory_growing(300, 301, None).unwrap());
        meter
            .memory_grow_failed(wasmtime::Error::msg("no"))
            .unwrap();
        assert_eq!(meter.memory.used, 300);
    }
}
