//! Sizing an instance of a component before compiling anything.
//!
//! A few bytes are enough to instantiate a module again, and nesting components can double the number of instances at each level. Walking
//! the file reads each definition once, adding up the needs of each instantiation without ever underestimating.

use std::fmt::Display;

use campanile_model::text::{size_rounded, size_text};
use wasmparser::{
    BinaryReaderError, ComponentAlias, ComponentExternalKind, ComponentInstance,
    ComponentOuterAliasKind, ComponentTypeRef, DataKind, ElementItems, Encoding, ExternalKind,
    Instance, Parser, Payload, TypeRef,
};

use crate::engine::ComponentLimits;
use crate::ledger::footprint::Footprint;
use crate::load::compile_cost;
use crate::load::refusal::{Refusal, refuse};

/// How many bytes may be copied into memories and tables on instantiation. A guest can't yield meanwhile.
const COPIED_BYTES_MAX: u64 = 128 << 20;

/// Upper bounds for the parts of an instance in the engine, in bytes. A test compares them with the engine's own sizes.
const INSTANCE_BYTES: u64 = 1 << 10;
const IMPORT_BYTES: u64 = 32;
const GLOBAL_BYTES: u64 = 16;
const FUNCTION_REFERENCE_BYTES: u64 = 32;
const MEMORY_BYTES: u64 = 512;
const TABLE_BYTES: u64 = 256;
const TAG_BYTES: u64 = 16;
/// For each data or element segment and exported name.
const ENTRY_BYTES: u64 = 32;
/// Copied for each element of a table.
const ELEMENT_BYTES: u64 = 16;

const PAGE_BYTES: u64 = 64 << 10;

/// Sizes an instance of `component`, refusing any exceeding `limits`.
pub(crate) fn check(component: &[u8], limits: &ComponentLimits) -> Result<Footprint, Refusal> {
    let footprint = match footprint(component) {
        Ok(footprint) => footprint,
        Err(Uncounted::Broken(error)) => return Err(compile_cost::invalid(&error)),
        Err(Uncounted::Unknown(what)) => {
            // The component might also be invalid.
            compile_cost::check(component)?;
            return refuse(format!(
                "this component instantiates {what}, so that the host can't count what it takes; compose it of components that are in the file"
            ));
        }
    };
    let count = |what: &str, has: u64, limit: u32, key: &str| {
        if has > limit.into() {
            too_large(&counted(has, what), limit, &raise(key))
        } else {
            Ok(())
        }
    };
    let instances_max = limits.core_instances_max;
    count(
        "instances of modules",
        footprint.instances,
        instances_max,
        "core_instances_max",
    )?;
    count(
        "memories",
        footprint.memories,
        limits.memories_max,
        "memories_max",
    )?;
    count("tables", footprint.tables, limits.tables_max, "tables_max")?;
    if footprint.instance_bytes > limits.instance_bytes_max {
        let has = format!(
            "{} of globals, functions and other parts of its instances",
            size_rounded(footprint.instance_bytes)
        );
        let limit = size_text(limits.instance_bytes_max);
        return too_large(&has, limit, &raise("instance_max")).map(|()| footprint);
    }
    if footprint.copied_bytes > COPIED_BYTES_MAX {
        let has = format!(
            "{} of data that every start copies",
            size_rounded(footprint.copied_bytes)
        );
        let remedy = "or load it from a granted directory";
        return too_large(&has, size_text(COPIED_BYTES_MAX), remedy).map(|()| footprint);
    }
    Ok(footprint)
}

fn counted(has: u64, what: &str) -> String {
    match has {
        u64::MAX => format!("countless {what}"),
        has => format!("{has} {what}"),
    }
}

fn raise(key: &str) -> String {
    format!("or raise `{key}` under `[sandbox]` in the host's configuration")
}

fn too_large(has: &str, limit: impl Display, remedy: &str) -> Result<(), Refusal> {
    refuse(format!(
        "a call of this package would have {has}, and the limit is {limit}; build it with fewer, {remedy}"
    ))
}

