//! The creation of a snapshot, which resumes the work of an earlier run.

use std::collections::BTreeSet;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::path::Path;
use std::thread;
use std::time::Duration;

use campanile_sdk::{Error, Explain, Result, Run};

use crate::Summary;
use crate::tree::Tree;

const BUFFER_BYTES: usize = 64 * 1024;

/// Copy `source` to `snapshots`/`date`, unless the snapshot exists.
pub fn take(
    run: &Run,
    source: &Path,
    snapshots: &Path,
    date: &str,
    pause: Duration,
) -> Result<Summary> {
    let complete = snapshots.join(date);
    if complete.is_dir() {
        return existing(run, &complete, date);
    }
    let partial = snapshots.join(format!(".partial-{date}"));
    let resumed = partial.is_dir();
    let tree = Tree::of(source)?;
    for path in &tree.others {
        run.warn(format!(
            "skipped {}: neither a file nor a directory",
            path.display()
        ));
    }
    if resumed {
        run.info(format!(
            "resuming the snapshot {date} that an earlier run began"
        ));
        remove_obsolete(&partial, &tree)?;
    }
    fs::create_dir_all(&partial).explain(|| format!("creating {}", partial.display()))?;
    for directory in &tree.directories {
        let directory = partial.join(directory);
        fs::create_dir_all(&directory).explain(|| format!("creating {}", directory.display()))?;
    }
    let total = tree.bytes();
    let (mut kept, mut bytes) = (0, 0);
    for (index, file) in tree.files.iter().enumerate() {
        if run.cancel_requested() {
            return Err(Error::retryable(format!(
                "asked to stop after {index} of {} files; the next run of this slot resumes there",
                tree.files.len()
            )));
        }
        let (from, to) = (source.join(&file.path), partial.join(&file.path));
        match copy(&from, &to)? {
            Copied::Now(length) => bytes += length,
            Copied::Earlier(length) => {
                bytes += length;
                kept += 1;
            }
        }
        run.progress(
            percent(bytes, total),
            format!("{} of {} files", index + 1, tree.files.len()),
        );
        thread::sleep(pause);
    }
    if let Err(error) = fs::rename(&partial, &complete) {
        // Another run of the same slot has finished its snapshot first.
        if complete.is_dir() {
            return existing(run, &complete, date);
        }
        return Err(error)
            .explain(|| format!("renaming the complete snapshot to {}", complete.display()));
    }
    let files = tree.files.len() as u64;
    run.info(format!("snapshot {date}: {files} files, {bytes} bytes"));
    Ok(Summary {
        snapshot: date.to_owned(),
        files,
        bytes,
        already_existed: false,
        resumed,
        kept,
        skipped: tree.others.len() as u64,
        removed: Vec::new(),
    })
}

/// Return the summary of a snapshot that exists already.
fn existing(run: &Run, complete: &Path, date: &str) -> Result<Summary> {
    run.info(format!("the snapshot {date} exists already"));
    let tree = Tree::of(complete)?;
    Ok(Summary {
        snapshot: date.to_owned(),
        files: tree.files.len() as u64,
        bytes: tree.bytes(),
        already_existed: true,
        resumed: false,
        kept: 0,
        skipped: 0,
        removed: Vec::new(),
    })
}

/// Remove the entries of `partial` that are no longer in the source, or are of another type there.
fn remove_obsolete(partial: &Path, source: &Tree) -> Result<()> {
    let files: BTreeSet<&Path> = source
        .files
        .iter()
        .map(|file| file.path.as_path())
        .collect();
    let directories: BTreeSet<&Path> = source
        .directories
        .iter()
        .map(|path| path.as_path())
        .collect();
    let copied = Tree::of(partial)?;
    let obsolete_files = copied
        .files
        .iter()
        .map(|file| file.path.as_path())
        .chain(copied.others.iter().map(|path| path.as_path()))
        .filter(|path| !files.contains(path));
    for path in obsolete_files {
        let path = partial.join(path);
        fs::remove_file(&path).explain(|| format!("removing {}", path.display()))?;
    }
    // A tree lists each directory before its entries: in reverse order, every directory is empty when it is removed.
    for path in copied
        .directories
        .iter()
        .rev()
        .filter(|path| !directories.contains(path.as_path()))
    {
        let path = partial.join(path);
        fs::remove_dir(&path).explain(|| format!("removing {}", path.display()))?;
    }
    Ok(())
}

/// The length of a file in the snapshot, and whether this run or an earlier run copied it.
enum Copied {
    Now(u64),
    Earlier(u64),
}

fn copy(from: &Path, to: &Path) -> Result<Copied> {
    let reading = || format!("reading {}", from.display());
    let writing = || format!("writing {}", to.display());
    let mut source = fs::File::open(from).explain(reading)?;
    let metadata = source.metadata().explain(reading)?;
    match fs::File::open(to) {
        Ok(mut copy) => {
            let same_length = copy.metadata().explain(writing)?.len() == metadata.len();
            if same_length && same_content(&mut source, &mut copy).explain(reading)? {
                return Ok(Copied::Earlier(metadata.len()));
            }
            source = fs::File::open(from).explain(reading)?;
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error).explain(writing),
    }
    let mut copy = fs::File::create(to).explain(writing)?;
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut length = 0;
    loop {
        let count = source.read(&mut buffer).explain(reading)?;
        if count == 0 {
            break;
        }
        copy.write_all(&buffer[..count]).explain(writing)?;
        length += count as u64;
    }
    if let Ok(modified) = metadata.modified() {
        copy.set_modified(modified).explain(writing)?;
    }
    // The file must be on the disk before the rename declares the snapshot complete.
    copy.sync_all().explain(writing)?;
    Ok(Copied::Now(length))
}

fn same_content(a: &mut fs::File, b: &mut fs::File) -> std::io::Result<bool> {
    let mut left = vec![0; BUFFER_BYTES];
    let mut right = vec![0; BUFFER_BYTES];
    loop {
        let count = a.read(&mut left)?;
        if count == 0 {
            return Ok(b.read(&mut right)? == 0);
        }
        if let Err(error) = b.read_exact(&mut right[..count]) {
            return match error.kind() {
                ErrorKind::UnexpectedEof => Ok(false),
                _ => Err(error),
            };
        }
        if left[..count] != right[..count] {
            return Ok(false);
        }
    }
}

/// Return the share of `bytes` in `total`, in percent, at most 99: the final rename completes the snapshot.
fn percent(bytes: u64, total: u64) -> u8 {
    let share = bytes.saturating_mul(100).checked_div(total).unwrap_or(99);
    u8::try_from(share.min(99)).unwrap_or(99)
}
