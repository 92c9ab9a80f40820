//! The plugins folder as an open directory: what is in it, and whether its path still leads to it.
//!
//! All functions block; call them off the async threads.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Dir, Mode, OFlags, Stat, fstat, openat};
use rustix::io::Errno;

use crate::files::{self, Listing};
use crate::host_rules::{ForeignWriters, OwnPath, OwnPathKind};
use campanile_model::text::printable_line;
use campanile_sandbox::own_files::{PathTrace, foreign_writer};

/// Returns a sentence for each package and sidecar of the folder at `path` that other users of this machine can change;
/// none when there is no such folder. Blocks.
pub fn foreign_files(path: &Path) -> BTreeSet<String> {
    let open = OpenFolder::open(path, ForeignWriters::Warn).ok();
    let listed = open.and_then(|open| open.list().ok());
    listed.map_or_else(BTreeSet::new, |(_, warnings)| warnings)
}

/// An open plugins folder.
///
/// It is listed by its descriptor: a link that replaces a directory above it changes nothing. Its files are read by their
/// paths, and only if they are the files that were listed, see [`files::Stamp`].
pub(super) struct OpenFolder {
    /// As configured.
    path: PathBuf,
    /// Where the path led when the folder was opened, without links.
    real_path: PathBuf,
    directory: File,
    foreign_writers: ForeignWriters,
}

/// What the plugins folder has where a namespace's folder belongs.
pub(super) enum NamespaceFolder {
    Open(File),
    Missing,
    /// A link or a file, as the sentence says.
    Unusable(String),
}

impl OpenFolder {
    /// Open the folder at `path`.
    ///
    /// # Errors
    /// A clause after the folder's path.
    pub(super) fn open(path: &Path, foreign_writers: ForeignWriters) -> Result<OpenFolder, String> {
        let unreadable = |error: io::Error| match error.kind() {
            io::ErrorKind::NotFound => {
                "does not exist: create it, or name another with --plugins".to_owned()
            }
            _ => format!("cannot be read: {error}"),
        };
        if !fs::metadata(path).map_err(unreadable)?.is_dir() {
            return Err("is not a directory: name another with --plugins".to_owned());
        }
        let real_path = path.canonicalize().map_err(unreadable)?;
        let directory = File::open(&real_path).map_err(unreadable)?;
        Ok(OpenFolder {
            path: path.to_owned(),
            real_path,
            directory,
            foreign_writers,
        })
    }

    /// Returns the folder as it is to be scanned: this one, or the one that replaced it at the same place.
    ///
    /// # Errors
    /// A clause after the folder's path, when it leads nowhere, or elsewhere than when the host started, or to a new
    /// folder that other users can write. A user who changed a link on the way would otherwise choose the packages.
    pub(super) fn follow(&self) -> Result<Option<OpenFolder>, String> {
        let now = OpenFolder::open(&self.path, self.foreign_writers)?;
        if now.is_same(self).map_err(|error| error.to_string())? {
            return Ok(None);
        }
        if now.real_path != self.real_path {
            return Err(format!(
                "leads to {} since a link on the way changed, and to {} before: start the host again if this is wanted",
                now.real_path.display(),
                self.real_path.display()
            ));
        }
        let folder = OwnPath {
            kind: OwnPathKind::Plugins,
            path: self.path.clone(),
        };
        if let Some(why) = folder.foreign_writer() {
            match self.foreign_writers {
                ForeignWriters::Refuse => return Err(format!("was replaced, and {why}")),
                ForeignWriters::Warn => tracing::warn!("{why}"),
            }
        }
        Ok(Some(now))
    }

    /// Returns the open directory.
    pub(super) fn directory(&self) -> &File {
        &self.directory
    }

    /// List the files of the folder and of the folders of its namespaces, following links to files. Also return a sentence
    /// for each file that is used although other users can write it, and for each folder that is not read.
    pub(super) fn list(&self) -> io::Result<(Listing, BTreeSet<String>)> {
        let mut found = (Listing::new(), BTreeSet::new());
        for name in self.list_in(&self.directory, "", &mut found)? {
            match self.open_namespace(&name)? {
                NamespaceFolder::Open(folder) => {
                    self.list_in(&folder, &format!("{name}/"), &mut found)?;
                }
                NamespaceFolder::Missing => {}
                NamespaceFolder::Unusable(why) => {
                    found.1.insert(why);
                }
            }
        }
        Ok(found)
    }

