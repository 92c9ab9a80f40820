//! Making one snapshot, from whatever an earlier run left of it.

use std::collections::BTreeSet;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::path::Path;
use std::thread;
use std::time::Duration;

use campanile_sdk::{Error, Explain, Result, Run};

use crate::Done;
use crate::tree::Tree;

const BUFFER_BYTES: usize = 64 * 1024;

/// Copy `source` to `snapshots`/`date`, unless that is there already.
pub fn take(
    run: &Run,
    source: &Path,
    snapshots: &Path,
    date: &str,
    pause: Duration,
) -> Result<Done> {
    let whole = snapshots.join(date);
    if whole.is_dir() {
        return already_there(run, &whole, date);
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
            "an earlier run had begun the snapshot {date}: going on from there"
        ));
        remove_strangers(&partial, &tree)?;
    }
    fs::create_dir_all(&partial).explain(|| format!("creating {}", partial.display()))?;
    for directory in &tree.directories {
        let directory = partial.join(directory);
        fs::create_dir_all(&directory).explain(|| format!("creating {}", directory.display()))?;
    }
    let total = tree.bytes();
    let (mut kept, mut bytes) = (0, 0);
    for (nth, file) in tree.files.iter().enumerate() {
        if run.cancel_requested() {
            return Err(Error::retryable(format!(
                "asked to stop after {nth} of {} files; the next run of this slot goes on from there",
                tree.files.len()
            )));
        }
        let (from, to) = (source.join(&file.path), partial.join(&file.path));
        match copy(&from, &to)? {
            Copied::Anew(length) => bytes += length,
            Copied::Before(length) => {
                bytes += length;
                kept += 1;
            }
        }
        run.progress(
            percent(bytes, total),
            format!("{} of {} files", nth + 1, tree.files.len()),
        );
        thread::sleep(pause);
    }
    if let Err(error) = fs::rename(&partial, &whole) {
        // Another run of the same slot was faster: its snapshot is as good.
        if whole.is_dir() {
            return already_there(run, &whole, date);
        }
        return Err(error)
            .explain(|| format!("renaming the finished snapshot to {}", whole.display()));
    }
    let files = tree.files.len() as u64;
    run.info(format!("snapshot {date}: {files} files, {bytes} bytes"));
    Ok(Done {
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

fn already_there(run: &Run, whole: &Path, date: &str) -> Result<Done> {
    run.info(format!("the snapshot {date} is there already"));
    let tree = Tree::of(whole)?;
    Ok(Done {
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

/// Remove what an earlier run copied and the source no longer has, or has as something else.
fn remove_strangers(partial: &Path, source: &Tree) -> Result<()> {
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
    let strange_files = copied
        .files
        .iter()
        .map(|file| file.path.as_path())
        .chain(copied.others.iter().map(|path| path.as_path()))
        .filter(|path| !files.contains(path));
    for path in strange_files {
        let path = partial.join(path);
        fs::remove_file(&path).explain(|| format!("removing {}", path.display()))?;
    }
    // What is in a directory comes after it, so backwards every directory is empty by its turn.
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

/// The length of a file in the snapshot, and whether it had to be copied.
enum Copied {
    Anew(u64),
    Before(u64),
}

fn copy(from: &Path, to: &Path) -> Result<Copied> {
    let reading = || format!("reading {}", from.display());
    let writing = || format!("writing {}", to.display());
    let mut source = fs::File::open(from).explain(reading)?;
    let facts = source.metadata().explain(reading)?;
    match fs::File::open(to) {
        Ok(mut copy) => {
            let same_length = copy.metadata().explain(writing)?.len() == facts.len();
            if same_length && same_content(&mut source, &mut copy).explain(reading)? {
                return Ok(Copied::Before(facts.len()));
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
    if let Ok(modified) = facts.modified() {
        copy.set_modified(modified).explain(writing)?;
    }
    // On the disk before the rename says that the snapshot is whole.
    copy.sync_all().explain(writing)?;
    Ok(Copied::Anew(length))
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

/// How much of `total` is done. Only a rename makes it 100, so 99 is the most. Empty trees are done at once.
fn percent(bytes: u64, total: u64) -> u8 {
    let share = bytes.saturating_mul(100).checked_div(total).unwrap_or(99);
    u8::try_from(share.min(99)).unwrap_or(99)
}
