//! What a program gets at its start: arguments, variables, stdin and a working directory.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use campanile_model::text::size_text;
use hyper::body::Bytes;
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::template::{ContextKey, Template};

/// The largest file that a program gets as its stdin. The host holds it in memory during the call.
pub const STDIN_BYTES_MAX: u64 = 16 << 20;

/// The most bytes of the context in all arguments and variables of a program.
pub const ARGUMENT_BYTES_MAX: usize = 1 << 20;

/// What a program gets at its start. A task component gets none of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramInput {
    /// The name of the program, which is its first argument; none is the name of the task.
    pub argv0: Option<String>,
    /// The arguments after the name.
    pub args: Vec<Template>,
    pub stdin: Stdin,
    /// Variables whose values are in the context, by their names.
    pub env_from_context: BTreeMap<String, ContextKey>,
    /// Whether the variables that begin with [`ENV_PREFIX`](crate::ENV_PREFIX) are set.
    pub campanile_env: bool,
    /// The working directory, a path as the program sees it.
    pub cwd: Option<String>,
}

impl Default for ProgramInput {
    fn default() -> ProgramInput {
        ProgramInput {
            argv0: None,
            args: Vec::new(),
            stdin: Stdin::default(),
            env_from_context: BTreeMap::new(),
            campanile_env: true,
            cwd: None,
        }
    }
}

impl ProgramInput {
    /// Returns the texts passed to the program as written.
    pub fn literals(&self) -> impl Iterator<Item = &str> {
        let stdin = match &self.stdin {
            Stdin::Bytes(text) => std::str::from_utf8(text).ok(),
            Stdin::Context | Stdin::Empty | Stdin::File(_) => None,
        };
        let args = self.args.iter().flat_map(Template::literals);
        args.chain(stdin).chain(self.argv0.as_deref())
    }

    /// Whether values of the context are needed for it, apart from stdin.
    pub(crate) fn needs_context(&self) -> bool {
        !self.env_from_context.is_empty() || self.args.iter().any(Template::needs_context)
    }
}

/// What a program reads from stdin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Stdin {
    /// The context as one line of JSON.
    #[default]
    Context,
    /// Nothing.
    Empty,
    Bytes(Bytes),
    /// The content of a file, which is read for each call.
    File(PathBuf),
}

/// Check that the file at `path` can be the stdin of a program. Blocks.
///
/// # Errors
/// A clause about the file.
pub fn check_stdin_file(path: &Path) -> Result<(), String> {
    open_stdin(path).map(drop)
}

/// Returns the content of the file at `path`; the error is a clause about the file. Blocks.
pub(crate) fn read_stdin(path: &Path) -> Result<Bytes, String> {
    let file = open_stdin(path)?;
    let mut bytes = Vec::new();
    let read = file.take(STDIN_BYTES_MAX + 1).read_to_end(&mut bytes);
    read.map_err(|error| format!("cannot be read: {error}"))?;
    check_size(bytes.len() as u64)?;
    Ok(bytes.into())
}

/// Open a regular file. A link is not followed: a task that may write where it leads could choose what another reads.
fn open_stdin(path: &Path) -> Result<File, String> {
    // Opening a pipe would wait for its writer.
    let flags = OFlags::NONBLOCK | OFlags::NOFOLLOW;
    let mut options = File::options();
    let options = options.read(true).custom_flags(flags.bits().cast_signed());
    let file = options.open(path).map_err(|error| {
        let is_link = error.raw_os_error() == Some(Errno::LOOP.raw_os_error());
        if is_link {
            "is a link: put the file itself there".to_owned()
        } else {
            format!("cannot be read: {error}")
        }
    })?;
    let found = file.metadata();
    let found = found.map_err(|error| format!("cannot be inspected: {error}"))?;
    if !found.is_file() {
        return Err("is not a regular file".to_owned());
    }
    check_size(found.len())?;
    Ok(file)
}

fn check_size(bytes: u64) -> Result<(), String> {
    if bytes <= STDIN_BYTES_MAX {
        Ok(())
    } else {
        Err(format!("is larger than {}", size_text(STDIN_BYTES_MAX)))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use rustix::fs::{CWD, Mode, mkfifoat};

    use super::*;

    #[test]
    fn only_a_regular_file_of_a_bounded_size_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("file"), "ding").unwrap();
        symlink("file", at("link")).unwrap();
        mkfifoat(CWD, at("pipe"), Mode::RUSR | Mode::WUSR).unwrap();
        let large = File::create(at("large")).unwrap();
        large.set_len(STDIN_BYTES_MAX).unwrap();
        assert_eq!(read_stdin(&at("file")).unwrap(), "ding");
        assert!(check_stdin_file(&at("large")).is_ok());
        large.set_len(STDIN_BYTES_MAX + 1).unwrap();
        for (name, expected) in [
            ("gone", "cannot be read: No such file"),
            ("link", "is a link"),
            ("pipe", "is not a regular file"),
            ("", "is not a regular file"),
            ("large", "is larger than 16MiB"),
        ] {
            let error = check_stdin_file(&at(name)).unwrap_err();
            assert!(error.starts_with(expected), "{name}: {error}");
        }
    }
}
