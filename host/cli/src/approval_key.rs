//! The key that seals decisions about versions, and tokens of who can decide. The hosts of a database have it, and the database doesn't.
//!
//! It's the file `policy.approval_key`, the same on all hosts of a database. Without that setting, the first start of a host
//! makes a key in its own record.

use std::fs::{self, File, Metadata};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use clap::Args;
use rustix::fs::OFlags;
use rustix::process::geteuid;
use serde::Serialize;
use tempfile::NamedTempFile;

use crate::Common;
use crate::commands::package::signing::{PRIVATE, write_new};
use crate::config::Config;
use crate::output::{self, ErrorCode, Failure, Record, Result, failed, refused};
use campanile_control::admin::token_admin::needs_seal;
use campanile_model::approval_key::ApprovalKey;
use campanile_model::text::counted;
use campanile_sandbox::own_files::private_directory;
use campanile_store::package_versions::{self, VersionDecision};
use campanile_store::{hosts, tokens};

/// The key in a host's own record, and that for several hosts unless another is named.
const KEY_FILE: &str = "approval.key";
/// A key file is shorter.
const FILE_BYTES_MAX: u64 = 4096;
/// The bits of a mode that let other users in.
const OTHERS: u32 = 0o077;

/// Returns the key of a host that starts. The first start makes it, unless `policy.approval_key` names one.
///
/// # Errors
/// When the key file can't be used, or the own record can't be written.
pub(crate) fn of_host(config: &Config) -> Result<ApprovalKey> {
    if let Some(key) = configured(config)? {
        return Ok(key);
    }
    let state = config.state_dir();
    match private_directory(&state) {
        Ok(state) => own(&state),
        Err(why) => {
            tracing::warn!(
                "approvals count only until this host ends, and only those through its API, because {} can't hold a key ({why}); name a folder that only this user can write as `state_dir` under `[host]`",
                state.display()
            );
            Ok(ApprovalKey::generate())
        }
    }
}

/// Returns the key with which a command on the database seals.
///
/// Before a host has served the database, an administrator may need a token: the command makes the key that the first host
/// will have.
pub(crate) async fn of_command(common: &Common) -> Result<ApprovalKey> {
    let config = common.config()?;
    if let Some(key) = configured(&config)? {
        return Ok(key);
    }
    let path = path(&config);
    let why = match read(&path) {
        Ok(Some(key)) => return Ok(key),
        Ok(None) => format!("{} doesn't exist", path.display()),
        Err(failure) => failure.message,
    };
    let (mut tx, _) = common.read_with_time().await?;
    if !path.exists()
        && hosts::newest(&mut tx).await?.is_empty()
        && let Ok(state) = private_directory(&config.state_dir())
    {
        return own(&state);
    }
    Err(refused!("this command has no key to seal with: {why}").hint(
        "use the API of a host with --server, or run it on the host's machine as its user, with its configuration; `approval_key` under `[policy]` gives hosts and commands a key in common",
    ))
}

/// Returns the key that a host with this configuration has; none if its first start will make it.
///
/// # Errors
/// When the key file can't be used.
pub(crate) fn current(config: &Config) -> Result<Option<ApprovalKey>> {
    match configured(config)? {
        Some(key) => Ok(Some(key)),
        None => read(&path(config)),
    }
}

fn path(config: &Config) -> PathBuf {
    let own = || config.state_dir().join(KEY_FILE);
    config.policy.approval_key.clone().unwrap_or_else(own)
}

fn configured(config: &Config) -> Result<Option<ApprovalKey>> {
    let Some(path) = &config.policy.approval_key else {
        return Ok(None);
    };
    match read(path)? {
        Some(key) => Ok(Some(key)),
        None => Err(Failure::misconfigured(format!(
            "policy.approval_key: {} doesn't exist",
            path.display()
        ))
        .hint("copy it from another host, or make one with `campanile package approval-key FILE`, on a new database after `campanile db migrate`")),
    }
}

/// Returns the key in a host's own record, and makes it if it doesn't exist.
fn own(state: &Path) -> Result<ApprovalKey> {
    let path = state.join(KEY_FILE);
    if let Some(key) = read(&path)? {
        return Ok(key);
    }
    let key = ApprovalKey::generate();
    let made = || -> io::Result<()> {
        // Complete before it has its name, and private: another host with this record may start at the same time.
        let mut file = NamedTempFile::new_in(state)?;
        file.write_all(key.to_text().as_bytes())?;
        file.as_file().sync_all()?;
        file.persist_noclobber(&path)?;
        File::open(state)?.sync_all()
    };
    match made() {
        Ok(()) => Ok(key),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            read(&path)?.ok_or_else(|| failed!("{} was deleted while it was read", path.display()))
        }
        Err(error) => Err(refused!("{} can't be written: {error}", path.display())),
    }
}

