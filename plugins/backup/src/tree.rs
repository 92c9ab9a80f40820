//! What is in a directory, and everything below it.

use std::fs;
use std::path::{Path, PathBuf};

use campanile_sdk::{Explain, Result};

/// The files and directories below a root, as paths relative to it, each directory before what is in it.
#[derive(Debug, Default, PartialEq)]
pub struct Tree {
    pub directories: Vec<PathBuf>,
    pub files: Vec<File>,
    /// Symbolic links, sockets, devices: neither file nor directory.
    pub others: Vec<PathBuf>,
}

#[derive(Debug, PartialEq)]
pub struct File {
    pub path: PathBuf,
    pub bytes: u64,
}

impl Tree {
    /// Walk through `root`, in the order of the names, so that two walks of the same tree agree. Follows no links.
    pub fn of(root: &Path) -> Result<Tree> {
        let mut tree = Tree::default();
        let mut open = vec![PathBuf::new()];
        while let Some(directory) = open.pop() {
            let here = root.join(&directory);
            let explain = || format!("listing {}", here.display());
            let mut entries = Vec::new();
            for entry in fs::read_dir(&here).explain(explain)? {
                let entry = entry.explain(explain)?;
                let kind = entry.file_type().explain(explain)?;
                entries.push((directory.join(entry.file_name()), kind));
            }
            entries.sort_unstable_by(|a, b| a.0.cmp(&b.0));
            let mut inner = Vec::new();
            for (path, kind) in entries {
                if kind.is_dir() {
                    tree.directories.push(path.clone());
                    inner.push(path);
                } else if kind.is_file() {
                    let full = root.join(&path);
                    let bytes = fs::symlink_metadata(&full)
                        .explain(|| format!("looking at {}", full.display()))?
                        .len();
                    tree.files.push(File { path, bytes });
                } else {
                    tree.others.push(path);
                }
            }
            open.extend(inner.into_iter().rev());
        }
        Ok(tree)
    }

    /// Bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }
}
