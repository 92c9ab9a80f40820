//! Where the values of secrets come from: the environment, a file, or a command.
//!
//! A call reads its values and keeps them to itself. Only the answer of a command is kept, for a minute: password
//! managers are slow, and many calls at once run the command once. No value is ever logged or recorded.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::Command;
use tokio::sync::Mutex;

use campanile_control::settings::SecretSource;
use campanile_sandbox::{Secret, Secrets};

/// The most bytes of one value.
const VALUE_BYTES_MAX: u64 = 64 << 10;
/// How long a command may take to answer, or a file to be read.
const WAIT_MAX: Duration = Duration::from_secs(10);
/// How long the answer of a command is used again.
const COMMAND_KEPT: Duration = Duration::from_secs(60);
/// How long a failed command is not run again: calls that waited for it get the same error.
const FAILURE_KEPT: Duration = Duration::from_secs(5);

/// The secrets of a host, by name: each with its source, and the last answer if that is a command.
#[derive(Debug, Default)]
pub struct Vault(BTreeMap<String, (SecretSource, Mutex<Option<Answer>>)>);

/// What a command answered.
#[derive(Debug)]
struct Answer {
    value: Result<Secret, String>,
    /// Until then the command is not run again.
    until: Instant,
}

/// Why a secret's value cannot be had. It names the source, and never the value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the secret `{name}` cannot be had from its {source_text}: {why}")]
pub struct SecretError {
    name: String,
    source_text: String,
    why: String,
}

impl Vault {
    /// Returns the secrets that `sources` have.
    pub fn new(sources: BTreeMap<String, SecretSource>) -> Vault {
        let sources = sources.into_iter();
        let sources = sources.map(|(name, source)| (name, (source, Mutex::default())));
        Vault(sources.collect())
    }

    /// Returns the values of `names`.
    ///
    /// # Errors
    ///
    /// When one of them cannot be had now.
    pub async fn values(
        &self,
        names: impl IntoIterator<Item = &str>,
    ) -> Result<Secrets, SecretError> {
        let mut secrets = Secrets::new();
        for name in names {
            secrets.insert(name.to_owned(), self.value(name).await?);
        }
        Ok(secrets)
    }

    /// Returns the secrets contained in any of `texts`. Those are values passed to a task as non-secret, yet their secrets must be
    /// redacted from its output all the same. For secrets from commands the last answer counts; none is run for this.
    pub async fn contained_in(&self, texts: &[&str]) -> Secrets {
        let mut found = Secrets::new();
        if texts.is_empty() {
            return found;
        }
        for (name, (source, last_answer)) in &self.0 {
            let value = match source {
                SecretSource::Env { value, .. } => value.clone(),
                SecretSource::File(path) => in_time(read_file(path)).await.ok(),
                SecretSource::Command(_) => last_answer.try_lock().ok().and_then(|last| {
                    let answer = last.as_ref()?;
                    answer.value.clone().ok()
                }),
            };
            let Some(value) = value else { continue };
            let sought = value.reveal().trim();
            if !sought.is_empty() && texts.iter().any(|text| text.contains(sought)) {
                found.insert(name.clone(), value);
            }
        }
        found
    }

    async fn value(&self, name: &str) -> Result<Secret, SecretError> {
        let error = |source_text: String, why: String| SecretError {
            name: name.to_owned(),
            source_text,
            why,
        };
        let Some((source, last_answer)) = self.0.get(name) else {
            let why = "it is not there any more; say where it comes from at `[secrets]` in the host's configuration";
            return Err(error("configuration".to_owned(), why.to_owned()));
        };
        let value = match source {
            SecretSource::Env { value, .. } => value.clone().ok_or_else(|| {
                "it was not set when the host started; set it and start the host again".to_owned()
            }),
            SecretSource::File(path) => in_time(read_file(path)).await,
            SecretSource::Command(words) => answer(words, last_answer).await,
        };
        value.map_err(|why| error(source.to_string(), why))
    }
}

