//! The files of one call: what is open, where, and what was denied.

use std::collections::HashMap;
use std::fs::File;
use std::sync::Arc;

use wasmtime::component::{Resource, ResourceTable};
use wasmtime_wasi::filesystem::Descriptor;
use wasmtime_wasi::{FsPerms, WasiView};

use crate::capability::files::denied_paths::{DeniedPath, DeniedPaths};
use crate::capability::files::devices::Served;
use crate::capability::files::directories::{OpenDirectory, Tracked, is_empty_root};
use crate::capability::files::quota::Quota;
use crate::capability::shared::{OpenFile, Shared};
use crate::grants::AccessMode;
use crate::limits::DirectoryShare;

/// The longest path that is kept for messages. A guest can make one of any length, from directory to directory.
const PATH_BYTES_MAX: usize = 4 << 10;

pub(super) type Fd = Resource<Descriptor>;

/// The files of one call.
pub(crate) struct Files {
    pub(super) shared: Arc<Shared>,
    /// Empty until they are opened.
    pub(crate) directories: Vec<OpenDirectory>,
    /// The granted directory in which relative paths begin, by its path in the task. The libraries of programs look for them
    /// in the directory that is named `.`.
    pub(crate) working_directory: Option<String>,
    /// Whether the guest sees a `/` that is not granted. A program without functions for paths does not: the descriptor
    /// would be one that the program has not opened.
    pub(crate) has_root: bool,
    pub(crate) denied: DeniedPaths,
    /// The open descriptors, by their handles.
    pub(super) descriptors: HashMap<u32, Tracked>,
}

impl Files {
    pub(crate) fn new(shared: Arc<Shared>) -> Files {
        Files {
            shared,
            directories: Vec::new(),
            working_directory: None,
            has_root: true,
            denied: DeniedPaths::default(),
            descriptors: HashMap::new(),
        }
    }

    /// Returns the open granted directories.
    pub(super) fn granted(&self) -> Vec<Arc<File>> {
        let directories = self.directories.iter();
        directories
            .map(|open| Arc::clone(&open.directory.dir))
            .collect()
    }

    /// Returns the open file of a descriptor, for a stream that may outlive it.
    pub(super) fn file_of(&self, fd: &Fd) -> Option<Arc<OpenFile>> {
        self.descriptors.get(&fd.rep())?.file.clone()
    }

    pub(super) fn served(&self, fd: &Fd) -> Option<Served> {
        self.descriptors.get(&fd.rep())?.served
    }

    /// Returns the quota that a descriptor counts for.
    pub(super) fn quota_of(&self, fd: &Fd) -> Option<Arc<Quota>> {
        self.descriptors.get(&fd.rep())?.quota.clone()
    }

    /// Returns the path by which the guest opened it.
    pub(super) fn path_of(&self, fd: &Fd) -> &str {
        let tracked = self.descriptors.get(&fd.rep());
        tracked.map_or("", |tracked| &tracked.path)
    }

    /// Returns the path from an open directory, cut to the length kept.
    pub(super) fn path_in(&self, fd: &Fd, path: &str) -> String {
        let mut whole = format!("{}/{path}", self.path_of(fd).trim_end_matches('/'));
        whole.truncate(whole.floor_char_boundary(PATH_BYTES_MAX));
        whole
    }

    /// Returns what the directories with quotas hold that the call made grow.
    pub(crate) fn directory_shares(&self) -> Vec<DirectoryShare> {
        let quotas = self.directories.iter();
        let quotas = quotas.filter_map(|open| open.tracked.quota.as_ref());
        quotas.filter_map(|quota| quota.share()).collect()
    }

    /// Returns the nearest granted directory that holds `path`, as the guest sees it.
    fn grant_of(&self, path: &str) -> Option<String> {
        let holds = |guest: &str| {
            let rest = path.strip_prefix(guest.trim_end_matches('/'));
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let grants = self.shared.call.grants.directories.iter();
        let guests = grants.map(|grant| &grant.guest);
        let nearest = guests
            .filter(|guest| holds(guest))
            .max_by_key(|guest| guest.len());
        nearest.cloned()
    }
}

/// What the functions of the interface need of a call.
pub(crate) struct FilesView<'a> {
    pub(crate) files: &'a mut Files,
    pub(crate) table: &'a mut ResourceTable,
}

/// The state of a call, which has its files.
pub(crate) trait HasFiles: WasiView {
    fn files(&mut self) -> FilesView<'_>;
}

impl FilesView<'_> {
    /// Returns an open file and the quota of the directory that grows with it.
    pub(super) fn growing(&self, fd: &Fd) -> Option<(Arc<Quota>, Arc<File>)> {
        let quota = self.files.quota_of(fd)?;
        match self.table.get(fd) {
            Ok(Descriptor::File(file)) => Some((quota, Arc::clone(&file.file))),
            _ => None,
        }
    }

    /// Record `path` if it lies in no granted directory, or in a read-only one when `mode` is to write. Return whether
    /// it lies in none.
    pub(super) fn note_denied(
        &mut self,
        directory: &Fd,
        path: &str,
        mode: AccessMode,
    ) -> wasmtime::Result<bool> {
        let descriptor = self.table.get(directory)?;
        let lies_nowhere = is_empty_root(descriptor) && !matches!(path, "" | ".");
        let is_read_only = match descriptor {
            Descriptor::Dir(directory) => matches!(directory.perms, FsPerms::ReadOnly),
            Descriptor::File(_) => false,
        };
        if lies_nowhere || (mode == AccessMode::Write && is_read_only) {
            let path = self.files.path_in(directory, path);
            self.files.denied.add(DeniedPath {
                read_only: self.files.grant_of(&path),
                path,
                mode,
            });
        }
        Ok(lies_nowhere)
    }
}

pub(super) fn file_behind(descriptor: &Descriptor) -> Arc<File> {
    match descriptor {
        Descriptor::File(file) => Arc::clone(&file.file),
        Descriptor::Dir(directory) => Arc::clone(&directory.dir),
    }
}
