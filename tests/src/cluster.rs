//! A Postgres server for the tests.
//!
//! 1. `TEST_POSTGRES_URL`, when it is set: the address of a superuser on a server that requires passwords.
//! 2. Otherwise a server that this test process starts with the `initdb` from `PATH` or from the usual folders, in a
//!    temporary folder, on a free port of 127.0.0.1.
//! 3. Otherwise the test fails, and its message says what to install or to set.
//!
//! A shell supervises the server and reads commands from a pipe that only the test process holds. However that process
//! ends, the pipe closes. The shell then stops the server and removes its folder.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::OnceLock;

use campanile_store::DatabaseUrl;

/// The user and the database that every cluster has.
const USER: &str = "campanile";

/// The message when there is no Postgres.
const NO_POSTGRES: &str = "no Postgres for this test: install its server (Debian: `apt install postgresql`, \
    macOS: `brew install postgresql`) so that `initdb` is found, or set TEST_POSTGRES_URL=postgres://USER:PASSWORD@HOST/DATABASE";

/// The shell's script. It answers one line to each command: `init`, `copy PORT`, `start PORT`,
/// `set LINE`, `promote`, `stop`, `crash`.
const SHELL: &str = r#"
cd "$PG_DIR" || exit 1
server=
stop() {
    [ -n "$server" ] || return 0
    kill "-$1" "$server" 2>/dev/null
    wait "$server"
    server=
}
start() {
    "$PG_BIN/postgres" -D data -p "$1" $PG_OPTIONS </dev/null >>server.log 2>&1 &
    server=$!
    until sed -n 8p data/postmaster.pid 2>/dev/null | grep -q ready; do
        kill -0 "$server" 2>/dev/null || { server=; return 1; }
        sleep 0.02
    done
}
while read -r word argument; do
    case $word in
        init) "$PG_BIN/initdb" -D data -U "$PG_USER" --pwfile=password -A scram-sha-256 \
            -E UTF8 --no-locale --no-sync </dev/null >server.log 2>&1 ;;
        copy) PGPASSWORD=$(cat password) "$PG_BIN/pg_basebackup" -D data -R -c fast -X stream --no-sync \
            -d "host=127.0.0.1 port=$argument user=$PG_USER application_name=standby" </dev/null >server.log 2>&1 ;;
        start) start "$argument" ;;
        set) echo "$argument" >>data/postgresql.auto.conf && "$PG_BIN/pg_ctl" -D data reload >>server.log 2>&1 ;;
        promote) "$PG_BIN/pg_ctl" -D data -w promote </dev/null >>server.log 2>&1 ;;
        stop) stop INT || true ;;
        crash) stop QUIT || true ;;
    esac
    if [ $? -eq 0 ]; then echo done; else echo "failed: $(tail -n 4 server.log | tr '\n' ' ')"; fi
done
stop INT
cd /
rm -rf "$PG_DIR"
"#;

/// Options of a cluster.
#[derive(Debug, Clone, Copy)]
pub struct ClusterOptions {
    /// Whether a commit reaches the disk. Off for speed, except in tests of server crashes.
    pub fsync: bool,
}

/// A Postgres server that this process started. The server ends when this value is dropped or the process ends.
pub struct Cluster {
    shell: Child,
    commands: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    port: u16,
    password: String,
    url: DatabaseUrl,
}

impl Cluster {
    /// Create a server and start it.
    ///
    /// # Errors
    ///
    /// One line with what is missing or what the server printed.
    pub fn start() -> Result<Cluster, String> {
        Cluster::start_with(ClusterOptions { fsync: false })
    }

    /// Create a server with `options` and start it.
    pub fn start_with(options: ClusterOptions) -> Result<Cluster, String> {
        let password = uuid::Uuid::new_v4().simple().to_string();
        Cluster::create(options, &password, "init")
    }

    /// Create a standby of this server, which follows it from now on, and start it. Its application name is `standby`.
    pub fn standby(&self) -> Result<Cluster, String> {
        let options = ClusterOptions { fsync: false };
        Cluster::create(options, &self.password, &format!("copy {}", self.port))
    }

