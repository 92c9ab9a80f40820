//! What one instance of a package takes of the host.

/// What one instance of a package takes, before any of its code runs. Sums saturate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Footprint {
    /// Instances of core modules.
    pub(crate) instances: u64,
    pub(crate) memories: u64,
    pub(crate) tables: u64,
    /// What the host keeps of the instances: globals, functions, imports, and the heads of memories and tables.
    pub(crate) instance_bytes: u64,
    /// The least size of all memories together.
    pub(crate) memory_bytes: u64,
    /// The least size of all tables together.
    pub(crate) table_elements: u64,
    /// What is copied into memories and tables.
    pub(crate) copied_bytes: u64,
}

impl Footprint {
    pub(crate) fn plus(self, other: Footprint) -> Footprint {
        let add = u64::saturating_add;
        Footprint {
            instances: add(self.instances, other.instances),
            memories: add(self.memories, other.memories),
            tables: add(self.tables, other.tables),
            instance_bytes: add(self.instance_bytes, other.instance_bytes),
            memory_bytes: add(self.memory_bytes, other.memory_bytes),
            table_elements: add(self.table_elements, other.table_elements),
            copied_bytes: add(self.copied_bytes, other.copied_bytes),
        }
    }
}
