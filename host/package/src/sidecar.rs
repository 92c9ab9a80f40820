//! `<name>.toml` beside `<name>.wasm`: the operator's settings for a package.
//!
//! Only a sidecar grants anything. Without a sidecar a package runs the schedules that it proposes, without grants.

use std::path::Path;
use std::sync::Arc;

use semver::Version;

use super::grant_record::RecordedGrants;
use super::grants::GrantReader;
use super::host_rules::HostRules;
use super::limits::{LimitChanges, MAX_ATTEMPTS_MOST};
use super::manifest::Manifest;
use super::names::name_of;
use super::program;
use super::quota::QuotaChanges;
use super::schedule_reader::{self, read_context};
use super::spec::ScheduleDefinition;
use crate::toml_reader::{Document, Error, Section};
use crate::version_policy::{Approval, VersionPolicy};
use campanile_model::ids::ArtifactDigest;
use campanile_model::json_text::JsonObject;
use campanile_model::text::cut_error;
use campanile_sandbox::{Grants, ProgramInput};

/// The largest sidecar that is read.
pub const SIDECAR_BYTES_MAX: u64 = 1 << 20;

/// The most schedules in one sidecar, since a host compares all of them in one transaction whenever the package changes.
pub const SCHEDULES_MAX: usize = 4_096;

/// Who vouches for bytes being a version of a package.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vouched {
    /// This host: it found them in its folder, or signed by a key it trusts.
    OnThisHost,
    OnlyInDatabase,
}

/// The operator's settings for one package. The default sets nothing and grants nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sidecar {
    /// The content of the file; `None` when there is no file.
    pub text: Option<String>,
    /// The only digest that may run, in lower-case hexadecimal.
    pub pin: Option<String>,
    /// The lowest version, in the package's manifest, that may run.
    pub minimum_version: Option<Version>,
    /// The base of the context of every schedule of this package.
    pub context: JsonObject,
    pub limits: LimitChanges,
    pub quota: QuotaChanges,
    /// The attempts of every task; overrides the package's proposals.
    pub max_attempts: Option<u32>,
    /// Replaces the package's proposals; an empty list leaves the package without schedules.
    pub schedules: Option<Vec<ScheduleDefinition>>,
    pub grants: Arc<Grants>,
    /// What a program gets at its start; none without `[program]`.
    pub program: Option<Arc<ProgramInput>>,
}

impl Sidecar {
    /// Read the sidecar at `path`, whose content is `text`.
    ///
    /// Resolves the granted directories, which must exist, and reads the granted variables from the host's environment.
    ///
    /// # Errors
    /// The first mistake, with its place. A grant that the host cannot give is an error now, not when a run needs it.
    pub fn parse(path: &Path, text: &str, rules: &HostRules) -> Result<Sidecar, Error> {
        let shown = path.display().to_string();
        let document = Document::parse(&shown, text)?;
        let mut top = document.section();
        let folder = path.parent().unwrap_or(Path::new(""));
        let grants = GrantReader {
            folder,
            package: &name_of(path),
            rules,
            grants: Grants::default(),
        };
        let mut sidecar = Sidecar {
            text: Some(text.to_owned()),
            pin: top.parsed("sha256", read_pin)?,
            minimum_version: top.parsed("minimum_version", |version| {
                Version::parse(version)
                    .map_err(|why| format!("must be a semantic version such as \"1.2.0\": {why}"))
            })?,
            context: read_context(&mut top)?,
            limits: LimitChanges::read(top.table_or_empty("limits")?, rules.memory_bytes_most)?,
            quota: QuotaChanges::read(top.table_or_empty("quota")?)?,
            max_attempts: read_max_attempts(top.table_or_empty("retry")?)?,
            schedules: read_schedules(&mut top, grants.package)?,
            grants: Arc::new(grants.read(top.table_or_empty("grants")?)?),
            program: None,
        };
        if let Some(section) = top.table("program")? {
            let program = program::read(section, folder, &sidecar.grants, rules)?;
            sidecar.program = Some(Arc::new(program));
        }
        top.finish()?;
        Ok(sidecar)
    }

