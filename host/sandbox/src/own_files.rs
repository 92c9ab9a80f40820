//! The files that the host relies on: what leads to them, and who can change them.
//!
//! A task must not be granted a directory from which it could replace such a file, and another user of the machine must
//! not be able to write it. All functions block.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Component, Path, PathBuf};

use rustix::process::{getegid, geteuid};
use tempfile::TempDir;

/// The most links on the way to a path, as in Linux.
const LINKS_MAX: usize = 40;
/// The bits of a mode that let the group and everyone write.
const GROUP_WRITES: u32 = 0o020;
const EVERYONE_WRITES: u32 = 0o002;
/// The bit of a directory in which only the owner of an entry can rename or delete it.
const STICKY: u32 = 0o1000;

/// Every directory and every link that the operating system passes on the way to a path, and what is at its end.
///
/// A writer of any of these directories can choose what the path leads to, also if the path leads elsewhere in the end.
#[derive(Clone, Debug)]
pub struct PathTrace {
    /// From the root to the end, in the order in which they are passed. Never empty.
    steps: Vec<Step>,
}

/// One place on the way to a path.
#[derive(Clone, Debug)]
struct Step {
    /// Its parent has no links.
    path: PathBuf,
    /// None when nothing is there, or nothing that this process can look at.
    found: Option<Metadata>,
}

impl PathTrace {
    /// Follow `path` as the operating system does. An empty path is the working directory.
    pub fn of(path: &Path) -> PathTrace {
        let absolute = std::path::absolute(Path::new(".").join(path));
        let absolute = absolute.unwrap_or_else(|_| path.to_owned());
        let mut trace = PathTrace {
            steps: vec![Step::at(PathBuf::from("/"))],
        };
        let mut rest = names(&absolute);
        let mut links = 0;
        while let Some(name) = rest.pop_front() {
            let folder = trace.end();
            let next = if name == ".." {
                folder.parent().unwrap_or(Path::new("/")).to_owned()
            } else {
                folder.join(&name)
            };
            trace.steps.push(Step::at(next));
            let Some(target) = trace.link_target().filter(|_| links < LINKS_MAX) else {
                continue;
            };
            links += 1;
            if target.is_absolute() {
                trace.steps.push(Step::at(PathBuf::from("/")));
            }
            for name in names(&target).into_iter().rev() {
                rest.push_front(name);
            }
        }
        trace
    }

    /// Returns the path at the end, without links. Nothing need be there.
    pub fn end(&self) -> &Path {
        let is_link = |step: &Step| step.found.as_ref().is_some_and(Metadata::is_symlink);
        let last = self.steps.iter().rev().find(|step| !is_link(step));
        last.map_or(Path::new("/"), |step| &step.path)
    }

    /// Whether a writer of the directory `granted` can choose what the path leads to: the way passes it, or it lies in
    /// the directory at the end.
    pub fn is_open_to_writer_of(&self, granted: &Path) -> bool {
        self.passes(granted) || self.contains(granted)
    }

    /// Whether `granted` is the end or lies below it, by any path.
    pub fn contains(&self, granted: &Path) -> bool {
        let Ok(end) = fs::metadata(self.end()) else {
            return granted.starts_with(self.end());
        };
        let is_end = |path: &Path| fs::metadata(path).is_ok_and(|found| is_same(&found, &end));
        granted.ancestors().any(is_end)
    }

    /// Whether the way passes the directory `granted`, or ends there.
    ///
    /// Directories are compared by their numbers: a mount may give one directory two paths.
    pub fn passes(&self, granted: &Path) -> bool {
        self.meets(granted, |_, found| found.is_dir())
    }

    /// Whether a reader of the directory `granted` finds the end below it.
    pub fn ends_below(&self, granted: &Path) -> bool {
        self.meets(granted, |path, _| self.end().starts_with(path))
    }

    /// Whether one of the steps for which `counts` holds is the directory `granted`.
    fn meets(&self, granted: &Path, counts: impl Fn(&Path, &Metadata) -> bool) -> bool {
        let is_it = |step: &Step, granted: &Metadata| {
            let found = step.found.as_ref();
            found.is_some_and(|found| is_same(found, granted) && counts(&step.path, found))
        };
        fs::metadata(granted).is_ok_and(|granted| self.steps.iter().any(|it| is_it(it, &granted)))
    }

