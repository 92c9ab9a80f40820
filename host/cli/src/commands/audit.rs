//! `campanile audit`: verify the record, and keep a checkpoint of it elsewhere.

use std::path::{Path, PathBuf};

use clap::Subcommand;
use serde::Serialize;

use super::package::signing;
use crate::Common;
use crate::output::{self, Failure, Record, Result, failed, refused};
use campanile_control::questions::record::GetCheckpoint;
use campanile_control::reports::verify::{self, AuditReport, Checkpoint, Verify};
use campanile_model::text::{counted, printable_line};
use campanile_package::signature::signature_path;

/// A greater checkpoint file is none.
const FILE_BYTES_MAX: usize = 64 << 10;

#[derive(Subcommand)]
pub(crate) enum Audit {
    /// Compare the record with its rules and with its chain of hashes; exit with 1 if there are faults
    Verify {
        #[command(flatten)]
        wanted: Verify,
        /// A checkpoint that `audit export` wrote: the chain must still have it
        #[arg(long, value_name = "FILE")]
        checkpoint: Option<PathBuf>,
        /// A public key, or the file of one, that signed the checkpoint [default: the `policy.trusted_keys` of the configuration]
        #[arg(long, value_name = "KEY|FILE", requires = "checkpoint")]
        key: Vec<String>,
    },
    /// Write a checkpoint: the newest hash of the chain over the record, to be kept elsewhere
    Export {
        /// The file to write; it must not exist
        file: PathBuf,
        /// Sign it with this secret key; the signature is written beside it, with .minisig at the end of the name
        #[arg(long, value_name = "FILE")]
        key: Option<PathBuf>,
    },
}

/// The checkpoint that `audit export` wrote.
#[derive(Serialize, schemars::JsonSchema)]
pub(crate) struct ExportReport {
    file: PathBuf,
    /// Null when it is not signed.
    signature_file: Option<PathBuf>,
    #[serde(flatten)]
    checkpoint: Checkpoint,
}

impl Record for AuditReport {
    fn print(&self) -> Result {
        let found = &self.verification;
        let removed = match found.slots_removed {
            0 => String::new(),
            n => format!(" ({n} more of days with removed launches)"),
        };
        output::print_line!(
            "{} of {}{removed}, {} ({} not sealed yet), {}, {}, {}",
            counted(found.slots, "slot"),
            counted(found.schedules, "schedule"),
            counted(found.launches, "launch"),
            found.launches_unsealed,
            counted(found.events, "sealed event"),
            counted(found.seals, "seal"),
            counted(found.artifacts, "artifact")
        )?;
        for explained in &found.explained {
            output::print_line!(
                "explained: {}  {}  {}: {}",
                explained.kind,
                explained.subject,
                counted(explained.rows, "row"),
                explained.text
            )?;
        }
        for note in &found.notes {
            output::print_line!("note: {note}")?;
        }
        for fault in &found.faults {
            let line = format!("{}  {}  {}", fault.kind, fault.subject, fault.text);
            output::print_line(&printable_line(&line))?;
        }
        if found.faults_left_out > 0 {
            output::print_line!("{} more faults", found.faults_left_out)?;
        }
        if self.ok {
            output::print_line!("no fault")
        } else {
            output::print_line!("the record has faults")
        }
    }
}

impl Record for ExportReport {}

impl Audit {
    pub(crate) async fn run(self, common: &Common) -> Result {
        match self {
            Audit::Verify {
                mut wanted,
                checkpoint,
                key,
            } => {
                if let Some(path) = checkpoint {
                    wanted.checkpoint = Some(read(common, &path, &key)?);
                }
                let report = verified(common, wanted).await?;
                common.print(&report)?;
                output::check(report.ok)
            }
            Audit::Export { file, key } => export(common, file, key).await,
        }
    }
}

async fn verified(common: &Common, wanted: Verify) -> Result<AuditReport> {
    if let Some(client) = common.client()? {
        return client.post(&["audit", "verify"], &wanted)?.send().await;
    }
    let (db, clock) = common.open_with_clock().await?;
    let now = clock.now();
    let (span, checkpoint) = (wanted.span(now)?, wanted.checkpoint.as_ref());
    Ok(verify::audit(&db, span, checkpoint, now).await?)
}

/// Write the newest link of the chain to `file`, and sign it if a key is given.
async fn export(common: &Common, file: PathBuf, key: Option<PathBuf>) -> Result {
    let secret = key.as_deref().map(signing::secret_key).transpose()?;
    let Some(checkpoint) = common.ask("", &GetCheckpoint {}).await? else {
        return Err(failed!("nothing is sealed yet, so there is no checkpoint")
            .hint("a host seals rows a minute after their decision: run `campanile serve`, and try again then"));
    };
    let mut text = serde_json::to_string_pretty(&checkpoint).map_err(Failure::failed)?;
    text.push('\n');
    signing::write_new(&file, text.as_bytes(), signing::PUBLIC)?;
    let mut signature_file = None;
    if let Some(secret) = secret {
        if let Err(failure) = signing::sign(&file, text.as_bytes(), &secret) {
            // A checkpoint whose signature is missing looks like one that was tampered with.
            let _ = std::fs::remove_file(&file);
            return Err(failure);
        }
        signature_file = Some(signature_path(&file));
    }
    common.print(&ExportReport {
        file,
        signature_file,
        checkpoint,
    })
}

/// Read a checkpoint. If keys are given, or a signature is beside it, the signature must be valid.
fn read(common: &Common, path: &Path, keys: &[String]) -> Result<Checkpoint> {
    let shown = path.display();
    let bytes = signing::read(path)?;
    if !keys.is_empty() || signature_path(path).exists() {
        let keys = signing::keys(keys, common)?;
        signing::verify_beside(path, &bytes, &keys)?;
    }
    if bytes.len() > FILE_BYTES_MAX {
        return Err(refused!("{shown} is too large for a checkpoint")
            .hint("name a file that `campanile audit export` wrote"));
    }
    serde_json::from_slice(&bytes).map_err(|error| {
        refused!("{shown} is no checkpoint: {error}")
            .hint("name a file that `campanile audit export` wrote")
    })
}