/// Why a component can't be sized.
enum Uncounted {
    Broken(BinaryReaderError),
    /// It instantiates something determined only by its own instantiation.
    Unknown(&'static str),
}

impl From<BinaryReaderError> for Uncounted {
    fn from(error: BinaryReaderError) -> Uncounted {
        Uncounted::Broken(error)
    }
}

fn footprint(component: &[u8]) -> Result<Footprint, Uncounted> {
    let mut walk = Walk::default();
    for payload in Parser::new(0).parse_all(component) {
        walk.read(payload?)?;
    }
    Ok(walk.root.unwrap_or_default())
}

/// A module or component whose end hasn't been reached.
enum Open {
    Module(Module),
    Component(Component),
}

#[derive(Default)]
struct Module {
    size: Footprint,
    functions: u64,
    /// References to functions made in the file. The engine keeps one for each such function.
    references: u64,
}

/// Definitions in a component so far, by index. None if only instantiation will tell.
#[derive(Default)]
struct Component {
    modules: Vec<Option<Footprint>>,
    components: Vec<Option<Footprint>>,
    /// What each instance takes.
    size: Footprint,
}

#[derive(Default)]
struct Walk {
    open: Vec<Open>,
    root: Option<Footprint>,
}

impl Walk {
    fn read(&mut self, payload: Payload<'_>) -> Result<(), Uncounted> {
        match payload {
            Payload::Version { encoding, .. } => self.open.push(match encoding {
                Encoding::Module => Open::Module(Module::default()),
                Encoding::Component => Open::Component(Component::default()),
            }),
            Payload::End(_) => self.close(),
            Payload::ComponentAliasSection(section) => {
                for alias in section {
                    self.read_alias(alias?);
                }
            }
            payload => match self.open.last_mut() {
                Some(Open::Module(module)) => module.read(payload)?,
                Some(Open::Component(component)) => component.read(payload)?,
                None => {}
            },
        }
        Ok(())
    }

    fn close(&mut self) {
        let ended = self.open.pop();
        let outer = match self.open.last_mut() {
            Some(Open::Component(outer)) => Some(outer),
            _ => None,
        };
        match (ended, outer) {
            (Some(Open::Module(module)), Some(outer)) => outer.modules.push(Some(module.size())),
            (Some(Open::Component(inner)), Some(outer)) => outer.components.push(Some(inner.size)),
            (Some(Open::Component(root)), None) => self.root = Some(root.size),
            (Some(Open::Module(root)), None) => self.root = Some(root.size()),
            (None, _) => {}
        }
    }