    /// Returns the first place on the way at which others than the user of this process and the administrator can choose
    /// what the path leads to, such as `/srv/plugins: every user can write it (mode 0777)`.
    ///
    /// A directory that others can write is accepted if it is sticky, such as `/tmp`, and its entry on the way is ours.
    pub fn foreign_writer(&self) -> Option<String> {
        let mut in_sticky = false;
        for step in &self.steps {
            let Some(found) = &step.found else {
                continue;
            };
            let is_sticky = found.is_dir() && found.mode() & STICKY != 0;
            let passes_sticky = is_sticky && step.path != self.end();
            let who = if found.is_symlink() {
                // The mode of a link means nothing. Its directory decides who can replace it.
                in_sticky.then(|| foreign_owner(found.uid())).flatten()
            } else if passes_sticky {
                foreign_owner(found.uid())
            } else {
                foreign_writer(found.uid(), found.gid(), found.mode())
            };
            if let Some(who) = who {
                return Some(format!("{}: {who}", step.path.display()));
            }
            in_sticky = passes_sticky;
        }
        None
    }

    /// Returns the target of the link at the last step; none when that is no link.
    fn link_target(&self) -> Option<PathBuf> {
        let last = self.steps.last()?;
        let found = last.found.as_ref().filter(|found| found.is_symlink());
        found.and_then(|_| fs::read_link(&last.path).ok())
    }
}

impl Step {
    fn at(path: PathBuf) -> Step {
        let found = fs::symlink_metadata(&path).ok();
        Step { path, found }
    }
}

/// Returns who can write an entry with this owner, group and mode, besides the user of this process and the
/// administrator: a clause such as `every user can write it (mode 0777)`.
pub fn foreign_writer(owner: u32, group: u32, mode: impl Into<u32>) -> Option<String> {
    let mode = mode.into();
    let shown = mode & 0o7777;
    if mode & EVERYONE_WRITES != 0 {
        return Some(format!("every user can write it (mode {shown:04o})"));
    }
    if mode & GROUP_WRITES != 0 && !is_private_group(group) {
        return Some(format!("the group {group} can write it (mode {shown:04o})"));
    }
    foreign_owner(owner)
}

/// Why a directory isn't private.
#[derive(Debug, thiserror::Error)]
pub enum NotPrivate {
    /// Others could have written or could replace it. A sentence without a full stop.
    #[error("{0}")]
    Foreign(String),
    #[error(transparent)]
    Failed(#[from] io::Error),
}

/// Makes `dir` accessible to this user only (0700), creating missing directories. Returns its path free of links.
///
/// # Errors
/// Returns [`NotPrivate::Foreign`], leaving it unchanged, if it belongs to another user or others can write it or a directory on the way.
pub fn private_directory(dir: &Path) -> Result<PathBuf, NotPrivate> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true).mode(0o700).create(dir)?;
    if let Some(why) = untrusted(dir) {
        return Err(NotPrivate::Foreign(why));
    }
    fs::set_permissions(dir, fs::Permissions::from_mode(0o700))?;
    Ok(dir.canonicalize()?)
}

/// Returns why other users could have written or replaced `dir`, as a sentence without a full stop.
pub(crate) fn untrusted(dir: &Path) -> Option<String> {
    let trace = PathTrace::of(dir);
    let owner = || match fs::metadata(trace.end()).map(|found| found.uid()) {
        Ok(owner) if owner == geteuid().as_raw() => None,
        Ok(owner) => Some(format!("{}: it belongs to the user {owner}", dir.display())),
        Err(error) => Some(format!("{}: {error}", dir.display())),
    };
    trace.foreign_writer().or_else(owner)
}

/// Create a temporary directory that only the user of this process can open. A drop deletes it.
///
/// # Errors
/// When the system's directory for temporary files cannot be written.
pub fn temporary_directory() -> io::Result<TempDir> {
    let only_owner = fs::Permissions::from_mode(0o700);
    tempfile::Builder::new()
        .prefix("campanile-")
        .permissions(only_owner)
        .tempdir()
}

fn foreign_owner(owner: u32) -> Option<String> {
    // In a user namespace the administrator has another number, and owns the root directory.
    let administrator = || fs::metadata("/").map(|root| root.uid()).ok();
    let is_trusted = owner == geteuid().as_raw() || owner == 0 || Some(owner) == administrator();
    (!is_trusted).then(|| format!("it belongs to the user {owner}"))
}

/// Whether only this user, or the administrator, is in a group.
///
/// Many systems give each user a group of the same number, and let groups write by default.
fn is_private_group(group: u32) -> bool {
    group == 0 || (group == geteuid().as_raw() && group == getegid().as_raw())
}

fn is_same(a: &Metadata, b: &Metadata) -> bool {
    (a.dev(), a.ino()) == (b.dev(), b.ino())
}

