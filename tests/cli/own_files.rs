//! The files of a host: their modes, other users who can write them, and grants of directories on the way to them.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Command;

use campanile_tests::{HostProcess, Place, on_both_empty};

use crate::site::{Site, eventually, stop, text};

on_both_empty!(
    a_host_does_not_start_while_others_can_change_its_files,
    a_package_that_others_can_write_is_rejected_and_the_host_starts,
    a_grant_above_a_link_on_the_way_to_the_plugins_folder_is_refused,
    a_changed_link_above_the_plugins_folder_changes_nothing,
    new_files_are_private_without_a_umask,
    compiled_code_of_others_is_not_used,
);

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("a mode");
}

fn mode(path: &Path) -> u32 {
    let found = fs::metadata(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    found.permissions().mode() & 0o7777
}

async fn a_host_does_not_start_while_others_can_change_its_files(place: Place) {
    let site = Site::new(place);
    let at = |name: &str| site.folder().join(name);
    fs::create_dir(at("secrets")).expect("a folder");
    for file in ["secrets/token", "secrets/command", "schedules.toml"] {
        fs::write(at(file), "").expect("a file");
    }
    chmod(&at("secrets/command"), 0o755);
    let secrets =
        "[secrets.a]\nfile = 'secrets/token'\n[secrets.b]\ncommand = ['secrets/command']\n";
    site.configure(secrets);
    // The database has its tables, and its file exists if it is one.
    stop(&mut site.serve());

    let mut places = vec![
        ("plugins", "the plugins folder"),
        ("campanile.toml", "the configuration"),
        ("schedules.toml", "the schedules file"),
        ("secrets/token", "the secret file"),
        ("secrets/command", "the secret command"),
        ("secrets", "the secret file"),
        (".", "the plugins folder"),
    ];
    if let Some(file) = site.place().url.sqlite_path() {
        places.push((file.to_str().expect("a name"), "the database"));
    }
    for (file, kind) in places {
        let path = at(file);
        let before = mode(&path);
        chmod(&path, 0o777);
        site.configure(secrets);
        for command in [["serve"].as_slice(), &["config", "check"]] {
            site.run(command.iter().copied()).assert_refused(&[
                kind,
                "every user can write it (mode 0777)",
                "chmod go-w",
                "foreign_writers = \"warn\"",
            ]);
        }
        let health = site.run(["health", "--json"]).json();
        let notes = health["notes"].to_string();
        assert!(notes.contains("every user can write it"), "{file}: {notes}");

        site.configure(&format!("policy.foreign_writers = 'warn'\n{secrets}"));
        let mut host = site.serve();
        host.wait_for_line("every user can write it (mode 0777)");
        stop(&mut host);
        let checked = site.run(["config", "check"]);
        assert_eq!(checked.code, 0, "{checked:?}");
        checked.assert_stderr("warning: other users");
        chmod(&path, before);
    }
    site.configure(secrets);
    stop(&mut site.serve());
}

async fn a_package_that_others_can_write_is_rejected_and_the_host_starts(place: Place) {
    let site = Site::new(place);
    site.copy_package("guests");
    chmod(&site.plugin("guests.wasm"), 0o666);
    let mut host = site.serve();
    host.wait_for_line("rejected guests");
    let why = "other users of this machine can change it: every user can write it (mode 0666)";
    let notes = eventually(|| {
        let notes = site.run(["health", "--json"]).json()["notes"].to_string();
        match notes.contains("cannot be used") {
            true => Ok(notes),
            false => Err(notes),
        }
    });
    assert!(notes.contains(why), "{notes}");
    let checked = site.run(["config", "check"]);
    checked.assert_stderr("guests.wasm: other users");
    chmod(&site.plugin("guests.wasm"), 0o644);
    host.wait_for_line("added guests");
    stop(&mut host);

    chmod(&site.plugin("guests.wasm"), 0o666);
    site.configure("policy.foreign_writers = 'warn'\n");
    let mut host = site.serve();
    host.wait_for_line("guests.wasm: other users of this machine can change it");
    stop(&mut host);
}

/// Make `way/plugins` a link to the plugins folder, and configure it.
fn link_plugins(site: &Site) {
    fs::create_dir(site.folder().join("way")).expect("a folder");
    symlink("../plugins", site.folder().join("way/plugins")).expect("a link");
    site.configure("plugins = 'way/plugins'\n");
}

/// The attack of an audit: with this grant a task replaced the link by a folder with a sidecar of its own, and so granted
/// itself everything.
async fn a_grant_above_a_link_on_the_way_to_the_plugins_folder_is_refused(place: Place) {
    let site = Site::new(place);
    link_plugins(&site);
    site.copy_package("guests");
    site.sidecar(
        "guests",
        "[[grants.directories]]\nhost = '../way'\nguest = '/data'\naccess = 'write'\n",
    );
    let mut host = site.serve();
    host.wait_for_line("contains the plugins folder");
    let shown = site.json(["package", "show", "guests"]);
    assert_eq!(shown["state"], "rejected", "{shown:#}");
    stop(&mut host);
    let tried = site.run(["task", "check", "plugins/guests.wasm"]);
    assert_eq!(tried.code, 2, "{tried:?}");
}

async fn a_changed_link_above_the_plugins_folder_changes_nothing(place: Place) {
    let site = Site::new(place);
    link_plugins(&site);
    site.copy_package("guests");
    let mut host = site.serve();
    host.wait_for_line("added guests");
    let link = site.folder().join("way/plugins");
    fs::remove_file(&link).expect("no link");
    fs::create_dir(&link).expect("a folder");
    let planted = link.join("planted.wasm");
    fs::copy(crate::site::package("guests"), &planted).expect("a copy");
    host.wait_for_line("since a link on the way changed");
    let listed = site.ok(["package", "list"]);
    assert!(
        listed.contains("guests") && !listed.contains("planted"),
        "{listed}"
    );
    let shown = site.json(["package", "show", "guests"]);
    assert_eq!(text(&shown["state"]), "active");
    stop(&mut host);
}

async fn new_files_are_private_without_a_umask(place: Place) {
    let site = Site::new(place);
    site.copy_package("guests");
    let cache = site.folder().join("caches");
    let serve = site.command(["serve"]);
    let mut without_umask = Command::new("sh");
    without_umask.args(["-c", "umask 0; exec \"$@\"", "sh"]);
    without_umask
        .arg(serve.get_program())
        .args(serve.get_args());
    for (name, value) in serve.get_envs() {
        match value {
            Some(value) => without_umask.env(name, value),
            None => without_umask.env_remove(name),
        };
    }
    without_umask
        .current_dir(site.folder())
        .env("XDG_CACHE_HOME", &cache);
    let mut host = HostProcess::spawn(&mut without_umask);
    host.wait_for_line("added guests");
    assert_eq!(mode(&cache), 0o700);
    assert_eq!(mode(&cache.join("campanile")), 0o700);
    if let Some(file) = site.place().url.sqlite_path() {
        for end in ["", "-wal", "-shm", ".lock"] {
            let mut path = site.folder().join(file).into_os_string();
            path.push(end);
            assert_eq!(mode(Path::new(&path)), 0o600, "{end}");
        }
    }
    stop(&mut host);
}

async fn compiled_code_of_others_is_not_used(place: Place) {
    let site = Site::new(place);
    site.copy_package("guests");
    let cache = site.folder().join("shared/cache");
    fs::create_dir_all(&cache).expect("a folder");
    chmod(&site.folder().join("shared"), 0o777);
    site.configure("sandbox.cache_dir = 'shared/cache'\n");
    let mut host = site.serve();
    host.wait_for_line("so it is not used");
    host.wait_for_line("added guests");
    let left = fs::read_dir(&cache).expect("entries").count();
    assert_eq!(left, 0);
    stop(&mut host);

    chmod(&site.folder().join("shared"), 0o755);
    let mut host = site.serve();
    host.wait_for_line("added guests");
    assert_ne!(fs::read_dir(&cache).expect("entries").count(), 0);
    assert_eq!(mode(&cache), 0o700);
    stop(&mut host);
}