/// Reads a key file of the user; none if it doesn't exist.
fn read(path: &Path) -> Result<Option<ApprovalKey>> {
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let read = || -> io::Result<(Metadata, String)> {
        let file = File::options().read(true).custom_flags(flags).open(path)?;
        let about = file.metadata()?;
        if !about.is_file() {
            return Err(io::Error::other("it's not a regular file"));
        }
        let mut text = String::new();
        file.take(FILE_BYTES_MAX).read_to_string(&mut text)?;
        Ok((about, text))
    };
    let shown = path.display();
    let (about, text) = match read() {
        Ok(read) => read,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            let why = format!("the key {shown} can't be read: {error}");
            return Err(Failure::misconfigured(why).hint(
                "name a key file made with `campanile package approval-key FILE`, and see that this user can read it",
            ));
        }
    };
    let (user, owner) = (geteuid(), about.uid());
    if owner != user.as_raw() && owner != 0 && !user.is_root() {
        let why = format!("the key {shown} belongs to another user, {owner}");
        return Err(Failure::misconfigured(why).hint(format!("`chown {} {shown}`", user.as_raw())));
    }
    if about.mode() & OTHERS != 0 {
        return Err(
            Failure::misconfigured(format!("other users can open the key {shown}")).hint(format!(
                "`chmod 600 {shown}`, and make a new key if others may have read it"
            )),
        );
    }
    match ApprovalKey::from_text(&text) {
        Some(key) => Ok(Some(key)),
        None => Err(
            Failure::misconfigured(format!("{shown} isn't a complete key for approvals")).hint(
                "if it's another file, name a key made with `campanile package approval-key FILE`; if it was damaged, restore it from a backup, or move it away, make a new key, and approve the active versions again",
            ),
        ),
    }
}

/// Make a key for approvals.
#[derive(Args)]
pub(crate) struct MakeKey {
    /// The key file to write
    #[arg(default_value = KEY_FILE)]
    file: PathBuf,
}

/// A new key for approvals.
#[derive(Serialize, schemars::JsonSchema)]
pub(crate) struct ApprovalKeyReport {
    /// The key file, for `policy.approval_key`.
    key_file: PathBuf,
    /// The decisions that the former key had sealed, and this one has too now.
    sealed: usize,
    /// The tokens that the former key had sealed, and this one has too now.
    sealed_tokens: usize,
    /// The approvals on record that the former key hadn't sealed, and that don't count.
    uncounted: usize,
    /// The tokens of approvers and administrators that the former key hadn't sealed, and that are only editors.
    uncounted_tokens: usize,
}

impl MakeKey {
    pub(crate) async fn run(self, common: &Common) -> Result {
        if self.file.symlink_metadata().is_ok() {
            return Err(refused!("{} exists already", self.file.display())
                .code(ErrorCode::Conflict)
                .hint("name another file, or move this key away"));
        }
        // A configuration may name the file that is made now.
        let before = read(&path(&common.config()?))?;
        let key = ApprovalKey::generate();
        let (mut tx, _) = common.write_with_time().await?;
        let decisions = package_versions::decisions(&mut tx).await?;
        let tokens = tokens::list(&mut tx, true, i64::MAX).await?;
        let before = before.as_ref();
        let (sealed, others): (Vec<_>, Vec<_>) =
            (decisions.into_iter()).partition(|it| before.is_some_and(|key| it.is_sealed_by(key)));
        let (tokens, other_tokens): (Vec<_>, Vec<_>) =
            (tokens.into_iter()).partition(|it| before.is_some_and(|key| it.is_sealed_by(key)));
        if let Some(before) = before {
            // With the former seal, hosts that still have the former key continue.
            package_versions::seal_again(&mut tx, &sealed, &[&key, before]).await?;
            tokens::seal_again(&mut tx, &tokens, &[&key, before]).await?;
        }
        // Seals of a key that can't be kept would never count.
        write_new(&self.file, key.to_text().as_bytes(), PRIVATE)?;
        if let Err(error) = tx.commit().await {
            let _ = fs::remove_file(&self.file);
            return Err(Failure::from(error));
        }
        let approvals = (others.iter()).filter(|it| it.decision == VersionDecision::Approved);
        let approvers =
            (other_tokens.iter()).filter(|it| needs_seal(it.role) && it.revoked_at.is_none());
        common.print(&ApprovalKeyReport {
            key_file: self.file,
            sealed: sealed.len(),
            sealed_tokens: tokens.len(),
            uncounted: approvals.count(),
            uncounted_tokens: approvers.count(),
        })
    }
}

impl Record for ApprovalKeyReport {
    fn print(&self) -> Result {
        output::print_detail(self)?;
        if self.uncounted > 0 {
            output::print_message!(
                "warning: {} don't count, because the key until now hasn't sealed them; approve the versions again that are active or wait",
                counted(self.uncounted, "approval")
            );
        }
        if self.uncounted_tokens > 0 {
            output::print_message!(
                "warning: {} of approvers or administrators {} only editors, because the key until now hasn't sealed them; revoke and create them again",
                counted(self.uncounted_tokens, "token"),
                if self.uncounted_tokens == 1 {
                    "is"
                } else {
                    "are"
                }
            );
        }
        output::print_message!(
            "hint: copy the file to all hosts and to where commands approve, name it in their configuration, and restart the hosts:\n[policy]\napproval_key = {:?}",
            self.key_file
        );
        Ok(())
    }
}
