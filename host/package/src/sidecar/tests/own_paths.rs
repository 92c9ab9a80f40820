//! Grants of directories on the way to the files of the host.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use super::{Sidecar, rules};
use crate::host_rules::{OwnPath, OwnPathKind};

/// Read a sidecar that grants `host` of a folder in which the host has `etc/campanile.toml`, `cache/`, and
/// `db/campanile.db`, which does not exist yet.
fn grant_beside_own_paths(root: &Path, host: &str, access: &str) -> Result<Sidecar, String> {
    let plugins = root.join("plugins");
    for folder in ["plugins", "etc", "db", "cache/deep", "free"] {
        fs::create_dir_all(root.join(folder)).unwrap();
    }
    fs::write(root.join("etc/campanile.toml"), "").unwrap();
    let rules = rules(vec![
        own(OwnPathKind::Configuration, root.join("etc/campanile.toml")),
        own(OwnPathKind::Database, root.join("db/campanile.db")),
        own(OwnPathKind::Cache, root.join("cache")),
    ]);
    let text =
        format!("[[grants.directories]]\nhost = '{host}'\nguest = '/data'\naccess = '{access}'");
    Sidecar::parse(&plugins.join("backup.toml"), &text, &rules).map_err(|error| error.to_string())
}

#[test]
fn files_that_the_host_uses_are_never_granted_for_writing() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    for (host, own) in [
        ("../etc", "etc/campanile.toml"),
        ("../db", "db/campanile.db"),
        ("../cache", "cache"),
        ("../cache/deep", "cache"),
    ] {
        let refused = grant_beside_own_paths(root, host, "write").unwrap_err();
        assert!(refused.contains(own), "{refused}");
        assert!(refused.contains("which overlaps the"), "{refused}");
        grant_beside_own_paths(root, host, "read").unwrap();
    }
    grant_beside_own_paths(root, "../free", "write").unwrap();
    symlink(root.join("cache"), root.join("free/link")).unwrap();
    grant_beside_own_paths(root, "../free/link", "write").unwrap_err();
}

#[test]
fn the_record_of_the_host_is_never_granted_even_for_reading() {
    let root = tempfile::tempdir().unwrap();
    let at = |name: &str| root.path().join(name);
    for folder in ["plugins", "host/state/deep", "free"] {
        fs::create_dir_all(at(folder)).unwrap();
    }
    symlink(at("host/state"), at("link")).unwrap();
    let record = || vec![own(OwnPathKind::State, at("host/state"))];
    for folder in ["host", "host/state", "host/state/deep", "link"] {
        for access in ["read", "write"] {
            let refused = grant(&at("plugins"), record(), &at(folder), access).unwrap_err();
            assert!(refused.contains("the record of the host"), "{refused}");
        }
    }
    grant(&at("plugins"), record(), &at("free"), "read").unwrap();
}

fn own(kind: OwnPathKind, path: PathBuf) -> OwnPath {
    OwnPath { kind, path }
}

/// Read a sidecar of the plugins folder `plugins`, on a host with `own_paths`, that grants the directory `host`.
fn grant(
    plugins: &Path,
    own_paths: Vec<OwnPath>,
    host: &Path,
    access: &str,
) -> Result<Sidecar, String> {
    let host = host.display();
    let text =
        format!("[[grants.directories]]\nhost = '{host}'\nguest = '/data'\naccess = '{access}'");
    let read = Sidecar::parse(&plugins.join("backup.toml"), &text, &rules(own_paths));
    read.map_err(|error| error.to_string())
}

/// Create `real/target/` and directories with links through which `way/link/here` leads to it; return the directories of
/// the links.
fn links_to(root: &Path) -> [PathBuf; 3] {
    for folder in ["way", "second", "third/deep", "real/target/here", "free"] {
        fs::create_dir_all(root.join(folder)).unwrap();
    }
    symlink(root.join("second/link"), root.join("way/link")).unwrap();
    symlink("../third/deep/../link", root.join("second/link")).unwrap();
    symlink("../real/target", root.join("third/link")).unwrap();
    ["way", "second", "third"].map(|folder| root.join(folder))
}

#[test]
fn a_directory_above_a_link_on_the_way_to_the_plugins_folder_is_never_granted_for_writing() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path().canonicalize().unwrap();
    let folders = links_to(&root);
    let plugins = root.join("way/link/here");
    let own_plugins = vec![own(OwnPathKind::Plugins, plugins.clone())];
    for folder in &folders {
        let refused = grant(&plugins, Vec::new(), folder, "write").unwrap_err();
        assert!(refused.contains("contains the plugins folder"), "{refused}");
        grant(&plugins, Vec::new(), folder, "read").unwrap();
        // The same for a sidecar of another folder, such as that of a downloaded file.
        let elsewhere = root.join("free");
        let refused = grant(&elsewhere, own_plugins.clone(), folder, "write").unwrap_err();
        assert!(refused.contains("the plugins folder"), "{refused}");
    }
    // The way passes this directory and leaves it again: a link in its place would lead elsewhere.
    grant(&plugins, Vec::new(), &root.join("third/deep"), "write").unwrap_err();
    grant(&plugins, own_plugins, &root.join("free"), "write").unwrap();
}

