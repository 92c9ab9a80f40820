//! The local token: a secret in a file that only the user of the host can read.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use campanile_control::admin::token_admin::{is_secret, new_secret};
use subtle::ConstantTimeEq as _;

/// Returns the token in a file, or write a new one there.
///
/// # Errors
///
/// A sentence: the file cannot be read or written, has no token, or other users can read it.
pub(crate) fn read_or_create(path: &Path) -> Result<String, String> {
    let shown = path.display();
    let wrong = |what: String| format!("the API is off: the file of its token, {shown}, {what}");
    if let Some(token) = read(path).map_err(wrong)? {
        return Ok(token);
    }
    let token = new_secret();
    let cannot = |error: std::io::Error| {
        wrong(format!(
            "cannot be written: {error}; write another path as `token_file` under `[server]`"
        ))
    };
    // A link to a whole file: another host that starts now never reads half a token.
    let own = path.with_extension(format!("{}.partial", std::process::id()));
    let mut options = OpenOptions::new();
    let file = options
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&own);
    let written = file.and_then(|mut file| {
        file.write_all(format!("{token}\n").as_bytes())?;
        file.sync_all()
    });
    let linked = written.and_then(|()| fs::hard_link(&own, path));
    let _ = fs::remove_file(&own);
    match linked {
        Ok(()) => Ok(token),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => read(path)
            .map_err(wrong)?
            .ok_or_else(|| wrong("was removed".to_owned())),
        Err(error) => Err(cannot(error)),
    }
}

/// Read a token; none when there is no file. The error is a clause.
fn read(path: &Path) -> Result<Option<String>, String> {
    let found = match fs::metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(format!("cannot be read: {error}")),
    };
    if found.mode() & 0o077 != 0 {
        return Err(
            "can be read or written by other users: delete it, or run `chmod 600` on it".to_owned(),
        );
    }
    let text = fs::read_to_string(path).map_err(|error| format!("cannot be read: {error}"))?;
    let token = text.trim();
    if is_secret(token) {
        Ok(Some(token.to_owned()))
    } else {
        Err("has no token: delete it, and the next start writes a new one".to_owned())
    }
}

/// Whether two tokens are equal. The time depends on their lengths alone.
pub(crate) fn is_same(given: &str, token: &str) -> bool {
    given.as_bytes().ct_eq(token.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_token_is_written_once_and_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.token");
        let token = read_or_create(&path).unwrap();
        assert!(is_secret(&token));
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(read_or_create(&path), Ok(token.clone()));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        assert!(is_same(&token, &token));
        assert!(!is_same(&token[1..], &token));
    }

    #[test]
    fn a_file_that_others_can_read_or_that_has_no_token_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.token");
        read_or_create(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(read_or_create(&path).unwrap_err().contains("chmod 600"));
        fs::write(&path, "cmp_short\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert!(read_or_create(&path).unwrap_err().contains("has no token"));
    }
}
