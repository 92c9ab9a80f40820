//! Directories of the host.

use std::fs;
use std::path::{Path, PathBuf};

use super::part::{Part, check_guest_path, is_writable};
use super::{GrantKind, GrantReader, KeyFault, Layout};
use crate::files::is_package_file;
use crate::host_rules::{OwnPath, OwnPathKind};
use crate::toml_reader::{Error, Section};
use campanile_model::text::size_text;
use campanile_sandbox::mounts::{Mounts, pseudo_at};
use campanile_sandbox::own_files::PathTrace;
use campanile_sandbox::{
    AccessMode, DirectoryGrant, DirectoryQuota, QUOTA_BLOCK_BYTES, QUOTA_FILES_MOST,
};

pub(super) static DIRECTORY: GrantKind = GrantKind {
    name: "directory",
    key: "directories",
    keys: &[
        "directories[].host | path | | | A directory of this machine. A relative path starts at the sidecar's folder.",
        "directories[].guest | path | | | The path under which the task sees the directory.",
        "directories[].access | \"read\" or \"write\" | | | Whether the task may change the directory.",
        "directories[].max_bytes | size | unlimited | from `\"4KiB\"` | The most that the directory may hold, including what other programs put there. Each file counts its size in whole blocks of 4 KiB, each entry at least one block. Beyond it, a task's write fails with the error `quota`. Only with `access = \"write\"`.",
        "directories[].max_files | number | unlimited | 1 to 1000000 | The most files, directories and links below the directory, including those of other programs. Only with `access = \"write\"`.",
    ],
    layout: Layout::Entries(&["host = \"/a/directory/of/this/host\"", "guest", "access"]),
    read,
    record: |grants| {
        let grants = grants.directories.iter();
        let record = grants.map(|grant| {
            let host = grant.host.display().to_string();
            let access = AccessMode::of(grant.writable).to_string();
            let mut record = vec![access, grant.guest.clone(), host];
            let DirectoryQuota {
                max_bytes,
                max_files,
            } = grant.quota;
            record.extend(max_bytes.map(|most| format!("max_bytes={}", size_text(most))));
            record.extend(max_files.map(|most| format!("max_files={most}")));
            record
        });
        record.collect()
    },
    parts: &[Part::Access, Part::GuestPath],
    need: "the directory",
    ..GrantKind::DEFAULTS
};

fn read(section: &mut Section<'_>, reader: &mut GrantReader<'_>) -> Result<(), Error> {
    let host = section.required("host", "a directory of this machine")?;
    let guest = section.required("guest", "the path under which the task sees it")?;
    let writable = is_writable(section)?;
    let quota = read_quota(section, writable)?;
    let host = reader.folder.join(host);
    add(reader, &host, guest, writable, quota).map_err(|(key, what)| section.error(key, what))
}

/// Grant the directory at `host`, which may be relative to the working directory of the process.
pub(super) fn add(
    reader: &mut GrantReader<'_>,
    host: &Path,
    guest: String,
    writable: bool,
    quota: DirectoryQuota,
) -> Result<(), KeyFault> {
    check_guest_path(&guest).map_err(|what| ("guest", what))?;
    let mut others = reader.grants.directories.iter();
    if others.any(|other| other.guest == guest) {
        let what =
            format!("is \"{guest}\", the path of another granted directory: choose another path");
        return Err(("guest", what));
    }
    let host = find_directory(host).map_err(|what| ("host", what))?;
    check_access(&host, writable, reader).map_err(|what| ("host", what))?;
    let grant = DirectoryGrant {
        host,
        guest,
        writable,
        quota,
    };
    if let Some(other) = reader
        .grants
        .directories
        .iter()
        .find(|one| evades(one, &grant))
    {
        let what = format!(
            "is {}, and {} is also granted for writing as {}: the task could evade the quota of one through the other; grant one of them, grant one only for reading, or leave out the quotas",
            grant.host.display(),
            other.host.display(),
            other.guest
        );
        return Err(("host", what));
    }
    reader.grants.directories.push(grant);
    Ok(())
}

/// Read `max_bytes` and `max_files`.
fn read_quota(section: &mut Section<'_>, writable: bool) -> Result<DirectoryQuota, Error> {
    let max_bytes = section.size("max_bytes", 0, i64::MAX as u64)?;
    let max_files = section.number("max_files", 0, QUOTA_FILES_MOST)?;
    for (key, most) in [("max_bytes", max_bytes), ("max_files", max_files)] {
        let what = match most {
            None => continue,
            Some(_) if !writable => {
                "limits what a task may write, and `access` is \"read\": leave the key out, or write `access = \"write\"`"
            }
            Some(0) => {
                "is a quota of 0, with which nothing may be written: write `access = \"read\"`, or leave the key out"
            }
            Some(most) if key == "max_bytes" && most < QUOTA_BLOCK_BYTES => {
                "is less than \"4KiB\", which the smallest file counts: write at least that"
            }
            Some(_) => continue,
        };
        return Err(section.error(key, what));
    }
    Ok(DirectoryQuota {
        max_bytes,
        max_files,
    })
}

/// Whether a task with both grants could evade the quota of one of them: they are writable, and one directory contains
/// the other.
fn evades(one: &DirectoryGrant, other: &DirectoryGrant) -> bool {
    let overlap = one.host.starts_with(&other.host) || other.host.starts_with(&one.host);
    let has_quota = one.quota.is_set() || other.quota.is_set();
    overlap && has_quota && one.writable && other.writable
}

