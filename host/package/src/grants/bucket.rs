//! Buckets of `wasi:keyvalue`.

use super::GrantKind;
use super::part::{Part, is_writable};
use crate::names::package_name_fault;
use crate::reference::KeyHelp;
use crate::toml_reader::{Error, Section};
use campanile_sandbox::{AccessMode, BucketGrant};

/// The most bytes in the name of a bucket.
const BUCKET_NAME_BYTES_MAX: usize = 128;

pub(super) static KEYVALUE: GrantKind = GrantKind {
    name: "keyvalue",
    key: "keyvalue",
    keys: &[
        KeyHelp::new(
            "bucket",
            "text",
            "The name by which the task opens the bucket.",
        )
        .within("at most 128 bytes"),
        KeyHelp::new(
            "access",
            "\"read\" or \"write\"",
            "Whether the task may change the bucket.",
        ),
        KeyHelp::new(
            "namespace",
            "text",
            "The name under which the entries are stored. Packages that are granted the same namespace share it; without it, the bucket belongs to the package.",
        ),
    ],
    read: |section, place, grants| {
        for entry in section.tables("keyvalue")?.unwrap_or_default() {
            let grant = read(entry, place.package, &grants.keyvalue)?;
            grants.keyvalue.push(grant);
        }
        Ok(())
    },
    record: |grants| {
        let parts = |grant: &BucketGrant| {
            vec![
                AccessMode::of(grant.writable).to_string(),
                grant.bucket.clone(),
                grant.namespace.clone(),
            ]
        };
        grants.keyvalue.iter().map(parts).collect()
    },
    parts: &[Part::Access, Part::Bucket],
    need: "the bucket",
    ..GrantKind::UNREQUESTED
};

fn read(
    mut section: Section<'_>,
    package: &str,
    others: &[BucketGrant],
) -> Result<BucketGrant, Error> {
    let bucket = section.required(
        "bucket",
        "the name by which the task opens it, such as \"default\"",
    )?;
    if bucket.len() > BUCKET_NAME_BYTES_MAX || bucket.contains(char::is_control) {
        let what = format_args!(
            "is {bucket:?}: write at most {BUCKET_NAME_BYTES_MAX} bytes without control characters"
        );
        return Err(section.error("bucket", what));
    }
    if others.iter().any(|other| other.bucket == bucket) {
        let what = format_args!(
            "is \"{bucket}\", the name of another bucket of this file: choose another name"
        );
        return Err(section.error("bucket", what));
    }
    let writable = is_writable(&mut section)?;
    let namespace = match section.text("namespace")? {
        // A shared namespace cannot have this name, because of the slash.
        None => format!("{package}/{bucket}"),
        Some(shared) if package_name_fault(&shared).is_none() => shared,
        Some(shared) => {
            let what = format_args!(
                "is {shared:?}: a namespace that packages share is 1 to 64 letters, digits, `_` or `-`"
            );
            return Err(section.error("namespace", what));
        }
    };
    section.finish()?;
    Ok(BucketGrant {
        bucket,
        namespace,
        writable,
    })
}
