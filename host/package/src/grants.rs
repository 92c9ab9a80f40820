//! The kinds of grants: one table with all that this crate knows of each kind.
//!
//! A new kind is one entry of [`KINDS`] with its file below, one field of [`Grants`], and its check in the sandbox.
//! CONTRIBUTING.md lists what else names the kinds.

use std::path::Path;

use super::host_rules::HostRules;
use super::reference::KeyHelp;
use crate::toml_reader::{Error, Section};
use campanile_model::text::toml_string;
use campanile_model::words;
use campanile_sandbox::Grants;

mod bucket;
pub mod call;
mod device;
mod directory;
mod name;
mod network;
mod part;

pub(super) use name::{SECRET, check_variable};
pub(super) use part::Part;

/// Every kind of grant, in the order in which requests are listed. They are read in this order, because `secrets` are
/// checked against `config`.
pub const KINDS: [&GrantKind; 9] = [
    &directory::DIRECTORY,
    &device::DEVICE,
    &name::ENV,
    &name::CONFIG,
    &network::HTTP,
    &bucket::KEYVALUE,
    &network::SOCKET,
    &name::SECRET,
    &name::SECRET_ENV,
];

/// What this crate knows of one kind of grant.
#[derive(Debug)]
pub struct GrantKind {
    /// The kind in grant records, in requests and in JSON.
    pub name: &'static str,
    /// The key below `[grants]` in a sidecar, and below `requests` in a description.
    pub key: &'static str,
    /// The documentation of the keys in a sidecar: rows for [`KeyHelp::read`], without the prefix `grants.`.
    keys: &'static [&'static str],
    layout: Layout,
    /// Reads one `[[grants.KEY]]` entry or, if the layout is a list or a table, the key in the table `[grants]`.
    read: fn(&mut Section<'_>, &mut GrantReader<'_>) -> Result<(), Error>,
    /// Returns the texts that the database stores for each grant: its `parts`, then details that no request mentions, such
    /// as the host's path. Never the value of a secret.
    pub(super) record: fn(&Grants) -> Vec<Vec<String>>,
    /// The parts of a request; none for a kind that packages cannot request.
    pub(super) parts: &'static [Part],
    /// The noun after "the package needs", such as "the directory".
    pub(super) need: &'static str,
    /// Another kind whose grants also satisfy a request.
    pub(super) also: Option<&'static GrantKind>,
    /// Whether a launch starts without the grant, and the sandbox denies each use.
    pub(super) is_checked_at_use: bool,
}

/// How grants of a kind stand in a sidecar.
#[derive(Debug)]
enum Layout {
    /// Each in a table `[[grants.KEY]]`. The template is shown to operators: the name of a part stands for the line giving its
    /// value, other lines are shown as they are.
    Entries(&'static [&'static str]),
    /// All in the list `KEY` below `[grants]`.
    List,
    /// All in the table `[grants.KEY]`, each a name with its value.
    Table,
}

words! {
    /// What a sidecar has of the table for grants by name.
    Present {
        Nothing => "nothing",
        /// The table, with other keys.
        Table => "table",
        /// The list or the table of this kind.
        List => "list",
    }
}

impl GrantKind {
    /// The values of the fields that a kind may leave out: it cannot be requested, and is checked before a launch.
    const DEFAULTS: GrantKind = GrantKind {
        name: "",
        key: "",
        keys: &[],
        layout: Layout::List,
        read: |_, _| Ok(()),
        record: |_| Vec::new(),
        parts: &[],
        need: "",
        also: None,
        is_checked_at_use: false,
    };

    /// List the keys of a sidecar that grant this kind.
    pub fn reference(&self) -> impl Iterator<Item = KeyHelp> {
        let rows = self.keys.iter();
        rows.map(|row| KeyHelp::read(&format!("grants.{row}")))
    }

    /// Whether a sidecar has all grants of this kind in one list or table, and a description its requests by name.
    pub(super) fn is_named(&self) -> bool {
        !matches!(self.layout, Layout::Entries(_))
    }