    /// Refuse a digest that is not the one that this sidecar of `name` pins, if it pins one or `policy` wants a pin.
    ///
    /// # Errors
    /// A sentence that says what to do.
    pub fn check_pin(
        &self,
        name: &str,
        policy: &VersionPolicy,
        digest: &ArtifactDigest,
    ) -> Result<(), String> {
        match &self.pin {
            Some(pin) if pin != digest.as_str() => Err(format!(
                "its SHA-256 is {digest}, and {name}.toml pins {pin}: put the pinned file back, or change `sha256`"
            )),
            None if policy.approval == Approval::Pinned => Err(format!(
                "no sidecar pins it, and `policy.approval` is \"pinned\": add `sha256 = \"{digest}\"` to {name}.toml"
            )),
            _ => Ok(()),
        }
    }

    /// Refuses this sidecar's grants to bytes known only to the database.
    ///
    /// # Errors
    /// Returns a sentence saying what to do.
    pub fn check_vouched(
        &self,
        name: &str,
        digest: &ArtifactDigest,
        vouched: Vouched,
    ) -> Result<(), String> {
        let grants_nothing =
            self.program.is_none() && RecordedGrants::from(&*self.grants).is_empty();
        let is_pinned = self.pin.as_deref() == Some(digest.as_str());
        match vouched {
            Vouched::OnThisHost => Ok(()),
            Vouched::OnlyInDatabase if grants_nothing || is_pinned => Ok(()),
            Vouched::OnlyInDatabase => Err(format!(
                "only the database knows it as `{name}`: these bytes were never {name}.wasm in this host's plugins folder, so they get none of the grants in {name}.toml; put the file there as {name}.wasm, or have a trusted key sign it"
            )),
        }
    }

    /// Returns this sidecar without any grants missing from `newer`, and following `newer` about versions.
    pub(crate) fn restricted_by(&self, newer: &Sidecar) -> Sidecar {
        Sidecar {
            grants: Arc::new(self.grants.shared_with(&newer.grants)),
            pin: newer.pin.clone(),
            minimum_version: newer.minimum_version.clone(),
            ..self.clone()
        }
    }

    /// Refuse a package whose manifest has a lower version than the sidecar's least one, or none.
    ///
    /// # Errors
    /// A sentence that says what to do.
    pub fn check_version(&self, manifest: &Manifest) -> Result<(), String> {
        let Some(least) = &self.minimum_version else {
            return Ok(());
        };
        let name = &manifest.package;
        let found = match (manifest.semantic_version(), &manifest.version) {
            (Some(version), _) if version >= *least => return Ok(()),
            (Some(version), _) => format!("its version is {version}"),
            (None, Some(text)) => {
                format!("its version `{text}` is no semantic version such as 1.2.0")
            }
            (None, None) => "it has no version".to_owned(),
        };
        Err(cut_error(format!(
            "{found}, and {name}.toml accepts none below {least}: put a newer file there, or change `minimum_version`"
        )))
    }
}

fn read_pin(pin: &str) -> Result<String, String> {
    let is_digest = pin.len() == 64 && pin.bytes().all(|byte| byte.is_ascii_hexdigit());
    let pin = is_digest.then(|| pin.to_ascii_lowercase());
    pin.ok_or_else(|| "must be the 64 hexadecimal digits of a SHA-256".to_owned())
}

/// Read `[retry]`.
fn read_max_attempts(mut section: Section<'_>) -> Result<Option<u32>, Error> {
    let attempts = section.number("max_attempts", 1, MAX_ATTEMPTS_MOST)?;
    section.finish()?;
    Ok(attempts)
}

fn read_schedules(
    top: &mut Section<'_>,
    package: &str,
) -> Result<Option<Vec<ScheduleDefinition>>, Error> {
    let sections = top.tables("schedules")?;
    let n = sections.as_ref().map_or(0, Vec::len);
    if n > SCHEDULES_MAX {
        let what = format_args!(
            "has {n} entries, and {SCHEDULES_MAX} are allowed: put the others into the schedules file"
        );
        return Err(top.error("schedules", what));
    }
    let schedules = sections.map(|sections| schedule_reader::read_sidecar(sections, package));
    schedules.transpose()
}

#[cfg(test)]
mod tests;
