//! The entries of a directory tree.

use std::fs;
use std::path::{Path, PathBuf};

use campanile_sdk::{Explain, Result};

/// The files and directories below a root, as paths relative to the root. Each directory is listed before its entries.
#[derive(Debug, Default, PartialEq)]
pub struct Tree {
    pub directories: Vec<PathBuf>,
    pub files: Vec<File>,
    /// Entries that are neither files nor directories, such as symbolic links.
    pub others: Vec<PathBuf>,
}

#[derive(Debug, PartialEq)]
pub struct File {
    pub path: PathBuf,
    pub bytes: u64,
}

impl Tree {
    /// List the tree below `root` in the order of the names, without following links.
    pub fn of(root: &Path) -> Result<Tree> {
        let mut tree = Tree::default();
        let mut pending = vec![PathBuf::new()];
        while let Some(directory) = pending.pop() {
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
                        .explain(|| format!("reading the size of {}", full.display()))?
                        .len();
                    tree.files.push(File { path, bytes });
                } else {
                    tree.others.push(path);
                }
            }
            pending.extend(inner.into_iter().rev());
        }
        Ok(tree)
    }

    /// Return the size of all files, in bytes.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }
}