/// Returns the answer of a command, which one call at a time runs.
async fn answer(words: &[String], last: &Mutex<Option<Answer>>) -> Result<Secret, String> {
    let mut last = last.lock().await;
    if let Some(answer) = last.as_ref().filter(|answer| answer.until > Instant::now()) {
        return answer.value.clone();
    }
    let value = in_time(run(words)).await;
    let kept = match value {
        Ok(_) => COMMAND_KEPT,
        Err(_) => FAILURE_KEPT,
    };
    let until = Instant::now() + kept;
    let answer = last.insert(Answer { value, until });
    answer.value.clone()
}

async fn in_time(reading: impl Future<Output = Result<Secret, String>>) -> Result<Secret, String> {
    let limit = humantime::format_duration(WAIT_MAX);
    let read = tokio::time::timeout(WAIT_MAX, reading).await;
    read.unwrap_or_else(|_| Err(format!("it gave no answer within {limit}")))
}

/// Read a file. Opening a pipe would wait for a writer.
async fn read_file(path: &Path) -> Result<Secret, String> {
    let about = tokio::fs::metadata(path).await;
    if !about.map_err(|error| error.to_string())?.is_file() {
        return Err("it is not a regular file".to_owned());
    }
    match tokio::fs::File::open(path).await {
        Ok(file) => read(file).await,
        Err(error) => Err(error.to_string()),
    }
}

/// Run a command and read its stdout; its stderr is dropped.
async fn run(words: &[String]) -> Result<Secret, String> {
    let Some((program, arguments)) = words.split_first() else {
        return Err("it names no command".to_owned());
    };
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        // It may hold secrets, which must not be in the host's log.
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| error.to_string())?;
    let Some(stdout) = child.stdout.take() else {
        return Err("its output cannot be read".to_owned());
    };
    let printed = read(stdout).await;
    let status = child.wait().await.map_err(|error| error.to_string())?;
    match status.success() {
        true => printed,
        // Also a command whose output was not read to its end.
        false => Err(format!("it ended with {status}; run it by hand to see why")),
    }
}

