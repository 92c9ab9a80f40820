//! What a module or component shows on its outside: names and sections. Nothing is compiled or run for it.

use wasmparser::{
    BinaryReaderError, ComponentName, CustomSectionReader, Encoding, KnownCustom, MemoryType, Name,
    Parser, Payload, TypeRef,
};

use super::recognise::{cut_short, one_line};
use super::{Labels, Refusal};

/// Of one label; a longer one is none.
const LABEL_BYTES_MAX: usize = 256;

/// Of the name of the section, which is no standard one, that says which version of a program this is.
const VERSION_SECTION: &str = "version";

/// The names on the outside of a module or component, and what is peculiar about its insides.
pub(super) struct Outline {
    pub(super) encoding: Encoding,
    /// Of a core module, `module name`; of a component, the interface.
    pub(super) imports: Vec<String>,
    pub(super) exports: Vec<String>,
    pub(super) carries_wit: bool,
    /// Whether it has a memory that threads would share, at any depth.
    pub(super) shares_memory: bool,
    /// Whether it has a memory with addresses of 64 bits, at any depth.
    pub(super) is_64_bit: bool,
    pub(super) labels: Labels,
}

impl Outline {
    /// # Errors
    ///
    /// One sentence that says whether the file is cut short, or where it is damaged.
    pub(super) fn of(bytes: &[u8]) -> Result<Outline, Refusal> {
        Outline::read(bytes).map_err(|error| Refusal {
            message: if error.message().starts_with("unexpected end") {
                cut_short(bytes.len())
            } else {
                format!(
                    "the file is damaged near byte {}: {}; build it or copy it again",
                    error.offset(),
                    one_line(error.message())
                )
            },
        })
    }

    fn read(bytes: &[u8]) -> Result<Outline, BinaryReaderError> {
        let mut outline = Outline {
            encoding: Encoding::Module,
            imports: Vec::new(),
            exports: Vec::new(),
            carries_wit: false,
            shares_memory: false,
            is_64_bit: false,
            labels: Labels::default(),
        };
        let mut depth = 0u32;
        for payload in Parser::new(0).parse_all(bytes) {
            match payload? {
                Payload::Version { encoding, .. } if depth == 0 => outline.encoding = encoding,
                Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => depth += 1,
                Payload::End(_) => depth = depth.saturating_sub(1),
                payload => {
                    outline.inside(&payload)?;
                    if depth == 0 {
                        outline.outside(payload)?;
                    }
                }
            }
        }
        Ok(outline)
    }

    /// What counts at any depth.
    fn inside(&mut self, payload: &Payload<'_>) -> Result<(), BinaryReaderError> {
        match payload {
            Payload::ImportSection(section) => {
                for import in section.clone().into_imports() {
                    if let TypeRef::Memory(memory) = import?.ty {
                        self.memory(memory);
                    }
                }
            }
            Payload::MemorySection(section) => {
                for memory in section.clone() {
                    self.memory(memory?);
                }
            }
            // Of a component, the language of its first module: those after it adapt or are linked.
            Payload::CustomSection(section) if self.labels.language.is_none() => {
                self.labels.language = language(section);
            }
            _ => {}
        }
        Ok(())
    }

    fn memory(&mut self, memory: MemoryType) {
        self.shares_memory |= memory.shared;
        self.is_64_bit |= memory.memory64;
    }

    fn outside(&mut self, payload: Payload<'_>) -> Result<(), BinaryReaderError> {
        match payload {
            Payload::ImportSection(section) => {
                for import in section.into_imports() {
                    let import = import?;
                    self.imports
                        .push(format!("{} {}", import.module, import.name));
                }
            }
            Payload::ExportSection(section) => {
                for export in section {
                    self.exports.push(export?.name.to_owned());
                }
            }
            Payload::ComponentImportSection(section) => {
                for import in section {
                    self.imports.push(import?.name.name.to_owned());
                }
            }
            Payload::ComponentExportSection(section) => {
                for export in section {
                    self.exports.push(export?.name.name.to_owned());
                }
            }
            Payload::CustomSection(section) => self.custom(&section),
            _ => {}
        }
        Ok(())
    }

    /// A custom section that cannot be read says nothing, as any tool would have it.
    fn custom(&mut self, section: &CustomSectionReader<'_>) {
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

/// The languages that a `producers` section names.
fn language(section: &CustomSectionReader<'_>) -> Option<String> {
    let KnownCustom::Producers(fields) = section.as_known() else {
        return None;
    };
    let languages = fields
        .into_iter()
        .filter_map(Result::ok)
        .find(|field| field.name == "language")?;
    let names: Vec<&str> = languages
        .values
        .into_iter()
        .filter_map(Result::ok)
        .map(|value| value.name)
        .collect();
    label(&names.join(", "))
}

fn label(text: &str) -> Option<String> {
    let text = text.trim();
    (!text.is_empty() && text.len() <= LABEL_BYTES_MAX).then(|| text.to_owned())
}
