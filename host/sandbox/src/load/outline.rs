//! The imports, exports and labels of a module or component, read from its sections. Nothing is compiled or run.

use serde::Serialize;
use wasmparser::{
    BinaryReaderError, ComponentAlias, ComponentExternalKind, ComponentName,
    ComponentOuterAliasKind, ComponentType, ComponentTypeRef, CustomSectionReader, Encoding,
    InstanceTypeDeclaration, KnownCustom, MemoryType, Name, Parser, Payload, TypeRef,
};

use crate::load::refusal::{Refusal, cut_short, one_line};

/// The longest label. A longer one is ignored.
const LABEL_BYTES_MAX: usize = 256;

/// The name of the section with the version of a program. It is a convention, and no standard.
const VERSION_SECTION: &str = "version";

/// What the standard custom sections of a file say about it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Labels {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) language: Option<String>,
}

/// The imports, exports and properties of a module or component.
#[derive(Default)]
pub(crate) struct Outline {
    pub(crate) is_component: bool,
    /// Of a core module, `module name`; of a component, the interface.
    pub(crate) imports: Vec<String>,
    pub(crate) exports: Vec<String>,
    /// Of a component, the imports containing functions. Interfaces with types alone need nothing from the host.
    pub(crate) called_imports: Vec<String>,
    /// Of a component, whether each type so far is an interface containing functions.
    types: Vec<bool>,
    pub(crate) carries_wit: bool,
    /// Whether it has a shared memory, at any depth.
    pub(crate) shares_memory: bool,
    /// Whether it has a memory with addresses of 64 bits, at any depth.
    pub(crate) is_64_bit: bool,
    pub(crate) labels: Labels,
    /// The major version of clang that a `producers` section names.
    pub(crate) clang: Option<u32>,
}

impl Outline {
    /// Read the outline of `bytes`.
    ///
    /// # Errors
    ///
    /// One sentence that says whether the file is cut short, or where it is damaged.
    pub(crate) fn of(bytes: &[u8]) -> Result<Outline, Refusal> {
        Outline::read(bytes).map_err(|error| {
            Refusal::new(match error.message() {
                text if text.starts_with("unexpected end") => cut_short(bytes.len()),
                text => format!(
                    "the file is damaged near byte {}: {}; build it or copy it again",
                    error.offset(),
                    one_line(text)
                ),
            })
        })
    }

    fn read(bytes: &[u8]) -> Result<Outline, BinaryReaderError> {
        let mut outline = Outline::default();
        let mut depth = 0u32;
        for payload in Parser::new(0).parse_all(bytes) {
            match payload? {
                Payload::Version { encoding, .. } if depth == 0 => {
                    outline.is_component = encoding == Encoding::Component;
                }
                Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => depth += 1,
                Payload::End(_) => depth = depth.saturating_sub(1),
                payload => outline.read_payload(payload, depth == 0)?,
            }
        }
        Ok(outline)
    }