/// Returns where the directory at `path` is, resolving links: a link put in its place later is not granted.
fn find_directory(path: &Path) -> Result<PathBuf, String> {
    let path =
        std::path::absolute(path).map_err(|error| format!("is \"{}\": {error}", path.display()))?;
    let shown = path.display();
    match path.canonicalize() {
        Ok(found) if found.is_dir() => Ok(found),
        Ok(_) => Err(format!("is {shown}, which is not a directory")),
        Err(error) => Err(format!(
            "is {shown}, which cannot be used ({error}): create it, or correct the path"
        )),
    }
}

/// Refuses a directory in which a task could change what the host does, read a secret, or reach a pseudo file system.
///
/// Each path of the host is resolved again, since links may have changed since the host started. Anything mounted below the directory
/// counts too, as the task can reach it.
fn check_access(path: &Path, writable: bool, reader: &GrantReader<'_>) -> Result<(), String> {
    let mounts = Mounts::read();
    if let Some(name) = pseudo_at(path) {
        return Err(format!(
            "is {}, which belongs to the pseudo file system {name}: a task that can open its files could control the host or read its secrets; grant a directory with ordinary files, and copy there what the task needs",
            path.display()
        ));
    }
    check_own_paths(path, writable, reader, &mounts)?;
    for mounted in mounts.below(path) {
        check_own_paths(mounted, writable, reader, &mounts).map_err(|why| {
            let (path, mounted) = (path.display(), mounted.display());
            format!("is {path}, below which {mounted} is mounted; that {why}")
        })?;
    }
    match mounts.pseudo_below(path) {
        Some((point, name)) => Err(format!(
            "is {}, below which the pseudo file system {name} is mounted at {}: a task that can open its files could control the host or read its secrets; grant a directory beside it",
            path.display(),
            point.display()
        )),
        None => Ok(()),
    }
}

fn check_own_paths(
    path: &Path,
    writable: bool,
    reader: &GrantReader<'_>,
    mounts: &Mounts,
) -> Result<(), String> {
    let own_paths = &reader.rules.own_paths;
    let plugins = plugins_of(reader.folder);
    let is_open = |own: &&OwnPath| writable && is_writable_through(own, path, mounts);
    let why = if writable && PathTrace::of(plugins).passes(path) {
        "which is or contains the plugins folder: a task that can write there could grant itself anything; grant another directory, or only \"read\"".to_owned()
    } else if writable && let Some(link) = find_link_through(path, plugins) {
        format!(
            "through which the link {} of the plugins folder leads: a task that can write there could replace that file; grant another directory, or only \"read\"",
            link.display()
        )
    } else if let Some(own) = own_paths.iter().find(is_open) {
        format!(
            "which overlaps {own}, or a link that leads to it: a task that can write there could change what the host does; grant another directory{}",
            if own.kind.may_be_read() {
                ", or only \"read\""
            } else {
                ""
            }
        )
    } else if let Some(own) = own_paths.iter().find(|own| is_record_reached(own, path)) {
        format!(
            "from which {own} can be read, with the sidecars of all packages and the values in them; grant another directory"
        )
    } else if let Some(own) = own_paths.iter().find(|own| is_secret_below(own, path)) {
        format!(
            "which contains {own}: a task that can read there could read the secret; grant another directory, or the secret by its name"
        )
    } else {
        return Ok(());
    };
    Err(format!("is {}, {why}", path.display()))
}

/// Returns the plugins folder for a sidecar in `folder`, possibly a namespace's folder.
fn plugins_of(folder: &Path) -> &Path {
    let name = folder.file_name().unwrap_or_default();
    let is_namespace = name.as_encoded_bytes().starts_with(b"@");
    let around = folder.parent().filter(|_| is_namespace);
    around.unwrap_or(folder)
}

/// Whether a task writing to the directory `granted` could change or replace `own`, be it through a link on the way or a second
/// mount.
fn is_writable_through(own: &OwnPath, granted: &Path, mounts: &Mounts) -> bool {
    let trace = PathTrace::of(&own.path);
    trace.is_open_to_writer_of(granted) || mounts.overlap(granted, trace.end())
}

/// Whether reading the directory `granted` gives access to any of the host's own record.
fn is_record_reached(own: &OwnPath, granted: &Path) -> bool {
    let reaches = |trace: PathTrace| trace.ends_below(granted) || trace.contains(granted);
    own.kind == OwnPathKind::State && reaches(PathTrace::of(&own.path))
}

fn is_secret_below(own: &OwnPath, granted: &Path) -> bool {
    own.kind == OwnPathKind::SecretFile && PathTrace::of(&own.path).ends_below(granted)
}

/// Returns a link among the packages and sidecars of the plugins folder, including namespaces, leading through the directory `granted`.
fn find_link_through(granted: &Path, plugins: &Path) -> Option<PathBuf> {
    let plugins = PathTrace::of(plugins).end().to_owned();
    let files = |folder: &Path| fs::read_dir(folder).into_iter().flatten().flatten();
    let namespaces = files(&plugins).map(|entry| entry.path());
    let namespaces = namespaces.filter(|path| path.is_dir() && plugins_of(path) == plugins);
    let folders = namespaces.chain([plugins.clone()]);
    let mut links = folders
        .flat_map(|folder| files(&folder).collect::<Vec<_>>())
        .filter(|file| file.file_type().is_ok_and(|kind| kind.is_symlink()))
        .filter(|file| is_package_file(&file.file_name().to_string_lossy()))
        .map(|file| file.path());
    links.find(|link| PathTrace::of(link).passes(granted))
}