    /// Whether a grant that is recorded as `granted` covers a request with the parts `wanted`.
    pub(super) fn covers(&self, granted: &[String], wanted: &[String]) -> bool {
        let mut parts = self.parts.iter().zip(granted.iter().zip(wanted));
        parts.all(|(part, (granted, wanted))| part.covers(granted, wanted))
    }

    /// Returns the thing that a request with `parts` asks for, such as `write /data`.
    pub(super) fn what(&self, parts: &[String]) -> String {
        let what = match (self.parts, parts) {
            ([Part::Scheme, ..], [scheme, host, ..]) => format!("{scheme}://{host}"),
            ([Part::Protocol, ..], [protocol, host, port, ..]) => {
                format!("{protocol} {host}:{port}")
            }
            (_, parts) => parts.join(" "),
        };
        match (self.parts, parts) {
            ([.., Part::Private], [.., private]) if !private.is_empty() => {
                format!("{what} ({private})")
            }
            _ => what,
        }
    }

    /// Returns what a package with this request needs, as a clause after "the package needs".
    pub(super) fn need(&self, parts: &[String]) -> String {
        match (self.parts, parts) {
            ([Part::Access, _], [access, name]) => format!("to {access} {} {name}", self.need),
            (_, parts) => format!("{} {}", self.need, self.what(parts)),
        }
    }

    /// Returns the lines of a sidecar that grant a request with `parts`, or all of several names. `present` is what the sidecar
    /// has already: a table or a list can be in it once.
    pub(super) fn lines(&self, parts: &[String], present: Present) -> String {
        let quote = |text: &String| toml_string(text);
        let names = parts.iter().map(quote);
        let key = self.key;
        match self.layout {
            Layout::List => {
                let names = Vec::from_iter(names).join(", ");
                match present {
                    Present::Nothing => format!("[grants]\n{key} = [{names}]"),
                    Present::Table => {
                        format!("# add below [grants], which is there:\n{key} = [{names}]")
                    }
                    Present::List => format!("# add to the list `{key}` below [grants]: {names}"),
                }
            }
            Layout::Table => {
                let lines = names.map(|name| format!("\n{name} = \"its value\""));
                let table = match present {
                    Present::Nothing => format!("[grants.{key}]"),
                    _ => format!("# add below [grants.{key}], which is there:"),
                };
                format!("{table}{}", lines.collect::<String>())
            }
            Layout::Entries(template) => {
                let lines = template.iter().map(|line| {
                    let mut parts = self.parts.iter().zip(parts);
                    match parts.find(|(part, _)| part.as_str() == *line) {
                        Some((Part::Port, port)) => format!("\n{line} = {port}"),
                        Some((Part::Private, text)) if text.is_empty() => String::new(),
                        Some((Part::Private, _)) => format!("\n{line} = true"),
                        Some((_, text)) => format!("\n{line} = {}", quote(text)),
                        None => format!("\n{line}"),
                    }
                });
                format!("[[grants.{key}]]{}", lines.collect::<String>())
            }
        }
    }
}

impl PartialEq for GrantKind {
    fn eq(&self, other: &GrantKind) -> bool {
        self.name == other.name
    }
}

impl Eq for GrantKind {}

/// A mistake in a grant: the key of its entry, and a clause about its value.
pub type KeyFault = (&'static str, String);

/// The grants of a sidecar as far as they are read, and what they are checked against.
pub(super) struct GrantReader<'s> {
    /// The plugins folder.
    pub(super) folder: &'s Path,
    /// The package that the sidecar belongs to.
    pub(super) package: &'s str,
    pub(super) rules: &'s HostRules,
    pub(super) grants: Grants,
}

impl GrantReader<'_> {
    /// Read the table `[grants]`.
    ///
    /// # Errors
    /// The first mistake, also a directory or a variable that this host does not have.
    pub(super) fn read(mut self, mut section: Section<'_>) -> Result<Grants, Error> {
        for kind in KINDS {
            if kind.is_named() {
                (kind.read)(&mut section, &mut self)?;
                continue;
            }
            for mut entry in section.tables(kind.key)?.unwrap_or_default() {
                (kind.read)(&mut entry, &mut self)?;
                entry.finish()?;
            }
        }
        section.finish()?;
        Ok(self.grants)
    }
}