/// Returns the names of a path, with `..`, without `/` and `.`.
fn names(path: &Path) -> VecDeque<OsString> {
    let names = path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    });
    names.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{chown, symlink};

    /// Returns a private directory, without links in its path.
    fn root() -> (TempDir, PathBuf) {
        let root = temporary_directory().unwrap();
        let path = root.path().canonicalize().unwrap();
        (root, path)
    }

    fn chmod(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    fn who(path: &Path) -> Option<String> {
        PathTrace::of(path).foreign_writer()
    }

    #[test]
    fn a_trace_ends_where_the_operating_system_does() {
        let (_root, root) = root();
        fs::create_dir_all(root.join("a/b/c")).unwrap();
        fs::write(root.join("a/file"), "").unwrap();
        for (link, target) in [
            ("relative", "a/b"),
            ("a/up", ".."),
            ("a/here", "."),
            ("chain", "relative/../up/a/here"),
            ("a/b/file", "../file"),
        ] {
            symlink(target, root.join(link)).unwrap();
        }
        symlink(root.join("a/b"), root.join("absolute")).unwrap();
        symlink("/", root.join("top")).unwrap();
        for path in [
            "",
            ".",
            "a",
            "a/./b",
            "relative",
            "relative/c",
            "relative/..",
            "a/up/a",
            "a/here",
            "chain",
            "chain/b",
            "a/b/file",
            "absolute/c/..",
            "top",
        ] {
            let path = root.join(path);
            let expected = path.canonicalize().unwrap();
            assert_eq!(PathTrace::of(&path).end(), expected, "{}", path.display());
        }
        let working_directory = std::env::current_dir().unwrap().canonicalize().unwrap();
        assert_eq!(PathTrace::of(Path::new("")).end(), working_directory);
    }

    #[test]
    fn a_trace_of_what_is_not_there_has_an_end() {
        let (_root, root) = root();
        symlink("loop", root.join("loop")).unwrap();
        symlink("missing/deep", root.join("dangling")).unwrap();
        let end = |path: &str| PathTrace::of(&root.join(path)).end().to_owned();
        assert_eq!(end("missing/file"), root.join("missing/file"));
        assert_eq!(end("dangling"), root.join("missing/deep"));
        assert_eq!(end("loop/x"), root.join("x"));
        assert!(PathTrace::of(&root.join("dangling")).passes(&root));
    }

    #[test]
    fn a_writer_of_any_directory_on_the_way_is_found() {
        let (_root, root) = root();
        for folder in ["links", "real/in", "other"] {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        symlink("../real/in", root.join("links/link")).unwrap();
        let path = root.join("links/link/file");
        fs::write(&path, "").unwrap();
        assert_eq!(who(&path), None);
        for place in ["links", "real", "real/in", "real/in/file"] {
            let place = root.join(place);
            let before = fs::metadata(&place).unwrap().mode();
            for mode in [0o777, 0o757] {
                chmod(&place, mode);
                let expected = format!(
                    "{}: every user can write it (mode {mode:04o})",
                    place.display()
                );
                assert_eq!(who(&path), Some(expected));
            }
            chmod(&place, before & 0o7777);
        }
        chmod(&root.join("other"), 0o777);
        assert_eq!(who(&path), None);
    }

    #[test]
    fn a_sticky_directory_is_accepted_above_an_entry_and_not_at_the_end() {
        let (_root, root) = root();
        fs::create_dir(root.join("tmp")).unwrap();
        chmod(&root.join("tmp"), 0o1777);
        fs::write(root.join("tmp/file"), "").unwrap();
        symlink("file", root.join("tmp/link")).unwrap();
        for accepted in ["tmp/file", "tmp/link", "tmp/missing"] {
            assert_eq!(who(&root.join(accepted)), None, "{accepted}");
        }
        assert!(who(&root.join("tmp")).is_some());
        if geteuid().is_root() {
            rustix::fs::chownat(
                rustix::fs::CWD,
                root.join("tmp/link"),
                Some(rustix::process::Uid::from_raw(4242)),
                None,
                rustix::fs::AtFlags::SYMLINK_NOFOLLOW,
            )
            .unwrap();
            let found = who(&root.join("tmp/link")).unwrap();
            assert!(found.ends_with("it belongs to the user 4242"), "{found}");
        }
    }

    #[test]
    fn another_owner_and_a_shared_group_are_foreign() {
        let me = geteuid().as_raw();
        assert_eq!(foreign_writer(me, 4242, 0o755_u32), None);
        assert_eq!(foreign_writer(0, 4242, 0o755_u32), None);
        assert_eq!(foreign_writer(me, 0, 0o775_u32), None);
        for (owner, group, mode) in [(4242, 4242, 0o600), (me, 4242, 0o660), (me, 0, 0o602)] {
            assert!(foreign_writer(owner, group, mode as u32).is_some());
        }
        if geteuid().is_root() {
            let (_root, root) = root();
            fs::write(root.join("file"), "").unwrap();
            chown(root.join("file"), Some(4242), None).unwrap();
            assert!(who(&root.join("file")).is_some());
        }
    }
}
