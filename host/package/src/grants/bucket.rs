//! Buckets of `wasi:keyvalue`.

use super::part::{Part, is_writable};
use super::{GrantKind, GrantReader, Layout};
use crate::names::is_plain_name;
use crate::toml_reader::{Error, Section};
use campanile_model::namespace::in_namespace_of;
use campanile_sandbox::{AccessMode, BucketGrant};

/// The most bytes in the name of a bucket.
const BUCKET_NAME_BYTES_MAX: usize = 128;

pub(super) static KEYVALUE: GrantKind = GrantKind {
    name: "keyvalue",
    key: "keyvalue",
    keys: &[
        "keyvalue[].bucket | text | | at most 128 bytes | The name by which the task opens the bucket.",
        "keyvalue[].access | \"read\" or \"write\" | | | Whether the task may change the bucket.",
        "keyvalue[].namespace | text | | | The name under which the entries are stored. Packages that are granted the same namespace share it; without it, the bucket belongs to the package.",
    ],
    layout: Layout::Entries(&["bucket", "access"]),
    read,
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
    ..GrantKind::DEFAULTS
};

fn read(section: &mut Section<'_>, reader: &mut GrantReader<'_>) -> Result<(), Error> {
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
    if reader
        .grants
        .keyvalue
        .iter()
        .any(|other| other.bucket == bucket)
    {
        let what = format_args!(
            "is \"{bucket}\", the name of another bucket of this file: choose another name"
        );
        return Err(section.error("bucket", what));
    }
    let writable = is_writable(section)?;
    // Packages of another namespace cannot share it.
    let shared = section.parsed("namespace", |shared| if is_plain_name(shared) { Ok(in_namespace_of(reader.package, shared)) } else { Err(format!(
            "is {shared:?}: a namespace that packages share is 1 to 64 letters, digits, `_` or `-`"
        )) })?;
    // No shared namespace has the name of a package before a slash: those of a team begin with `@`, and no package is called
    // like a team.
    let namespace = shared.unwrap_or_else(|| format!("{}/{bucket}", reader.package));
    reader.grants.keyvalue.push(BucketGrant {
        bucket,
        namespace,
        writable,
    });
    Ok(())
}
