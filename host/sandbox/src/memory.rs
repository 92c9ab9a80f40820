//! The limits of linear memories and tables.

use wasmtime::ResourceLimiter;

use crate::limits::{Limits, Resource};

/// Counts the linear memories and tables of a guest, and refuses growth beyond the limits.
pub(crate) struct MemoryMeter {
    memory: Growth,
    tables: Growth,
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
    pub(crate) fn new(limits: &Limits) -> MemoryMeter {
        let growth = |max| Growth {
            max,
            ..Growth::default()
        };
        MemoryMeter {
            memory: growth(limits.memory_bytes_max),
            tables: growth(limits.table_elements_max),
        }
    }

    /// Return the greatest sum of the linear memories so far, in bytes.
    pub(crate) fn memory_peak_bytes(&self) -> u64 {
        self.memory.peak
    }

    /// Return the greatest sum of the elements of the tables so far.
    pub(crate) fn table_elements_peak(&self) -> u64 {
        self.tables.peak
    }

    /// Return the sentence that says which growth was refused, if any was.
    pub(crate) fn refusal(&self) -> Option<String> {
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
    fn grow(&mut self, current: usize, desired: usize) -> bool {
        let more = desired.saturating_sub(current) as u64;
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

    fn undo(&mut self) {
        self.used -= std::mem::take(&mut self.last);
    }
}

impl ResourceLimiter for MemoryMeter {
    fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        _: Option<usize>,
    ) -> wasmtime::Result<bool> {
        Ok(self.memory.grow(current, desired))
    }

    fn memory_grow_failed(&mut self, _: wasmtime::Error) -> wasmtime::Result<()> {
        self.memory.undo();
        Ok(())
    }

    fn table_growing(
        &mut self,
        current: usize,
        desired: usize,
        _: Option<usize>,
    ) -> wasmtime::Result<bool> {
        Ok(self.tables.grow(current, desired))
    }

    fn table_grow_failed(&mut self, _: wasmtime::Error) -> wasmtime::Result<()> {
        self.tables.undo();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meter(memory_bytes_max: u64) -> MemoryMeter {
        MemoryMeter::new(&Limits {
            memory_bytes_max,
            ..Limits::default()
        })
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