    /// Create the files of a server with the command `create`, and start it.
    fn create(options: ClusterOptions, password: &str, create: &str) -> Result<Cluster, String> {
        let programs = server_programs().ok_or_else(|| NO_POSTGRES.to_owned())?;
        let folder = tempfile::Builder::new()
            .prefix("campanile-postgres-")
            .tempdir()
            .map_err(|error| format!("no temporary folder for Postgres: {error}"))?;
        let password_file = folder.path().join("password");
        std::fs::write(&password_file, password)
            .map_err(|error| format!("{}: {error}", password_file.display()))?;
        let mut command = as_unprivileged(folder.path(), &password_file)?;
        let fsync = if options.fsync { "on" } else { "off" };
        let mut shell = command
            .env("PG_BIN", &programs)
            .env("PG_DIR", folder.path())
            .env("PG_USER", USER)
            .env(
                "PG_OPTIONS",
                format!(
                    "-c listen_addresses=127.0.0.1 -c unix_socket_directories= -c max_connections=400 \
                     -c fsync={fsync} -c full_page_writes={fsync} -c shared_buffers=32MB"
                ),
            )
            .env_remove("PGDATA")
            .current_dir(folder.path())
            // Ctrl-C is for the tests; the end of the pipe is for the shell.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("cannot run a shell for Postgres: {error}"))?;
        let commands = shell.stdin.take();
        let answers = BufReader::new(shell.stdout.take().ok_or("no pipe from the shell")?);
        // From here on the shell removes the folder.
        let _ = folder.keep();
        let mut cluster = Cluster {
            shell,
            commands,
            answers,
            port: 0,
            password: password.to_owned(),
            url: DatabaseUrl::Sqlite(PathBuf::new()),
        };
        cluster.command(create)?;
        // Another process may bind the port before the server starts.
        let mut started = Err(String::new());
        for _ in 0..5 {
            cluster.port = free_port().map_err(|error| format!("no free port: {error}"))?;
            started = cluster.start_again();
            if started.is_ok() {
                break;
            }
        }
        started?;
        let url = format!(
            "postgres://{USER}:{password}@127.0.0.1:{}/postgres",
            cluster.port
        );
        cluster.url = url
            .parse()
            .map_err(|error| format!("the address of the test server: {error}"))?;
        Ok(cluster)
    }

    /// Return the superuser's address.
    pub fn url(&self) -> &DatabaseUrl {
        &self.url
    }

    /// Return the server's port on 127.0.0.1. It stays the same while the server is stopped.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Stop the server. It closes its connections and keeps the data.
    pub fn stop(&mut self) -> Result<(), String> {
        self.command("stop")
    }

    /// Stop the server at once, as a crash would. It recovers from its log at the next start.
    pub fn crash(&mut self) -> Result<(), String> {
        self.command("crash")
    }

    /// Set a parameter of the running server, with a line such as `name = 'value'`.
    pub fn set(&mut self, line: &str) -> Result<(), String> {
        self.command(&format!("set {line}"))
    }

    /// Let a standby accept writes. It follows no other server from then on.
    pub fn promote(&mut self) -> Result<(), String> {
        self.command("promote")
    }

    /// Start the server again on the same port, after [`Cluster::stop`] or [`Cluster::crash`].
    pub fn start_again(&mut self) -> Result<(), String> {
        let port = self.port;
        self.command(&format!("start {port}"))
    }

    /// Stop the server and start it again.
    pub fn restart(&mut self) -> Result<(), String> {
        self.stop()?;
        self.start_again()
    }

