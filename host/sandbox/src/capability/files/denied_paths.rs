//! The paths that a call could not open or change for want of a grant.

use std::collections::HashMap;

use wasmtime_wasi::p2::bindings::filesystem::types::DescriptorType;

use crate::capability::files::devices::DEVICES;
use crate::capability::shared::to_allow;
use crate::grants::{AccessMode, Device};

/// The most paths that are kept: a guest may try many.
const PATHS_MAX: usize = 16;
const PATH_BYTES_MAX: usize = 1 << 10;

/// How many escaped paths are remembered at most.
const ESCAPED_MAX: usize = 1 << 10;

/// One path that was denied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DeniedPath {
    /// As the guest sees it.
    pub(crate) path: String,
    pub(crate) mode: AccessMode,
    /// The guest's path of the directory that holds it and that is granted for reading only; none when no granted
    /// directory holds it.
    pub(crate) read_only: Option<String>,
}

/// The last paths that were denied.
#[derive(Default)]
pub(crate) struct DeniedPaths {
    paths: Vec<DeniedPath>,
    /// Listed paths with escaped names, and the type of each entry.
    escaped: HashMap<String, DescriptorType>,
}

impl DeniedPaths {
    /// Records a path, ignoring overlong ones: cutting them could leave part of a secret unrecognised.
    pub(crate) fn add(&mut self, denied: DeniedPath) {
        if denied.path.len() > PATH_BYTES_MAX {
            return;
        }
        if self.paths.len() == PATHS_MAX {
            self.paths.remove(0);
        }
        self.paths.push(denied);
    }

    /// Records a path as listed, with a name that isn't UTF-8.
    pub(crate) fn add_escaped(&mut self, path: String, kind: DescriptorType) {
        if self.escaped.len() < ESCAPED_MAX && path.len() <= PATH_BYTES_MAX {
            self.escaped.insert(path, kind);
        }
    }

    /// Returns the type of the entry whose escaped name was listed as `path`.
    pub(super) fn escaped(&self, path: &str) -> Option<DescriptorType> {
        self.escaped.get(path).copied()
    }

    /// Returns a note that proposes a grant for the path that `message` names, or else for the last denied path.
    ///
    /// The host cannot know whether the path is why the task failed. The note never changes the kind of the failure.
    pub(crate) fn note(&self, message: &str) -> Option<String> {
        let last = || self.paths.last().map(DeniedPath::proposal);
        self.note_on_named(message).or_else(last)
    }

    /// Returns a note about the path named in `message`.
    pub(crate) fn note_on_named(&self, message: &str) -> Option<String> {
        if let Some(path) = self.escaped.keys().find(|path| message.contains(*path)) {
            return Some(format!(
                "the name of {path} is not UTF-8, and its other bytes are escaped here; no task can open it: rename it"
            ));
        }
        let mut newest_first = self.paths.iter().rev();
        let named = newest_first.find(|denied| message.contains(&denied.path));
        named.map(DeniedPath::proposal)
    }
}

impl DeniedPath {
    /// Returns the sentence that proposes the grant.
    fn proposal(&self) -> String {
        let path = &self.path;
        if let Some(directory) = &self.read_only {
            return format!(
                "{path} cannot be written: {directory} is granted for reading only; to allow it, write `access = \"write\"` \
                 where the package's sidecar file has `[[grants.directories]]` with `guest = {directory:?}`"
            );
        }
        if let Some(device) = device(path) {
            return format!(
                "{path} is a device that is not granted; to allow it, add `grants.devices = [\"{device}\"]` at the top of the \
                 package's sidecar file"
            );
        }
        let grant = [
            ("host", "/a/directory/of/this/host".into()),
            ("guest", parent(path).into()),
            ("access", self.mode.as_str().into()),
        ];
        format!(
            "{path} lies in no granted directory; {}",
            to_allow("directories", grant)
        )
    }
}

fn device(path: &str) -> Option<Device> {
    let name = path.strip_prefix(DEVICES)?.strip_prefix('/')?;
    name.parse().ok()
}

/// Returns the directory that a path lies in, as the task sees it.
fn parent(path: &str) -> &str {
    match path.rsplit_once('/') {
        Some(("", _)) | None => path,
        Some((parent, _)) => parent,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn denied(path: &str, mode: AccessMode, read_only: Option<&str>) -> DeniedPath {
        DeniedPath {
            path: path.to_owned(),
            mode,
            read_only: read_only.map(str::to_owned),
        }
    }

    #[test]
    fn the_note_is_about_the_path_that_the_message_names_or_the_last_one() {
        let mut paths = DeniedPaths::default();
        assert_eq!(paths.note("No such file or directory"), None);
        paths.add(denied("/data/a.txt", AccessMode::Read, None));
        paths.add(denied("/etc/b.txt", AccessMode::Read, None));
        for (message, path) in [
            ("error: FileNotFound", "/etc/b.txt lies"),
            ("it did not work", "/etc/b.txt lies"),
            ("cannot open /data/a.txt", "/data/a.txt lies"),
        ] {
            let note = paths.note(message).unwrap();
            assert!(note.starts_with(path), "{message}: {note}");
        }
    }

    #[test]
    fn only_the_last_paths_are_kept_and_none_in_part() {
        let mut paths = DeniedPaths::default();
        for n in 0..100 {
            paths.add(denied(&format!("/{n}"), AccessMode::Read, None));
        }
        paths.add(denied(&"é".repeat(PATH_BYTES_MAX), AccessMode::Read, None));
        assert_eq!(paths.paths.len(), PATHS_MAX);
        let lengths = paths.paths.iter().map(|denied| denied.path.len());
        assert!(lengths.max() <= Some(PATH_BYTES_MAX));
        assert_eq!(paths.paths[0].path, "/84");
    }

    #[test]
    fn a_proposal_has_the_lines_that_would_allow_it() {
        assert_eq!(
            denied("/data/a.txt", AccessMode::Read, None).proposal(),
            "/data/a.txt lies in no granted directory; to allow it, add `grants.directories = [{ \
             host = \"/a/directory/of/this/host\", guest = \"/data\", access = \"read\" }]` at the top of the package's sidecar file"
        );
        let written = denied("/data/a.txt", AccessMode::Write, None).proposal();
        assert!(
            written.contains("guest = \"/data\", access = \"write\" }]`"),
            "{written}"
        );
        assert_eq!(
            denied("/data/a/b.txt", AccessMode::Write, Some("/data")).proposal(),
            "/data/a/b.txt cannot be written: /data is granted for reading only; to allow it, write `access = \"write\"` \
             where the package's sidecar file has `[[grants.directories]]` with `guest = \"/data\"`"
        );
        let device = denied("/dev/urandom", AccessMode::Read, None).proposal();
        assert!(
            device.contains("`grants.devices = [\"urandom\"]`"),
            "{device}"
        );
        assert_eq!(parent("/a"), "/a");
    }
}
