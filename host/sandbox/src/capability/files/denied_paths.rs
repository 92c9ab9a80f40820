//! The paths that a call could not open or change for want of a grant.

use crate::capability::shared::to_allow;
use crate::grants::AccessMode;

/// The most paths that are kept: a guest may try many.
const PATHS_MAX: usize = 16;
const PATH_BYTES_MAX: usize = 1 << 10;

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
pub(crate) struct DeniedPaths(Vec<DeniedPath>);

impl DeniedPaths {
    pub(crate) fn add(&mut self, mut denied: DeniedPath) {
        if self.0.len() == PATHS_MAX {
            self.0.remove(0);
        }
        let end = denied.path.floor_char_boundary(PATH_BYTES_MAX);
        denied.path.truncate(end);
        self.0.push(denied);
    }

    /// Return a note that proposes a grant for the path that `message` names, or else for the last denied path.
    ///
    /// The host cannot know whether the path is why the task failed. The note never changes the kind of the failure.
    pub(crate) fn note(&self, message: &str) -> Option<String> {
        let last = || self.0.last().map(DeniedPath::proposal);
        self.note_on_named(message).or_else(last)
    }

    /// Return a note that proposes a grant for the path that `message` names.
    pub(crate) fn note_on_named(&self, message: &str) -> Option<String> {
        let mut newest_first = self.0.iter().rev();
        let named = newest_first.find(|denied| message.contains(&denied.path));
        named.map(DeniedPath::proposal)
    }
}

impl DeniedPath {
    /// Return the sentence that proposes the grant.
    fn proposal(&self) -> String {
        let path = &self.path;
        if let Some(directory) = &self.read_only {
            return format!(
                "{path} cannot be written: {directory} is granted for reading only; to allow it, write `access = \"write\"` \
                 where the package's sidecar file has `[[grants.directories]]` with `guest = {directory:?}`"
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

/// Return the directory that a path lies in, as the task sees it.
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
    fn only_the_last_paths_are_kept_and_no_more_of_one_than_is_read() {
        let mut paths = DeniedPaths::default();
        for n in 0..100 {
            paths.add(denied(&format!("/{n}"), AccessMode::Read, None));
        }
        paths.add(denied(&"é".repeat(PATH_BYTES_MAX), AccessMode::Read, None));
        assert_eq!(paths.0.len(), PATHS_MAX);
        let lengths = paths.0.iter().map(|denied| denied.path.len());
        assert!(lengths.max() <= Some(PATH_BYTES_MAX));
        assert_eq!(paths.0[0].path, "/85");
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
        assert_eq!(parent("/a"), "/a");
    }
}
