//! The names that packages and schedules may have.

use std::ffi::OsStr;
use std::path::Path;

use campanile_model::namespace::{Namespace, split};
use campanile_model::text;

/// The longest name of a schedule, in bytes, without its namespace.
pub const SCHEDULE_NAME_BYTES_MAX: usize = 128;

/// Returns why `name` cannot name a package, as a sentence; `None` when it can.
pub fn package_name_fault(name: &str) -> Option<String> {
    let (namespace, rest) = split(name);
    if let Some(fault) = namespace_fault(namespace) {
        return Some(format!("the folder of {name:?} {fault}"));
    }
    if is_plain_name(rest) {
        return None;
    }
    Some(format!(
        "{name:?} cannot name a package: rename the file to 1 to 64 letters, digits, `_` or `-`, and `.wasm`"
    ))
}

/// Returns the name of the package in the file at `path`, or of the package of a sidecar there. It has the namespace of the
/// file's folder.
pub fn name_of(path: &Path) -> String {
    let text = |name: Option<&OsStr>| name.unwrap_or_default().to_string_lossy().into_owned();
    let stem = text(path.file_stem());
    let folder = text(path.parent().and_then(Path::file_name));
    if folder.starts_with('@') {
        return format!("{folder}/{stem}");
    }
    stem
}

/// Whether `name` can name a package, or a bucket that packages share. It has no namespace.
pub(crate) fn is_plain_name(name: &str) -> bool {
    name.len() <= 64 && is_plain(name)
}

/// Whether `text` is not empty and has only ASCII letters, digits, `_` and `-`.
pub(crate) fn is_plain(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    !text.is_empty() && text.bytes().all(plain)
}

/// Returns why the part of a name before its slash names no namespace, as a clause.
fn namespace_fault(namespace: Option<&str>) -> Option<String> {
    namespace?.parse::<Namespace>().err()
}

/// Returns why `name` cannot name a schedule, as a clause; `None` when it can.
pub fn schedule_name_fault(name: &str) -> Option<String> {
    let (namespace, rest) = split(name);
    if text::is_plain_name(rest, SCHEDULE_NAME_BYTES_MAX) && namespace_fault(namespace).is_none() {
        return None;
    }
    Some(format!(
        "cannot name a schedule: use 1 to {SCHEDULE_NAME_BYTES_MAX} ASCII letters, digits, `.`, `_` or `-`, but not `.` or `..` alone, and before them `@NAMESPACE/` in a namespace"
    ))
}

/// Returns how strong the claim of `package` to a schedule's name is, 0 meaning none. Packages own the names equal to theirs or continuing
/// it with `-`, `.` or `_`. If several match, the longest package name wins.
pub fn claim(package: &str, schedule: &str) -> usize {
    match schedule.strip_prefix(package) {
        Some(rest) if rest.is_empty() || rest.starts_with(['-', '.', '_']) => package.len(),
        _ => 0,
    }
}

/// Returns why a schedule cannot launch a package, as a sentence; `None` when both are in one namespace, or in none.
pub fn namespace_of_schedule_fault(schedule: &str, package: &str) -> Option<String> {
    let (of_schedule, of_package) = (Namespace::of(schedule), Namespace::of(package));
    if of_schedule == of_package {
        return None;
    }
    let needed = of_package.map_or_else(
        || "a name without a namespace".to_owned(),
        |namespace| format!("a name that begins with `@{namespace}/`"),
    );
    Some(format!(
        "the schedule `{schedule}` and the package `{package}` are not in the same namespace: give the schedule {needed}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_name_is_plain() {
        assert_eq!(package_name_fault("Back_up-2"), None);
        for name in ["", "a b", "a.b", "é", &"a".repeat(65)] {
            assert!(package_name_fault(name).is_some(), "{name}");
        }
    }

    #[test]
    fn a_schedule_name_is_plain() {
        assert_eq!(schedule_name_fault("backup-nightly.v2"), None);
        assert!(schedule_name_fault("").is_some());
        assert!(schedule_name_fault("a b").is_some());
        for name in [".", "..", "@team/.", "@team/.."] {
            assert!(schedule_name_fault(name).is_some(), "{name}");
        }
        assert!(schedule_name_fault(&"a".repeat(129)).is_some());
    }

    #[test]
    fn a_name_may_have_one_namespace() {
        assert_eq!(package_name_fault("@team/backup"), None);
        assert_eq!(schedule_name_fault("@team/nightly.v2"), None);
        for name in [
            "@team/",
            "@/backup",
            "@Team/backup",
            "@a/b/c",
            "@team",
            "team/backup",
            "@a/@b/c",
        ] {
            assert!(package_name_fault(name).is_some(), "{name}");
            assert!(schedule_name_fault(name).is_some(), "{name}");
        }
        let cross = namespace_of_schedule_fault("nightly", "@team/backup").unwrap();
        assert!(cross.contains("begins with `@team/`"), "{cross}");
        assert!(namespace_of_schedule_fault("@team/nightly", "backup").is_some());
        assert_eq!(
            namespace_of_schedule_fault("@team/nightly", "@team/backup"),
            None
        );
    }
}
