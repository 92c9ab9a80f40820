//! The schedules file as it is looked at again and again.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::folder::off_thread;
use super::listing::{self, Reading, Unread};
use super::ordered::FILE_BYTES_MAX;
use crate::strict::size_text;

/// How far apart two equal readings of the file must be for it to count as written to its end: half of it would end
/// the schedules of the other half.
const SETTLE: Duration = Duration::from_millis(200);

/// The file at one path.
pub struct SchedulesFile {
    path: PathBuf,
    /// What was there at the last look.
    seen: Option<Option<Reading>>,
}

/// What is at the path since the last look.
#[derive(Debug, PartialEq, Eq)]
pub enum News {
    Missing,
    /// A sentence that says why it cannot be used.
    Unusable(String),
    Text(String),
}

impl SchedulesFile {
    /// The file at `path`, which need not be there.
    pub fn new(path: PathBuf) -> SchedulesFile {
        SchedulesFile { path, seen: None }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Count everything as new at the next look.
    pub fn forget(&mut self) {
        self.seen = None;
    }

    /// What is new; none when nothing is, or when it is still being written.
    pub async fn news(&mut self) -> Option<News> {
        let path = self.path.clone();
        // A look that fails altogether is made good by the next.
        let seen = off_thread(move || listing::look(&path)).await.ok()?;
        if self.seen.as_ref() == Some(&seen) {
            return None;
        }
        let news = match &seen {
            None => News::Missing,
            Some(Reading::Unusable(why)) => News::Unusable(why.clone()),
            Some(Reading::File(stamp)) if stamp.size_bytes > FILE_BYTES_MAX => {
                let most = size_text(FILE_BYTES_MAX);
                News::Unusable(format!("it has more than {most}, and that is too much"))
            }
            Some(Reading::File(stamp)) => {
                tokio::time::sleep(SETTLE).await;
                let (path, stamp) = (self.path.clone(), *stamp);
                match off_thread(move || listing::read(&path, stamp)).await.ok()? {
                    Err(Unread::Changed) => return None,
                    Err(Unread::Failed(why)) => News::Unusable(why),
                    Ok(bytes) => listing::text(bytes).map_or_else(News::Unusable, News::Text),
                }
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
    async fn what_is_new_is_told_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("schedules.toml");
        let mut file = SchedulesFile::new(path.clone());
        let text = |text: &str| Some(News::Text(text.to_owned()));
        assert_eq!(file.news().await, Some(News::Missing));
        assert_eq!(file.news().await, None);
        fs::write(&path, "a").unwrap();
        assert_eq!(file.news().await, text("a"));
        assert_eq!(file.news().await, None);
        file.forget();
        assert_eq!(file.news().await, text("a"));
        fs::write(&path, b"\xff").unwrap();
        let unusable = |why: &str| Some(News::Unusable(why.to_owned()));
        let why = "it is not UTF-8 text; save it as such";
        assert_eq!(file.news().await, unusable(why));
        fs::remove_file(&path).unwrap();
        assert_eq!(file.news().await, Some(News::Missing));
        fs::create_dir(&path).unwrap();
        let why = "it is not a regular file";
        assert_eq!(file.news().await, unusable(why));
        fs::remove_dir(&path).unwrap();
        let large = fs::File::create(&path).unwrap();
        large.set_len(FILE_BYTES_MAX + 1).unwrap();
        let why = "it has more than 4MiB, and that is too much";
        assert_eq!(file.news().await, unusable(why));
    }

    #[tokio::test]
    async fn a_file_that_is_still_being_written_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("schedules.toml");
        fs::write(&path, "half").unwrap();
        let mut file = SchedulesFile::new(path.clone());
        let writer = tokio::spawn(async move {
            tokio::time::sleep(SETTLE / 2).await;
            fs::write(&path, "whole").unwrap();
        });
        assert_eq!(file.news().await, None);
        writer.await.unwrap();
        assert_eq!(file.news().await, Some(News::Text("whole".to_owned())));
    }
}