    fn command(&mut self, command: &str) -> Result<(), String> {
        let commands = self
            .commands
            .as_mut()
            .ok_or("the shell of the test server has ended")?;
        let mut answer = String::new();
        writeln!(commands, "{command}")
            .and_then(|()| commands.flush())
            .and_then(|()| self.answers.read_line(&mut answer).map(|_| ()))
            .map_err(|error| format!("the test server cannot {command}: {error}"))?;
        match answer.trim() {
            "done" => Ok(()),
            "" => Err(format!(
                "the shell of the test server ended during `{command}`"
            )),
            other => Err(format!("the test server cannot {command}: {other}")),
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.commands = None;
        let _ = self.shell.wait();
    }
}

/// Return the server that all tests of this process share, and whether it outlives them.
///
/// # Panics
///
/// When there is no server, with one line that says what to do.
pub fn shared() -> (DatabaseUrl, bool) {
    static SHARED: OnceLock<Result<Cluster, String>> = OnceLock::new();
    if let Ok(given) = std::env::var("TEST_POSTGRES_URL") {
        let url = given
            .parse()
            .unwrap_or_else(|error| panic!("TEST_POSTGRES_URL: {error}"));
        return (url, true);
    }
    match SHARED.get_or_init(Cluster::start) {
        Ok(cluster) => (cluster.url().clone(), false),
        Err(line) => panic!("{line}"),
    }
}

/// Return a free port of 127.0.0.1.
pub fn free_port() -> std::io::Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

/// Return the folder with `initdb`, `postgres`, `pg_ctl` and `pg_basebackup`: from `PATH`, else of the newest installed version.
pub fn server_programs() -> Option<PathBuf> {
    let has_all = |folder: &PathBuf| {
        let programs = ["initdb", "postgres", "pg_ctl", "pg_basebackup"];
        programs.iter().all(|name| folder.join(name).is_file())
    };
    let path = std::env::var_os("PATH").unwrap_or_default();
    if let Some(folder) = std::env::split_paths(&path).find(has_all) {
        return Some(folder);
    }
    let mut found: Vec<PathBuf> = [
        ("/usr/lib/postgresql", "", "bin"),
        ("/usr", "pgsql-", "bin"),
        ("/opt/homebrew/opt", "postgresql", "bin"),
        ("/usr/local/opt", "postgresql", "bin"),
        ("/Applications/Postgres.app/Contents/Versions", "", "bin"),
    ]
    .into_iter()
    .flat_map(|(parent, prefix, below)| {
        std::fs::read_dir(parent)
            .into_iter()
            .flatten()
            .flatten()
            .filter(move |entry| entry.file_name().to_string_lossy().starts_with(prefix))
            .map(move |entry| entry.path().join(below))
    })
    .filter(has_all)
    .collect();
    found.sort_by_key(|folder| version_in(folder));
    found.pop()
}

/// Return the digits in a path as a number: 17 for `/usr/lib/postgresql/17/bin`.
fn version_in(folder: &Path) -> u64 {
    let text = folder.to_string_lossy();
    let digits: String = text.chars().filter(char::is_ascii_digit).collect();
    digits.parse().unwrap_or(0)
}

/// Return the command that supervises the server. When this process is root, it runs as another user: Postgres refuses root.
fn as_unprivileged(folder: &Path, password_file: &Path) -> Result<Command, String> {
    if !rustix::process::geteuid().is_root() {
        let mut command = Command::new("sh");
        command.args(["-c", SHELL]);
        return Ok(command);
    }
    let user = ["postgres", "nobody"]
        .into_iter()
        .find_map(|name| Some((name, id_of(name, "-u")?, id_of(name, "-g")?)));
    let Some((name, uid, gid)) = user else {
        return Err("Postgres does not run as root, and there is no user `postgres` or `nobody` to run it as; run the tests as another user".to_owned());
    };
    for path in [folder, password_file] {
        std::os::unix::fs::chown(path, Some(uid), Some(gid))
            .map_err(|error| format!("{}: {error}", path.display()))?;
    }
    let is_installed = |program: &str| {
        std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
            .any(|folder| folder.join(program).is_file())
    };
    let mut command;
    if is_installed("setpriv") {
        command = Command::new("setpriv");
        command
            .arg(format!("--reuid={uid}"))
            .arg(format!("--regid={gid}"))
            .args(["--clear-groups", "sh", "-c", SHELL]);
    } else if is_installed("runuser") {
        command = Command::new("runuser");
        command.args(["-u", name, "--", "sh", "-c", SHELL]);
    } else {
        command = Command::new("su");
        command.args(["-s", "/bin/sh", "-c", SHELL, name]);
    }
    Ok(command)
}

fn id_of(user: &str, flag: &str) -> Option<u32> {
    let output = Command::new("id").args([flag, user]).output().ok()?;
    String::from_utf8(output.stdout).ok()?.trim().parse().ok()
}