    /// Opens a namespace's folder without following links. Its name starts with `@`.
    pub(super) fn open_namespace(&self, name: &str) -> io::Result<NamespaceFolder> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match openat(&self.directory, name, flags, Mode::empty()) {
            Ok(folder) => Ok(NamespaceFolder::Open(File::from(folder))),
            Err(Errno::NOENT) => Ok(NamespaceFolder::Missing),
            Err(Errno::LOOP | Errno::NOTDIR) => Ok(NamespaceFolder::Unusable(format!(
                "{} in the plugins folder is not used: the folder of a namespace must be a folder, not a link or a file",
                printable_line(name)
            ))),
            Err(error) => Err(error.into()),
        }
    }

    /// Add the files of `directory` to what was found, with `prefix` before their names. Return what else may be the folder of
    /// a namespace.
    fn list_in(
        &self,
        directory: &File,
        prefix: &str,
        (listing, warnings): &mut (Listing, BTreeSet<String>),
    ) -> io::Result<Vec<String>> {
        let mut namespaces = Vec::new();
        let of_folder = match prefix {
            // It was looked at when the host started.
            "" => None,
            _ => writer_of_folder(&fstat(directory)?),
        };
        for entry in Dir::read_from(directory)? {
            let entry = entry?;
            let own_name = OsStr::from_bytes(entry.file_name().to_bytes());
            let name = format!("{prefix}{}", own_name.to_string_lossy());
            if !files::is_package_file(&name) {
                if prefix.is_empty() && name.starts_with('@') {
                    namespaces.push(name);
                }
                continue;
            }
            let file = Path::new(prefix).join(own_name);
            let Some(found) = files::inspect_in(&self.directory, &file) else {
                continue;
            };
            let state = found.and_then(|found| {
                let foreign = self.writer_of(&file, &found).or_else(|| of_folder.clone());
                let stamp = files::Stamp::of(&found);
                match (foreign, self.foreign_writers) {
                    (Some(why), ForeignWriters::Refuse) => Err(why),
                    (Some(why), ForeignWriters::Warn) => {
                        warnings.insert(format!("{}: {why}", printable_line(&name)));
                        Ok(stamp)
                    }
                    (None, _) => Ok(stamp),
                }
            });
            listing.insert(name, state);
        }
        Ok(namespaces)
    }

    /// Returns a sentence without an end when other users can write `file`, which was found there, or replace the target
    /// of a link.
    fn writer_of(&self, file: &Path, found: &Stat) -> Option<String> {
        let mut foreign = foreign_writer(found.st_uid, found.st_gid, found.st_mode);
        if foreign.is_none() && files::is_link_in(&self.directory, file) {
            let trace = PathTrace::of(&self.real_path.join(file));
            foreign = trace.foreign_writer();
        }
        foreign.map(|why| format!("other users of this machine can change it: {why}"))
    }

    fn is_same(&self, other: &OpenFolder) -> io::Result<bool> {
        let (a, b) = (self.directory.metadata()?, other.directory.metadata()?);
        Ok((a.dev(), a.ino()) == (b.dev(), b.ino()))
    }
}