#[test]
fn a_directory_above_a_link_on_the_way_to_any_file_of_the_host_is_never_granted_for_writing() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path().canonicalize().unwrap();
    let folders = links_to(&root);
    let free = root.join("free");
    for kind in OwnPathKind::ALL {
        // The file need not exist.
        let own_paths = vec![own(*kind, root.join("way/link/here/file"))];
        for folder in folders.iter().chain([&root.join("real")]) {
            let refused = grant(&free, own_paths.clone(), folder, "write").unwrap_err();
            assert!(refused.contains(kind.as_str()), "{refused}");
        }
    }
}

#[test]
fn a_directory_through_which_a_linked_sidecar_leads_is_never_granted_for_writing() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path().canonicalize().unwrap();
    for folder in ["plugins", "elsewhere/deep", "free"] {
        fs::create_dir_all(root.join(folder)).unwrap();
    }
    let plugins = root.join("plugins");
    fs::write(root.join("elsewhere/deep/other.toml"), "").unwrap();
    let grant = |host: &str| grant(&plugins, Vec::new(), &root.join(host), "write");
    grant("elsewhere").unwrap();
    symlink("../elsewhere/deep/other.toml", plugins.join("other.toml")).unwrap();
    for host in ["elsewhere", "elsewhere/deep"] {
        let refused = grant(host).unwrap_err();
        assert!(refused.contains("other.toml"), "{refused}");
    }
    grant("free").unwrap();
}

#[test]
fn a_directory_with_a_secret_file_is_never_granted() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path().canonicalize().unwrap();
    for folder in ["links", "secrets/deep", "plugins"] {
        fs::create_dir_all(root.join(folder)).unwrap();
    }
    fs::write(root.join("secrets/deep/token"), "hunter2").unwrap();
    symlink("../secrets/deep/token", root.join("links/token")).unwrap();
    let own_paths = vec![own(OwnPathKind::SecretFile, root.join("links/token"))];
    for (host, read, write) in [
        (".", false, false),
        ("secrets", false, false),
        ("secrets/deep", false, false),
        // A reader of the link learns only where the secret is.
        ("links", true, false),
    ] {
        let grant = |access| {
            let host = root.join(host).canonicalize().unwrap();
            grant(&root.join("plugins"), own_paths.clone(), &host, access)
        };
        assert_eq!(grant("read").is_ok(), read, "{host}");
        assert_eq!(grant("write").is_ok(), write, "{host}");
    }
}

#[test]
fn a_granted_link_grants_its_target_directory() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path().canonicalize().unwrap();
    fs::create_dir(root.join("there")).unwrap();
    symlink("there", root.join("link")).unwrap();
    let sidecar = grant_beside_own_paths(&root, "../link", "read").unwrap();
    assert_eq!(sidecar.grants.directories[0].host, root.join("there"));
}

#[test]
fn no_pseudo_file_system_is_granted() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path().canonicalize().unwrap();
    fs::create_dir(root.join("plugins")).unwrap();
    symlink("/proc/self", root.join("self")).unwrap();
    for access in ["read", "write"] {
        for host in ["/proc", "/proc/self", "/proc/self/task", "/sys", "/dev"] {
            let refused = grant(&root.join("plugins"), Vec::new(), Path::new(host), access);
            let refused = refused.unwrap_err();
            assert!(refused.contains("pseudo file system"), "{host} {refused}");
        }
        let refused = grant_beside_own_paths(&root, "../self", access).unwrap_err();
        assert!(refused.contains("pseudo file system proc"), "{refused}");
        // A directory also gives access to anything mounted below it.
        let refused = grant(&root.join("plugins"), Vec::new(), Path::new("/"), access);
        assert!(refused.is_err());
    }
}

#[test]
fn nothing_inside_the_plugins_folder_is_granted_for_writing() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path().canonicalize().unwrap();
    let plugins = root.join("plugins");
    for folder in ["@a", "@b/deep", "data", "@c"] {
        fs::create_dir_all(plugins.join(folder)).unwrap();
    }
    fs::create_dir(root.join("free")).unwrap();
    symlink(plugins.join("@b"), root.join("free/link")).unwrap();
    let own_paths = vec![own(OwnPathKind::Plugins, plugins.clone())];
    for host in [
        "..",
        ".",
        "../@b",
        "../@b/deep",
        "../data",
        "../../free/link",
        "../../free/../plugins/@c",
    ] {
        for folder in ["@a", "@b/.."] {
            let granted = plugins.join("@a").join(host);
            let grant = |access| grant(&plugins.join(folder), own_paths.clone(), &granted, access);
            let refused = grant("write").unwrap_err();
            assert!(refused.contains("the plugins folder"), "{host}: {refused}");
            grant("read").unwrap();
        }
    }
    grant(
        &plugins.join("@a"),
        own_paths.clone(),
        &root.join("free"),
        "write",
    )
    .unwrap();
    // A link in another namespace leads through a directory.
    fs::write(root.join("free/real.wasm"), "").unwrap();
    symlink("../../free/real.wasm", plugins.join("@b/p.wasm")).unwrap();
    let through = grant(&plugins.join("@a"), own_paths, &root.join("free"), "write");
    assert!(through.unwrap_err().contains("through which the link"));
}
