//! The names that packages and schedules may have.

/// The longest name of a schedule, in bytes.
pub const SCHEDULE_NAME_BYTES_MAX: usize = 128;

/// Return why `name` cannot name a package, as a sentence; `None` when it can.
pub fn package_name_fault(name: &str) -> Option<String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    if (1..=64).contains(&name.len()) && name.bytes().all(plain) {
        return None;
    }
    Some(format!(
        "{name:?} cannot name a package: rename the file to 1 to 64 letters, digits, `_` or `-`, and `.wasm`"
    ))
}

/// Return why `name` cannot name a schedule, as a clause; `None` when it can.
pub fn schedule_name_fault(name: &str) -> Option<String> {
    let known = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if !name.is_empty() && name.len() <= SCHEDULE_NAME_BYTES_MAX && name.bytes().all(known) {
        return None;
    }
    Some(format!(
        "is {name:?}, which cannot name a schedule: use 1 to {SCHEDULE_NAME_BYTES_MAX} letters, digits, `.`, `_` or `-`"
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
        assert!(schedule_name_fault(&"a".repeat(129)).is_some());
    }
}
