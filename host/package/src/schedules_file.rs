//! Polling the schedules file.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::files::{self, FileState, TEXT_BYTES_MAX, off_thread};

/// How long the file must stay unchanged before it is read. Half a file would end the schedules of the other half.
const SETTLE: Duration = Duration::from_millis(200);

/// The schedules file at one path.
pub struct SchedulesFile {
    path: PathBuf,
    /// What the last poll found.
    seen: Option<Option<FileState>>,
}

/// What a poll found that the last poll did not.
#[derive(Debug, PartialEq, Eq)]
pub enum FileChange {
    Missing,
    /// A sentence that says why the file cannot be used.
    Unusable(String),
    Text(String),
}

impl SchedulesFile {
    /// Poll the file at `path`, which may be absent.
    pub fn new(path: PathBuf) -> SchedulesFile {
        SchedulesFile { path, seen: None }
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Let the next poll report the file even when it is unchanged.
    pub fn forget(&mut self) {
        self.seen = None;
    }

    /// Poll the file. Return `None` when it is unchanged, or still being written.
    pub async fn next_change(&mut self) -> Option<FileChange> {
        let path = self.path.clone();
        // The next poll makes up for one that fails.
        let seen = off_thread(move || files::inspect(&path)).await.ok()?;
        if self.seen.as_ref() == Some(&seen) {
            return None;
        }
        let found = seen.clone();
        let news = match found.map(|state| state?.of_at_most(TEXT_BYTES_MAX)) {
            None => FileChange::Missing,
            Some(Err(why)) => FileChange::Unusable(why),
            Some(Ok(stamp)) => {
                tokio::time::sleep(SETTLE).await;
                let path = self.path.clone();
                let read = off_thread(move || files::read(&path, stamp)).await.ok()?;
                let text = read.transpose()?.and_then(files::text);
                text.map_or_else(FileChange::Unusable, FileChange::Text)
            }
        };
        self.seen = Some(seen);
        Some(news)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[tokio::test]
    async fn a_change_is_returned_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("schedules.toml");
        let mut file = SchedulesFile::new(path.clone());
        let text = |text: &str| Some(FileChange::Text(text.to_owned()));
        assert_eq!(file.next_change().await, Some(FileChange::Missing));
        assert_eq!(file.next_change().await, None);
        fs::write(&path, "a").unwrap();
        assert_eq!(file.next_change().await, text("a"));
        assert_eq!(file.next_change().await, None);
        file.forget();
        assert_eq!(file.next_change().await, text("a"));
        fs::write(&path, b"\xff").unwrap();
        let unusable = |why: &str| Some(FileChange::Unusable(why.to_owned()));
        let why = "it is not UTF-8 text; save it as such";
        assert_eq!(file.next_change().await, unusable(why));
        fs::remove_file(&path).unwrap();
        assert_eq!(file.next_change().await, Some(FileChange::Missing));
        fs::create_dir(&path).unwrap();
        let why = "it is not a regular file";
        assert_eq!(file.next_change().await, unusable(why));
        fs::remove_dir(&path).unwrap();
        let large = fs::File::create(&path).unwrap();
        large.set_len(TEXT_BYTES_MAX + 1).unwrap();
        let why = "it is larger than 4MiB";
        assert_eq!(file.next_change().await, unusable(why));
    }

    #[tokio::test]
    async fn a_file_that_is_still_being_written_is_not_returned() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("schedules.toml");
        fs::write(&path, "half").unwrap();
        let mut file = SchedulesFile::new(path.clone());
        let writer = tokio::spawn(async move {
            tokio::time::sleep(SETTLE / 2).await;
            fs::write(&path, "whole").unwrap();
        });
        assert_eq!(file.next_change().await, None);
        writer.await.unwrap();
        assert_eq!(
            file.next_change().await,
            Some(FileChange::Text("whole".to_owned()))
        );
    }
}