    fn read_alias(&mut self, alias: ComponentAlias<'_>) {
        let (kind, found) = match alias {
            ComponentAlias::Outer { kind, count, index } => {
                let outer = self.open.iter().rev().nth(count as usize);
                let found = match (outer, kind) {
                    (Some(Open::Component(outer)), ComponentOuterAliasKind::CoreModule) => {
                        outer.modules.get(index as usize).copied().flatten()
                    }
                    (Some(Open::Component(outer)), ComponentOuterAliasKind::Component) => {
                        outer.components.get(index as usize).copied().flatten()
                    }
                    _ => None,
                };
                (kind, found)
            }
            ComponentAlias::InstanceExport { kind, .. } => match kind {
                ComponentExternalKind::Module => (ComponentOuterAliasKind::CoreModule, None),
                ComponentExternalKind::Component => (ComponentOuterAliasKind::Component, None),
                _ => return,
            },
            ComponentAlias::CoreInstanceExport { .. } => return,
        };
        let Some(Open::Component(component)) = self.open.last_mut() else {
            return;
        };
        match kind {
            ComponentOuterAliasKind::CoreModule => component.modules.push(found),
            ComponentOuterAliasKind::Component => component.components.push(found),
            ComponentOuterAliasKind::CoreType | ComponentOuterAliasKind::Type => {}
        }
    }
}

impl Component {
    fn read(&mut self, payload: Payload<'_>) -> Result<(), Uncounted> {
        match payload {
            Payload::ComponentImportSection(section) => {
                for import in section {
                    match import?.ty {
                        ComponentTypeRef::Module(_) => self.modules.push(None),
                        ComponentTypeRef::Component(_) => self.components.push(None),
                        _ => {}
                    }
                }
            }
            // Exporting something adds another index for it.
            Payload::ComponentExportSection(section) => {
                for export in section {
                    let export = export?;
                    let index = export.index as usize;
                    match export.kind {
                        ComponentExternalKind::Module => {
                            self.modules
                                .push(self.modules.get(index).copied().flatten());
                        }
                        ComponentExternalKind::Component => {
                            self.components
                                .push(self.components.get(index).copied().flatten());
                        }
                        _ => {}
                    }
                }
            }
            Payload::InstanceSection(section) => {
                for instance in section {
                    if let Instance::Instantiate { module_index, .. } = instance? {
                        let module = self.modules.get(module_index as usize);
                        let what = "a module that it imports or gets from an instance";
                        self.add(module.copied().flatten(), what)?;
                    }
                }
            }
            Payload::ComponentInstanceSection(section) => {
                for instance in section {
                    if let ComponentInstance::Instantiate {
                        component_index, ..
                    } = instance?
                    {
                        let component = self.components.get(component_index as usize);
                        let what = "a component that it imports or gets from an instance";
                        self.add(component.copied().flatten(), what)?;
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn add(&mut self, size: Option<Footprint>, what: &'static str) -> Result<(), Uncounted> {
        let size = size.ok_or(Uncounted::Unknown(what))?;
        self.size = self.size.plus(size);
        Ok(())
    }
}

impl Module {
    fn size(&self) -> Footprint {
        let references = self.references.min(self.functions);
        Footprint {
            instances: 1,
            instance_bytes: INSTANCE_BYTES,
            ..Footprint::default()
        }
        .plus(self.size)
        .plus(bytes(references, FUNCTION_REFERENCE_BYTES))
    }

    fn add(&mut self, count: u32, bytes_each: u64) {
        self.size = self.size.plus(bytes(count.into(), bytes_each));
    }

    fn read(&mut self, payload: Payload<'_>) -> Result<(), BinaryReaderError> {
        match payload {
            Payload::ImportSection(section) => {
                for import in section.into_imports() {
                    self.add(1, IMPORT_BYTES);
                    let is_function =
                        matches!(import?.ty, TypeRef::Func(_) | TypeRef::FuncExact(_));
                    self.functions += u64::from(is_function);
                }
            }
            Payload::FunctionSection(section) => self.functions += u64::from(section.count()),
            Payload::GlobalSection(section) => {
                self.add(section.count(), GLOBAL_BYTES);
                self.references += u64::from(section.count());
            }
            Payload::TagSection(section) => self.add(section.count(), TAG_BYTES),
            Payload::MemorySection(section) => {
                self.add(section.count(), MEMORY_BYTES);
                self.size.memories += u64::from(section.count());
                for memory in section {
                    let least = memory?.initial.saturating_mul(PAGE_BYTES);
                    self.size.memory_bytes = self.size.memory_bytes.saturating_add(least);
                }
            }
            Payload::TableSection(section) => {
                self.add(section.count(), TABLE_BYTES);
                self.references += u64::from(section.count());
                self.size.tables += u64::from(section.count());
                for table in section {
                    let least = table?.ty.initial;
                    self.size.table_elements = self.size.table_elements.saturating_add(least);
                }
            }
            Payload::ExportSection(section) => {
                self.add(section.count(), ENTRY_BYTES);
                for export in section {
                    let kind = export?.kind;
                    self.references += u64::from(matches!(kind, ExternalKind::Func));
                }
            }
            Payload::StartSection { .. } => self.references += 1,
            Payload::ElementSection(section) => {
                self.add(section.count(), ENTRY_BYTES);
                for element in section {
                    let items = match element?.items {
                        ElementItems::Functions(items) => items.count(),
                        ElementItems::Expressions(_, items) => items.count(),
                    };
                    self.references += u64::from(items);
                    self.copies(u64::from(items).saturating_mul(ELEMENT_BYTES));
                }
            }
            Payload::DataSection(section) => {
                self.add(section.count(), ENTRY_BYTES);
                for data in section {
                    let data = data?;
                    if let DataKind::Active { .. } = data.kind {
                        self.copies(data.data.len() as u64);
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn copies(&mut self, bytes: u64) {
        self.size.copied_bytes = self.size.copied_bytes.saturating_add(bytes);
    }
}

fn bytes(count: u64, each: u64) -> Footprint {
    Footprint {
        instance_bytes: count.saturating_mul(each),
        ..Footprint::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: ComponentLimits = ComponentLimits {
        core_instances_max: 20,
        memories_max: 8,
        tables_max: 10,
        instance_bytes_max: 1 << 20,
    };

    fn check(text: &str) -> Result<Footprint, Refusal> {
        super::check(&wat::parse_str(text).unwrap(), &LIMITS)
    }

    fn size(text: &str) -> Footprint {
        check(text).unwrap()
    }

    #[track_caller]
    fn assert_refused(text: &str, has: &str, key: &str) {
        let message = check(text).unwrap_err().message;
        assert!(message.contains(has), "{message}");
        assert!(message.contains(&format!("`{key}`")), "{message}");
        assert!(!message.contains('\n'), "{message}");
    }

    #[test]
    fn what_is_not_instantiated_takes_nothing() {
        let nested = "(component (core module (memory 9)) (component (core module $m (memory 9)) (core instance (instantiate $m))))";
        assert_eq!(size(nested), Footprint::default());
        let once = size(
            "(component (core module $m (memory 2) (table 7 funcref)) (core instance (instantiate $m)))",
        );
        let figures = (once.instances, once.memories, once.tables);
        assert_eq!(figures, (1, 1, 1));
        assert_eq!((once.memory_bytes, once.table_elements), (2 << 16, 7));
    }

    #[test]
    fn memories_of_all_instances_are_counted() {
        // A file that has brought down hosts: 14 instances with 73 one-page memories each.
        let memories = "(memory 1)".repeat(73);
        let instances = "(core instance (instantiate $m))".repeat(14);
        let text = format!("(component (core module $m {memories}) {instances})");
        assert_refused(&text, "1022 memories", "memories_max");
    }

    #[test]
    fn instances_doubled_over_thirty_levels_are_counted_and_not_made() {
        let mut text =
            "(component $c0 (core module $m) (core instance (instantiate $m)))".to_owned();
        for level in 1..30 {
            let below = level - 1;
            text = format!(
                "(component $c{level} {text} (instance (instantiate $c{below})) (instance (instantiate $c{below})))"
            );
        }
        let text = format!("(component {text} (instance (instantiate $c29)))");
        assert_refused(
            &text,
            "536870912 instances of modules",
            "core_instances_max",
        );
    }

    #[test]
    fn modules_of_outer_components_and_exported_ones_are_counted() {
        let outer = "(component (core module $m (memory 1))
            (component $c (alias outer 1 $m (core module $n)) (core instance (instantiate $n)))
            (export $d \"d\" (component $c))
            (instance (instantiate $c)) (instance (instantiate $d)))";
        let found = size(outer);
        assert_eq!((found.instances, found.memories), (2, 2));
    }

    #[test]
    fn globals_functions_and_tables_have_their_bounds() {
        let globals = "(global i32 (i32.const 0))".repeat(70_000);
        let text =
            format!("(component (core module $m {globals}) (core instance (instantiate $m)))");
        assert_refused(&text, " MiB of globals", "instance_max");
        let tables = "(table 1 funcref)".repeat(11);
        let text =
            format!("(component (core module $m {tables}) (core instance (instantiate $m)))");
        assert_refused(&text, "11 tables", "tables_max");
        // Without a reference, a function costs an instance nothing.
        let functions = "(func)".repeat(40_000);
        let text =
            format!("(component (core module $m {functions}) (core instance (instantiate $m)))");
        assert_eq!(size(&text).instance_bytes, INSTANCE_BYTES);
        let text = format!(
            "(component (core module $m {functions} (table 40000 funcref) (elem (i32.const 0) func {})) (core instance (instantiate $m)))",
            (0..40_000).map(|n| format!("{n} ")).collect::<String>()
        );
        assert_refused(&text, " MiB of globals, functions", "instance_max");
    }

    #[test]
    fn data_that_every_instance_copies_again_is_counted() {
        let data = "x".repeat(16 << 20);
        let instances = "(core instance (instantiate $m (with \"\" (instance (export \"m\" (memory $shared))))))";
        let text = format!(
            "(component (core module $o (memory (export \"m\") 300)) (core instance $i (instantiate $o))
                (alias core export $i \"m\" (core memory $shared))
                (core module $m (import \"\" \"m\" (memory 1)) (data (i32.const 0) \"{data}\")) {})",
            instances.repeat(9)
        );
        let message = check(&text).unwrap_err().message;
        assert!(message.contains("144.0 MiB of data"), "{message}");
    }

    #[test]
    fn what_only_an_instantiation_decides_is_refused() {
        for text in [
            "(component (component (import \"m\" (core module $m)) (core instance (instantiate $m))))",
            "(component (component (import \"c\" (component $c)) (instance (instantiate $c))))",
            "(component (component $c (core module $m) (export \"m\" (core module $m)))
                (instance $i (instantiate $c)) (alias export $i \"m\" (core module $n)) (core instance (instantiate $n)))",
        ] {
            let message = check(text).unwrap_err().message;
            assert!(message.contains("imports or gets from an instance"), "{message}");
        }
    }
}