    /// Read one payload. Memories and the language count at any depth, and everything else on the outside only.
    fn read_payload(
        &mut self,
        payload: Payload<'_>,
        is_outside: bool,
    ) -> Result<(), BinaryReaderError> {
        match payload {
            Payload::ImportSection(section) => {
                for import in section.into_imports() {
                    let import = import?;
                    if let TypeRef::Memory(memory) = import.ty {
                        self.read_memory(memory);
                    }
                    if is_outside {
                        self.imports
                            .push(format!("{} {}", import.module, import.name));
                    }
                }
            }
            Payload::MemorySection(section) => {
                for memory in section {
                    self.read_memory(memory?);
                }
            }
            Payload::CustomSection(section) => self.read_custom(&section, is_outside),
            Payload::ExportSection(section) if is_outside => {
                for export in section {
                    self.exports.push(export?.name.to_owned());
                }
            }
            Payload::ComponentTypeSection(section) if is_outside => {
                for ty in section {
                    self.types.push(has_functions(&ty?));
                }
            }
            Payload::ComponentAliasSection(section) if is_outside => {
                for alias in section {
                    if is_type(&alias?) {
                        self.types.push(false);
                    }
                }
            }
            Payload::ComponentImportSection(section) if is_outside => {
                for import in section {
                    let import = import?;
                    self.read_import(import.name.name, import.ty);
                }
            }
            Payload::ComponentExportSection(section) if is_outside => {
                for export in section {
                    let export = export?;
                    if export.kind == ComponentExternalKind::Type {
                        self.types.push(false);
                    }
                    self.exports.push(export.name.name.to_owned());
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn read_import(&mut self, name: &str, ty: ComponentTypeRef) {
        let is_called = match ty {
            ComponentTypeRef::Instance(index) => {
                self.types.get(index as usize).copied().unwrap_or_default()
            }
            ComponentTypeRef::Type(_) => {
                self.types.push(false);
                false
            }
            _ => true,
        };
        if is_called {
            self.called_imports.push(name.to_owned());
        }
        self.imports.push(name.to_owned());
    }

    fn read_memory(&mut self, memory: MemoryType) {
        self.shares_memory |= memory.shared;
        self.is_64_bit |= memory.memory64;
    }

    /// Read a custom section. A damaged one is ignored, as in other tools.
    fn read_custom(&mut self, section: &CustomSectionReader<'_>, is_outside: bool) {
        // A component has the language of its first module: later ones are adapters or libraries.
        if self.labels.language.is_none() {
            self.labels.language = language(section);
        }
        if !is_outside {
            return;
        }
        self.clang = self.clang.or_else(|| clang(section));
        self.carries_wit |= section.name().starts_with("component-type");
        if section.name() == VERSION_SECTION {
            let text = std::str::from_utf8(section.data()).ok();
            self.labels.version = text.and_then(label);
        }
        match section.as_known() {
            KnownCustom::Name(names) => {
                self.labels.name = names.filter_map(Result::ok).find_map(|name| match name {
                    Name::Module { name, .. } => label(name),
                    _ => None,
                });
            }
            KnownCustom::ComponentName(names) => {
                self.labels.name = names.filter_map(Result::ok).find_map(|name| match name {
                    ComponentName::Component { name, .. } => label(name),
                    _ => None,
                });
            }
            _ => {}
        }
    }
}

fn has_functions(ty: &ComponentType<'_>) -> bool {
    let ComponentType::Instance(declarations) = ty else {
        return false;
    };
    declarations.iter().any(|declaration| {
        matches!(
            declaration,
            InstanceTypeDeclaration::Export {
                ty: ComponentTypeRef::Func(_),
                ..
            }
        )
    })
}

/// Whether `alias` adds another type to its component.
fn is_type(alias: &ComponentAlias<'_>) -> bool {
    match alias {
        ComponentAlias::InstanceExport { kind, .. } => *kind == ComponentExternalKind::Type,
        ComponentAlias::Outer { kind, .. } => *kind == ComponentOuterAliasKind::Type,
        ComponentAlias::CoreInstanceExport { .. } => false,
    }
}

/// Returns the languages that a `producers` section names.
fn language(section: &CustomSectionReader<'_>) -> Option<String> {
    let names = producers(section, "language").map(|(name, _)| name);
    label(&names.collect::<Vec<_>>().join(", "))
}

/// Returns the major version of clang that a `producers` section names.
fn clang(section: &CustomSectionReader<'_>) -> Option<u32> {
    let mut tools = producers(section, "processed-by");
    let (_, version) = tools.find(|(name, _)| *name == "clang")?;
    version.split('.').next()?.parse().ok()
}

/// Returns the names and versions in one field of a `producers` section.
fn producers<'a>(
    section: &CustomSectionReader<'a>,
    field: &'a str,
) -> impl Iterator<Item = (&'a str, &'a str)> {
    let fields = match section.as_known() {
        KnownCustom::Producers(fields) => Some(fields),
        _ => None,
    };
    let mut fields = fields.into_iter().flatten().filter_map(Result::ok);
    let found = fields.find(|found| found.name == field);
    let values = found.map(|found| found.values);
    let values = values.into_iter().flatten().filter_map(Result::ok);
    values.map(|value| (value.name, value.version))
}

fn label(text: &str) -> Option<String> {
    let text = text.trim();
    (!text.is_empty() && text.len() <= LABEL_BYTES_MAX).then(|| text.to_owned())
}
