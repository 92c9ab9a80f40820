//! The kinds of grants: one table with all that this crate knows of each kind.
//!
//! A new kind is one entry of [`KINDS`], one field of [`Grants`], and its effect in the sandbox.

use std::fmt;
use std::path::Path;

use serde::{Serialize, Serializer};

use super::host_rules::HostRules;
use super::reference::KeyHelp;
use crate::toml_reader::{Error, Section};
use campanile_model::words;
use campanile_sandbox::Grants;

mod bucket;
mod directory;
mod name;
mod network;

/// Every kind of grant, in the order in which requests are listed. A kind may check the kinds before it.
pub const KINDS: [&GrantKind; 8] = [
    &directory::DIRECTORY,
    &name::ENV,
    &name::CONFIG,
    &network::HTTP,
    &bucket::KEYVALUE,
    &network::SOCKET,
    &name::SECRET,
    &name::SECRET_ENV,
];

/// What this crate knows of one kind of grant.
pub struct GrantKind {
    /// The kind in grant records, in requests and in JSON.
    pub name: &'static str,
    /// The key below `[grants]` in a sidecar, and below `requests` in a description.
    pub key: &'static str,
    /// The keys of one entry; one key without a name for a list or a table of texts.
    keys: &'static [KeyHelp<&'static str>],
    /// Read the grants of a sidecar.
    read: fn(&mut Section<'_>, &SidecarPlace<'_>, &mut Grants) -> Result<(), Error>,
    /// Return the parts that are recorded of each grant. Values of variables and of config keys are not.
    pub(super) record: fn(&Grants) -> Vec<Vec<String>>,
    /// Add the grant whose parts were recorded; `None` for parts that this version does not know.
    pub(super) restore: fn(&[&str], &mut Grants) -> Option<()>,
    pub(super) request: RequestForm,
}

/// How a package requests a kind of grant. A request has parts, as the record of a grant begins with.
pub(super) struct RequestForm {
    /// How each part of a request compares with the same part of a recorded grant.
    pub(super) parts: &'static [Match],
    /// Another kind whose grants also satisfy a request.
    pub(super) also: Option<&'static GrantKind>,
    pub(super) list: RequestList,
    /// Return the text that identifies a request among those of its kind.
    pub(super) what: fn(&[String]) -> String,
    /// Return what the package needs, as a clause after "the package needs".
    pub(super) need: fn(&[String]) -> String,
    /// Return the lines of a sidecar that grant a request, or all of several names.
    pub(super) lines: fn(&[String]) -> String,
    /// Whether the sandbox checks each use: a launch is not denied for a missing grant of this kind.
    pub(super) is_checked_at_use: bool,
}

/// How a description lists the requests of a kind.
pub(super) enum RequestList {
    /// Packages cannot request this kind.
    Nothing,
    /// Objects; the function returns the parts of one.
    Objects(fn(&mut Section<'_>) -> Result<Vec<String>, Error>),
    /// Names; the function checks one.
    Names(fn(&str) -> Result<(), String>),
}

/// How a part of a request compares with the same part of a grant.
#[derive(Clone, Copy)]
pub(super) enum Match {
    Exact,
    /// `write` covers `read`.
    Access,
    IgnoreCase,
    /// A pattern covers the hosts below it. Letter case does not count.
    Host,
}

impl Match {
    fn covers(self, granted: &str, wanted: &str) -> bool {
        match self {
            Match::Exact => granted == wanted,
            Match::IgnoreCase => granted.eq_ignore_ascii_case(wanted),
            Match::Access => granted == Access::Write.as_str() || granted == wanted,
            Match::Host => network::covers(granted, wanted),
        }
    }
}

impl RequestForm {
    /// The form of a kind that packages cannot request.
    const NOTHING: RequestForm = RequestForm {
        parts: &[],
        also: None,
        list: RequestList::Nothing,
        what: |parts| parts.join(" "),
        need: |parts| parts.join(" "),
        lines: |parts| parts.join(" "),
        is_checked_at_use: false,
    };

    /// Whether a grant with the parts `granted` covers a request with the parts `wanted`.
    pub(super) fn covers(&self, granted: &[String], wanted: &[String]) -> bool {
        let mut parts = self.parts.iter().zip(granted.iter().zip(wanted));
        parts.all(|(part, (granted, wanted))| part.covers(granted, wanted))
    }
}

impl GrantKind {
    /// Return the kind of that name.
    pub fn by_name(name: &str) -> Option<&'static GrantKind> {
        KINDS.into_iter().find(|kind| kind.name == name)
    }

    /// Return the keys of a sidecar that grant this kind.
    pub fn reference(&self) -> impl Iterator<Item = KeyHelp> {
        self.keys.iter().map(|help| {
            help.at(match help.key {
                "" => format!("grants.{}", self.key),
                key => format!("grants.{}[].{key}", self.key),
            })
        })
    }
}

impl fmt::Debug for GrantKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl fmt::Display for GrantKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name)
    }
}

impl PartialEq for GrantKind {
    fn eq(&self, other: &GrantKind) -> bool {
        self.name == other.name
    }
}

impl Eq for GrantKind {}

impl Serialize for GrantKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name)
    }
}

/// The sidecar that is read, and the host that reads it.
pub(super) struct SidecarPlace<'s> {
    /// The plugins folder.
    pub(super) folder: &'s Path,
    /// The package that the sidecar belongs to.
    pub(super) package: &'s str,
    pub(super) rules: &'s HostRules,
}

/// Read the table `[grants]`.
///
/// # Errors
/// The first mistake, which may be a directory or a variable that this host does not have.
pub(super) fn read(mut section: Section<'_>, place: &SidecarPlace<'_>) -> Result<Grants, Error> {
    let mut grants = Grants::default();
    for kind in KINDS {
        (kind.read)(&mut section, place, &mut grants)?;
    }
    section.finish()?;
    Ok(grants)
}

words! {
    /// Whether a task may change what it is granted.
    Access {
        Read => "read",
        Write => "write",
    }
}

impl Access {
    fn of(is_writable: bool) -> String {
        let access = if is_writable {
            Access::Write
        } else {
            Access::Read
        };
        access.to_string()
    }

    fn is_write(word: &str) -> bool {
        word == Access::Write.as_str()
    }
}

/// Read the required key `access` of a sidecar.
fn is_writable(section: &mut Section<'_>) -> Result<bool, Error> {
    let access = section.parsed("access", Access::read)?;
    let access =
        access.ok_or_else(|| section.error_of_table("needs `access`: \"read\" or \"write\""))?;
    Ok(access == Access::Write)
}

/// Read the key `access` of a request; a request without it is for reading.
fn requested_access(section: &mut Section<'_>) -> Result<String, Error> {
    let access = section.parsed("access", Access::read)?;
    Ok(access.unwrap_or(Access::Read).to_string())
}

/// Read a required key of a request.
fn requested_text(section: &mut Section<'_>, key: &'static str) -> Result<String, Error> {
    let text = section.text(key)?;
    text.ok_or_else(|| section.error(key, "is missing"))
}

fn quote(text: &str) -> String {
    toml::Value::from(text).to_string()
}
