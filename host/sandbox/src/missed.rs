//! What a guest wanted of paths and no grant let it, and whether that is why it gave up.

use super::grants::grant_line;

/// Of the paths that are remembered: a guest may try many.
const PATHS_MAX: usize = 16;
const PATH_BYTES_MAX: usize = 1 << 10;

/// How the languages say that something is not there, in lower case.
const NOT_THERE: [&str; 6] = [
    "no such file",
    "notfound",
    "enoent",
    "no-entry",
    "file does not exist",
    "os error 44",
];

/// How they say that something may not be written.
const NOT_PERMITTED: [&str; 9] = [
    "not permitted",
    "not-permitted",
    "notpermitted",
    "permission denied",
    "permissiondenied",
    "accessdenied",
    "eperm",
    "eacces",
    "read-only file system",
];

/// What was wanted of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    Read,
    Write,
}

/// One path that was refused for want of a grant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refused {
    /// As the guest sees it.
    pub(super) path: String,
    pub(super) wish: Wish,
    /// The guest's path of the directory that holds it, which may only be read; none when no directory does.
    pub(super) read_only: Option<String>,
}

/// The paths that were refused, the last of them.
#[derive(Default)]
pub(super) struct Missed(Vec<Refused>);

impl Missed {
    pub(super) fn add(&mut self, mut refused: Refused) {
        if self.0.len() == PATHS_MAX {
            self.0.remove(0);
        }
        let end = refused.path.floor_char_boundary(PATH_BYTES_MAX);
        refused.path.truncate(end);
        self.0.push(refused);
    }

    /// The path for whose sake the guest gave up, going by what it said: one that it names, else the last, if it says
    /// what it was told then.
    pub(super) fn blamed(&self, said: &str) -> Option<&Refused> {
        let paths = self.0.iter().rev();
        let mut named = paths.filter(|refused| said.contains(&refused.path));
        named.next().or_else(|| {
            let said = said.to_lowercase();
            let last = self.0.last()?;
            last.words().any(|word| said.contains(word)).then_some(last)
        })
    }
}

impl Refused {
    /// How a guest would speak of it.
    fn words(&self) -> impl Iterator<Item = &'static str> {
        let not_there: &[&str] = match self.read_only {
            None => &NOT_THERE,
            Some(_) => &[],
        };
        let not_permitted: &[&str] = match self.wish {
            Wish::Read => &[],
            Wish::Write => &NOT_PERMITTED,
        };
        not_there.iter().chain(not_permitted).copied()
    }

    /// The sentence that refuses it, with the lines that would allow it.
    pub(super) fn refusal(&self) -> String {
        let path = &self.path;
        if let Some(directory) = &self.read_only {
            return format!(
                "{path} cannot be written: {directory} is granted to be read only; to allow it, write `access = \"write\"` \
                 where the package's sidecar file has `[[grants.directories]]` with `guest = {directory:?}`"
            );
        }
        let access = match self.wish {
            Wish::Read => "read",
            Wish::Write => "write",
        };
        let grant = [
            ("host", "/a/directory/of/this/host".into()),
            ("guest", parent(path).into()),
            ("access", access.into()),
        ];
        format!(
            "{path} lies in no directory that is granted; to allow it, add `{}` at the top of the package's sidecar file",
            grant_line("directories", grant)
        )
    }
}

/// The directory that a path lies in, as a task sees it.
fn parent(path: &str) -> &str {
    match path.rsplit_once('/') {
        Some(("", _)) | None => path,
        Some((parent, _)) => parent,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(path: &str, wish: Wish, read_only: Option<&str>) -> Refused {
        Refused {
            path: path.to_owned(),
            wish,
            read_only: read_only.map(str::to_owned),
        }
    }

    fn blamed(missed: &Missed, said: &str) -> Option<String> {
        missed.blamed(said).map(|refused| refused.path.clone())
    }

    #[test]
    fn a_path_is_blamed_when_the_guest_says_so() {
        let mut missed = Missed::default();
        assert_eq!(blamed(&missed, "No such file or directory"), None);
        missed.add(refused("/data/a.txt", Wish::Read, None));
        missed.add(refused("/etc/b.txt", Wish::Read, None));
        for said in [
            "the disk is full",
            "the user was not found",
            "not permitted",
        ] {
            assert_eq!(blamed(&missed, said), None, "{said}");
        }
        assert_eq!(
            blamed(&missed, "error: FileNotFound").as_deref(),
            Some("/etc/b.txt")
        );
        assert_eq!(
            blamed(&missed, "cannot open /data/a.txt").as_deref(),
            Some("/data/a.txt")
        );
    }

    #[test]
    fn a_writing_that_was_refused_is_told_by_other_words() {
        let mut missed = Missed::default();
        missed.add(refused("/data/a.txt", Wish::Write, Some("/data")));
        assert_eq!(blamed(&missed, "No such file or directory"), None);
        for said in [
            "Operation not permitted (os error 63)",
            "PermissionError: [Errno 63]: no, Permission denied",
            "error: AccessDenied",
        ] {
            assert_eq!(
                blamed(&missed, said).as_deref(),
                Some("/data/a.txt"),
                "{said}"
            );
        }
    }

    #[test]
    fn only_the_last_paths_are_remembered_and_no_more_of_one_than_is_read() {
        let mut missed = Missed::default();
        for n in 0..100 {
            missed.add(refused(&format!("/{n}"), Wish::Read, None));
        }
        missed.add(refused(&"é".repeat(PATH_BYTES_MAX), Wish::Read, None));
        assert_eq!(missed.0.len(), PATHS_MAX);
        assert!(
            missed
                .0
                .iter()
                .all(|refused| refused.path.len() <= PATH_BYTES_MAX)
        );
        assert_eq!(missed.0[0].path, "/85");
    }

    #[test]
    fn a_refusal_has_the_lines_that_would_allow_it() {
        assert_eq!(
            refused("/data/a.txt", Wish::Read, None).refusal(),
            "/data/a.txt lies in no directory that is granted; to allow it, add `grants.directories = [{ \
             host = \"/a/directory/of/this/host\", guest = \"/data\", access = \"read\" }]` at the top of the package's sidecar file"
        );
        let written = refused("/data/a.txt", Wish::Write, None).refusal();
        assert!(
            written.contains("guest = \"/data\", access = \"write\" }]`"),
            "{written}"
        );
        assert_eq!(
            refused("/data/a/b.txt", Wish::Write, Some("/data")).refusal(),
            "/data/a/b.txt cannot be written: /data is granted to be read only; to allow it, write `access = \"write\"` \
             where the package's sidecar file has `[[grants.directories]]` with `guest = \"/data\"`"
        );
        assert_eq!(parent("/a"), "/a");
    }
}
