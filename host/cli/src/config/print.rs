//! The configuration as text.

use std::fmt;
use std::path::Path;

use super::Config;
use campanile_engine::secrets::Source;
use campanile_model::text::{duration_text, size_text};
use campanile_sandbox::LIMITS;

/// A key as TOML writes it.
fn key(name: &str) -> String {
    let bare = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    match !name.is_empty() && name.bytes().all(bare) {
        true => name.to_owned(),
        false => toml::Value::from(name).to_string(),
    }
}

/// The configuration in force, as TOML. Without the database's password, and without the values of secrets.
impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let quote = |text: &str| toml::Value::from(text).to_string();
        let path = |path: &Path| quote(&path.to_string_lossy());
        let time = |duration| quote(&duration_text(duration));
        let size = |bytes| quote(&size_text(bytes));
        match &self.file {
            Some(file) => writeln!(f, "# from {}", file.display())?,
            None => writeln!(f, "# no file")?,
        }
        writeln!(f, "database = {}", quote(&self.database.to_string()))?;
        writeln!(f, "plugins = {}", path(&self.plugins))?;
        writeln!(f, "schedules = {}", path(&self.schedules))?;
        writeln!(f, "\n[host]")?;
        if let Some(name) = &self.host.name {
            writeln!(f, "name = {}", quote(name))?;
        }
        writeln!(f, "runs_max = {}", self.host.runs_max)?;
        writeln!(f, "guest_threads = {}", self.host.guest_threads)?;
        writeln!(f, "wait = {}", time(self.host.wait))?;
        writeln!(f, "drain = {}", time(self.host.drain))?;
        writeln!(f, "\n[watch]\nmode = {}", quote(self.watch.mode.as_str()))?;
        writeln!(f, "rescan = {}", time(self.watch.rescan))?;
        writeln!(f, "\n[limits]")?;
        for spec in LIMITS {
            let Some(amount) = self.limits.get(spec.resource) else {
                continue;
            };
            writeln!(f, "{} = {}", spec.key(), spec.unit.toml(amount))?;
        }
        writeln!(f, "\n[recovery]\nlease = {}", time(self.recovery.lease))?;
        writeln!(f, "renew = {}", time(self.recovery.renew))?;
        writeln!(f, "lost_threshold = {}", time(self.recovery.lost_threshold))?;
        writeln!(f, "max_age = {}", time(self.recovery.max_age))?;
        writeln!(f, "max_attempts = {}", self.recovery.max_attempts)?;
        writeln!(f, "interval = {}", time(self.recovery.interval))?;
        writeln!(f, "\n[audit]\ninterval = {}", time(self.audit.interval))?;
        writeln!(
            f,
            "\n[late]\nmisfire_grace = {}",
            time(self.late.misfire_grace)
        )?;
        writeln!(f, "catchup_window = {}", time(self.late.catchup_window))?;
        writeln!(
            f,
            "\n[sandbox]\nmemory_max = {}",
            size(self.sandbox.memory_bytes_max)
        )?;
        writeln!(f, "stack = {}", size(self.sandbox.stack_bytes_max))?;
        writeln!(f, "cache = {}", self.sandbox.cache_dir.is_some())?;
        if let Some(folder) = &self.sandbox.cache_dir {
            writeln!(f, "cache_dir = {}", path(folder))?;
        }
        for (name, source) in &self.secrets {
            writeln!(f, "\n[secrets.{}]", key(name))?;
            match source {
                Source::Env { variable, .. } => writeln!(f, "env = {}", quote(variable))?,
                Source::File(file) => writeln!(f, "file = {}", path(file))?,
                Source::Command(words) => {
                    let words: Vec<String> = words.iter().map(|word| quote(word)).collect();
                    writeln!(f, "command = [{}]", words.join(", "))?;
                }
            }
        }
        Ok(())
    }
}