/// Returns a sentence without an end when other users can write the folder of a namespace, and so replace its files.
fn writer_of_folder(found: &Stat) -> Option<String> {
    let foreign = foreign_writer(found.st_uid, found.st_gid, found.st_mode);
    foreign.map(|why| format!("other users of this machine can change its folder: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::process::Command;

    fn open(path: &Path) -> OpenFolder {
        OpenFolder::open(path, ForeignWriters::Refuse).unwrap()
    }

    #[test]
    fn wasm_and_toml_files_of_the_folder_are_listed_and_an_unusable_file_has_its_reason() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in [
            "a.wasm",
            "a.toml",
            ".b.wasm",
            "c.wasm.tmp",
            "c.wasm.part",
            "c.wasm~",
            "d.cwasm",
            "wasm",
        ] {
            fs::write(at(name), "").unwrap();
        }
        fs::create_dir_all(at("hello/target")).unwrap();
        fs::write(at("hello/deep.wasm"), "").unwrap();
        fs::create_dir(at("directory.wasm")).unwrap();
        fs::create_dir(at("directory.toml")).unwrap();
        symlink(at("a.wasm"), at("link.wasm")).unwrap();
        symlink(at("nothing"), at("broken.wasm")).unwrap();
        symlink(at("nothing"), at("broken.toml")).unwrap();
        symlink("loop.wasm", at("loop.wasm")).unwrap();
        let made = Command::new("mkfifo")
            .arg(at("pipe.wasm"))
            .status()
            .unwrap();
        assert!(made.success());
        let (listing, _) = open(folder.path()).list().unwrap();
        let files = listing.iter().filter(|(_, reading)| reading.is_ok());
        let files: Vec<&str> = files.map(|(name, _)| name.as_str()).collect();
        assert_eq!(files, ["a.toml", "a.wasm", "link.wasm"]);
        assert_eq!(listing.len(), 9, "{listing:?}");
        for (name, why) in [
            ("directory.toml", "it is not a regular file"),
            ("directory.wasm", "it is not a regular file"),
            ("pipe.wasm", "it is not a regular file"),
            ("broken.toml", "it is a link to nothing"),
            ("broken.wasm", "it is a link to nothing"),
        ] {
            assert_eq!(listing[name], Err(why.to_owned()), "{name}");
        }
        assert_eq!(
            listing["loop.wasm"],
            Err("it is a link that leads back to itself".to_owned())
        );
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_file_of_the_kernel_is_refused_in_every_place() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for (name, target) in [
            ("a.toml", "/proc/self/environ"),
            ("b.wasm", "/proc/cpuinfo"),
            (
                "c.wasm.minisig",
                "/sys/kernel/mm/transparent_hugepage/enabled",
            ),
            ("d.toml", "/proc/self/../uptime"),
        ] {
            if Path::new(target).exists() {
                symlink(target, at(name)).unwrap();
            }
        }
        symlink("/dev/zero", at("e.wasm")).unwrap();
        fs::hard_link("/proc/cpuinfo", at("f.wasm")).unwrap_err();
        let (listing, _) = open(folder.path()).list().unwrap();
        assert!(listing.len() >= 4, "{listing:?}");
        for (name, state) in listing {
            let why = state.unwrap_err();
            let expected = match name.as_str() {
                "e.wasm" => "it is not a regular file",
                _ => "it lies in a file system of the kernel",
            };
            assert!(why.starts_with(expected), "{name}: {why}");
        }
    }

    fn chmod(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_file_that_others_can_write_is_refused_or_reported() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for (name, mode) in [("a.toml", 0o644), ("b.wasm", 0o666), ("c.toml", 0o602)] {
            fs::write(at(name), "").unwrap();
            chmod(&at(name), mode);
        }
        fs::create_dir(at("shared")).unwrap();
        fs::write(at("shared/d.toml"), "").unwrap();
        chmod(&at("shared"), 0o777);
        symlink("shared/d.toml", at("d.toml")).unwrap();
        let (listing, warnings) = open(folder.path()).list().unwrap();
        assert!(warnings.is_empty(), "{warnings:?}");
        let refused = listing.iter().filter(|(_, state)| state.is_err());
        let refused: Vec<&str> = refused.map(|(name, _)| name.as_str()).collect();
        assert_eq!(refused, ["b.wasm", "c.toml", "d.toml"]);
        assert_eq!(
            listing["b.wasm"],
            Err(
                "other users of this machine can change it: every user can write it (mode 0666)"
                    .to_owned()
            )
        );

        let warned = OpenFolder::open(folder.path(), ForeignWriters::Warn).unwrap();
        let (listing, warnings) = warned.list().unwrap();
        assert!(listing.values().all(Result::is_ok), "{listing:?}");
        assert_eq!(warnings.len(), 3, "{warnings:?}");
        assert_eq!(foreign_files(folder.path()), warnings);
        assert!(foreign_files(&at("missing")).is_empty());
    }

    #[test]
    fn a_changed_link_on_the_way_is_not_followed() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        for folder in ["one/plugins", "two/plugins"] {
            fs::create_dir_all(at(folder)).unwrap();
        }
        fs::write(at("two/plugins/planted.wasm"), "").unwrap();
        symlink("one", at("current")).unwrap();
        let folder = open(&at("current/plugins"));
        assert!(folder.follow().unwrap().is_none());
        fs::remove_file(at("current")).unwrap();
        assert!(folder.follow().is_err());
        symlink("two", at("current")).unwrap();
        let why = folder.follow().err().unwrap();
        assert!(
            why.contains("two/plugins since a link on the way changed"),
            "{why}"
        );
        assert!(folder.list().unwrap().0.is_empty());
        fs::remove_file(at("current")).unwrap();
        symlink("one", at("current")).unwrap();
        assert!(folder.follow().unwrap().is_none());
    }

    #[test]
    fn a_folder_that_replaces_it_is_followed_if_only_this_user_can_write_it() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("plugins");
        fs::create_dir(&path).unwrap();
        let folder = open(&path);
        fs::rename(&path, root.path().join("old")).unwrap();
        let gone = folder.follow().err().unwrap();
        assert!(gone.starts_with("does not exist"), "{gone}");
        fs::create_dir(&path).unwrap();
        chmod(&path, 0o777);
        let why = folder.follow().err().unwrap();
        assert!(why.starts_with("was replaced, and other users"), "{why}");
        let warned = OpenFolder::open(&root.path().join("old"), ForeignWriters::Warn).unwrap();
        assert!(warned.follow().unwrap().is_none());
        chmod(&path, 0o755);
        fs::write(path.join("a.wasm"), "").unwrap();
        let replaced = folder.follow().unwrap().unwrap();
        assert_eq!(replaced.list().unwrap().0.len(), 1);
    }
}
