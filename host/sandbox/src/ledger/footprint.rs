/// What one instance of a package takes before running any code. Sums saturate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Footprint {
    /// Core module instances.
    pub(crate) instances: u64,
    pub(crate) memories: u64,
    pub(crate) tables: u64,
    /// Host memory for the instances: globals, functions, imports, and the headers of memories and tables.
    pub(crate) instance_bytes: u64,
    /// The memories' initial sizes, added up.
    pub(crate) memory_bytes: u64,
    /// The tables' initial sizes, added up.
    pub(crate) table_elements: u64,
    /// Bytes copied into memories and tables.
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
