//! `<name>.toml` beside `<name>.wasm`: the operator's settings for a package.
//!
//! Only a sidecar grants anything. Without a sidecar a package runs the schedules that it proposes, without grants.

use std::path::Path;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::grants::{self, SidecarSource};
use super::host_rules::HostRules;
use super::limits::{LimitChanges, MAX_ATTEMPTS_MOST};
use super::quota::QuotaChanges;
use super::schedule_reader::{self, read_context};
use super::spec::ScheduleSpec;
use crate::toml_reader::{Document, Error};
use campanile_sandbox::Grants;

/// The largest sidecar that is read.
pub const SIDECAR_BYTES_MAX: u64 = 1 << 20;

/// The operator's settings for one package. The default sets nothing and grants nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sidecar {
    /// The content of the file; `None` when there is no file.
    pub text: Option<String>,
    /// The only digest that may run, in lower-case hexadecimal.
    pub pin: Option<String>,
    /// The base of the context of every schedule of this package.
    pub context: Map<String, Value>,
    pub limits: LimitChanges,
    pub quota: QuotaChanges,
    /// The attempts of every task; overrides the package's proposals.
    pub max_attempts: Option<u32>,
    /// Replaces the package's proposals; an empty list leaves the package without schedules.
    pub schedules: Option<Vec<ScheduleSpec>>,
    pub grants: Arc<Grants>,
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
        let pin = top.parsed("sha256", |pin| {
            match pin.len() == 64 && pin.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                true => Ok(pin.to_ascii_lowercase()),
                false => Err("must be the 64 hexadecimal digits of a SHA-256".to_owned()),
            }
        })?;
        let context = read_context(&mut top)?;
        let limits = LimitChanges::read(top.table_or_empty("limits")?, rules.memory_bytes_most)?;
        let quota = QuotaChanges::read(top.table_or_empty("quota")?)?;
        let mut retry = top.table_or_empty("retry")?;
        let max_attempts = retry.number("max_attempts", 1, MAX_ATTEMPTS_MOST)?;
        retry.finish()?;
        let schedules = top
            .tables("schedules")?
            .map(schedule_reader::read_sidecar)
            .transpose()?;
        let place = SidecarSource {
            folder: path.parent().unwrap_or(Path::new("")),
            package: &path.file_stem().unwrap_or_default().to_string_lossy(),
            rules,
        };
        let grants = grants::read(top.table_or_empty("grants")?, &place)?;
        top.finish()?;
        Ok(Sidecar {
            text: Some(text.to_owned()),
            pin,
            context,
            limits,
            quota,
            max_attempts,
            schedules,
            grants: Arc::new(grants),
        })
    }
}

#[cfg(test)]
mod tests;