async fn read(source: impl AsyncRead + Unpin) -> Result<Secret, String> {
    let mut text = String::new();
    let mut limited = source.take(VALUE_BYTES_MAX + 1);
    let read = limited.read_to_string(&mut text).await;
    read.map_err(|error| error.to_string())?;
    if text.len() as u64 > VALUE_BYTES_MAX {
        return Err(format!("it has more than {VALUE_BYTES_MAX} bytes"));
    }
    let line = text.strip_suffix('\n').unwrap_or(&text);
    let value = line.strip_suffix('\r').unwrap_or(line);
    if value.is_empty() {
        Err("it is empty".to_owned())
    } else {
        Ok(Secret::new(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn value(source: SecretSource) -> Result<Secret, String> {
        let vault = Vault::new(BTreeMap::from([("s".to_owned(), source)]));
        let found = vault.values(["s"]).await;
        found
            .map(|secrets| secrets["s"].clone())
            .map_err(|error| error.to_string())
    }

    fn command(words: &[&str]) -> SecretSource {
        SecretSource::Command(words.iter().map(|word| (*word).to_owned()).collect())
    }

    #[tokio::test]
    async fn each_source_gives_its_value_without_the_last_end_of_line() {
        let secret = Secret::new("hunter2");
        let env = SecretSource::Env {
            variable: "V".to_owned(),
            value: Some(secret.clone()),
        };
        assert_eq!(value(env).await, Ok(secret.clone()));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        std::fs::write(&path, "hunter2\r\n").unwrap();
        assert_eq!(value(SecretSource::File(path)).await, Ok(secret.clone()));
        let printed = command(&["printf", "hunter2\\n"]);
        assert_eq!(value(printed).await, Ok(secret));
    }

    #[tokio::test]
    async fn what_cannot_be_had_says_where_it_was_looked_for() {
        let env = SecretSource::Env {
            variable: "V".to_owned(),
            value: None,
        };
        assert_eq!(
            value(env).await.unwrap_err(),
            "the secret `s` cannot be had from its env V: it was not set when the host started; set it and start the host again"
        );
        let missing = value(SecretSource::File("/no/such/file".into())).await;
        assert!(missing.unwrap_err().contains("file /no/such/file"));
        let folder = value(SecretSource::File("/".into())).await.unwrap_err();
        assert!(folder.ends_with("it is not a regular file"), "{folder}");
        let failed = value(command(&["false"])).await.unwrap_err();
        assert!(failed.contains("it ended with exit status: 1"), "{failed}");
        let empty = value(command(&["true"])).await.unwrap_err();
        assert!(empty.ends_with("it is empty"), "{empty}");
        let flood = value(command(&["head", "-c", "70000", "/dev/zero"])).await;
        assert!(flood.is_err());
        let path = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(path.path(), [b'x'; 70_000]).unwrap();
        let long = value(SecretSource::File(path.path().into()))
            .await
            .unwrap_err();
        assert!(long.contains("more than 65536 bytes"), "{long}");
    }

    #[tokio::test]
    async fn a_file_is_read_anew_and_a_command_is_not_asked_again_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        let text = path.display().to_string();
        let vault = Vault::new(BTreeMap::from([
            ("file".to_owned(), SecretSource::File(path.clone())),
            ("command".to_owned(), command(&["cat", &text])),
        ]));
        for (content, by_file, by_command) in [("one", "one", "one"), ("two", "two", "one")] {
            std::fs::write(&path, content).unwrap();
            let found = vault.values(["file", "command"]).await.unwrap();
            assert_eq!(found["file"], Secret::new(by_file));
            assert_eq!(found["command"], Secret::new(by_command));
        }
    }

    #[tokio::test]
    async fn a_secret_in_a_plain_text_is_found_from_each_source() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        std::fs::write(&path, "in-a-file\n").unwrap();
        let env = SecretSource::Env {
            variable: "V".to_owned(),
            value: Some(Secret::new("in-a-variable")),
        };
        let vault = Vault::new(BTreeMap::from([
            ("variable".to_owned(), env),
            ("file".to_owned(), SecretSource::File(path)),
            ("command".to_owned(), command(&["echo", "printed"])),
            (
                "gone".to_owned(),
                SecretSource::File("/no/such/file".into()),
            ),
        ]));
        let texts = ["x", "--key=in-a-file", "in-a-variable", "printed"];
        let found = vault.contained_in(&texts).await;
        assert_eq!(found.keys().collect::<Vec<_>>(), ["file", "variable"]);
        vault.values(["command"]).await.unwrap();
        assert!(vault.contained_in(&texts).await.contains_key("command"));
        assert!(vault.contained_in(&["in-a-fil"]).await.is_empty());
        assert!(vault.contained_in(&[]).await.is_empty());
    }

    #[tokio::test]
    async fn many_calls_at_once_ask_a_command_once() {
        let folder = tempfile::tempdir().unwrap();
        let script = "echo asked >> asked; sleep 0.1; echo hunter2; exit $0";
        for (status, asked) in [("0", 1), ("3", 2)] {
            let line = format!("cd {} && {script}", folder.path().display());
            let vault = Vault::new(BTreeMap::from([(
                "s".to_owned(),
                command(&["sh", "-c", &line, status]),
            )]));
            let calls = (0..20).map(|_| vault.values(["s"]));
            let answers = futures_util::future::join_all(calls).await;
            assert!(
                answers
                    .iter()
                    .all(|answer| answer.is_ok() == (status == "0"))
            );
            let lines = std::fs::read_to_string(folder.path().join("asked")).unwrap();
            assert_eq!(lines.lines().count(), asked);
            // The arguments of the command may hold a secret, so the error does not show them.
            if let Err(error) = &answers[0] {
                assert_eq!(
                    error.to_string(),
                    "the secret `s` cannot be had from its command sh: it ended with exit status: 3; run it by hand to see why"
                );
            }
        }
    }
}
