//! What the hosts of a selftest share: a folder with a package whose effects can be counted.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use campanile_store::DatabaseUrl;

/// The package. Each call appends a line to a file: its execution id, its attempt, `first` or `recovery`, and its slot.
const APPEND: &[u8] = include_bytes!("../../assets/append.wasm");
/// The grant of the package.
const GRANT: &str =
    "[[grants.directories]]\nhost = \"../out\"\nguest = \"/out\"\naccess = \"write\"\n";
/// The time between two slots of a schedule.
pub(super) const PERIOD: Duration = Duration::from_secs(1);
/// How long a call sleeps before and after its effect, in milliseconds. A kill meets calls on both sides.
const BEFORE_MS: u32 = 300;
const AFTER_MS: u32 = 400;
/// The end of the names of variables that must not reach a host of the selftest.
const OWN_VARIABLES: &str = "CAMPANILE_";
/// The variables of a service manager that supervises the selftest and not its hosts.
const MANAGER_VARIABLES: [&str; 3] = ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"];

/// The folder of the hosts.
pub struct Scratch {
    folder: PathBuf,
}

impl Scratch {
    /// Write the package with `schedules` schedules, and a configuration, into `folder`.
    ///
    /// # Errors
    ///
    /// When a file cannot be written.
    pub fn create(folder: &Path, schedules: usize, configuration: &str) -> io::Result<Scratch> {
        // The hosts run in the folder.
        let folder = fs::canonicalize(folder)?;
        for name in ["plugins", "out", "cache"] {
            fs::create_dir_all(folder.join(name))?;
        }
        let sidecar = (0..schedules).map(|number| {
            format!(
                "[[schedules]]\nname = \"selftest-{number}\"\nevery = \"{}s\"\noverlap = \"allow\"\ncontext = {{ before_ms = {BEFORE_MS}, after_ms = {AFTER_MS} }}\n",
                PERIOD.as_secs()
            )
        });
        let sidecar = format!("{GRANT}{}", sidecar.collect::<String>());
        fs::write(folder.join("plugins/append.toml"), sidecar)?;
        fs::write(folder.join("plugins/append.wasm"), APPEND)?;
        let configuration = format!("{configuration}[sandbox]\ncache_dir = \"cache\"\n");
        fs::write(folder.join("campanile.toml"), configuration)?;
        Ok(Scratch { folder })
    }

    /// Returns the command of the host `name` on `database`.
    ///
    /// The address is not an argument: it may have a password, and the arguments of a process can be read by others.
    pub(super) fn serve(&self, program: &Path, name: &str, database: &DatabaseUrl) -> Command {
        let mut command = Command::new(program);
        for (variable, _) in std::env::vars_os() {
            let text = variable.to_string_lossy();
            if text.starts_with(OWN_VARIABLES) || MANAGER_VARIABLES.contains(&text.as_ref()) {
                command.env_remove(variable);
            }
        }
        command
            .current_dir(&self.folder)
            .env("CAMPANILE_DATABASE_URL", database.expose())
            .args(["serve", "--listen", "off", "--name", name]);
        if cfg!(target_os = "linux") {
            let own = std::process::id().to_string();
            command.args(["--end-with-parent", &own]);
        }
        command
    }

    /// Returns the file of a host's log.
    pub(super) fn log(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.log"))
    }

    /// Returns the lines of the effects until now.
    pub(super) fn effects(&self) -> String {
        // Without an effect there is no file.
        fs::read_to_string(self.folder.join("out/effects.log")).unwrap_or_default()
    }
}
