//! Quotas of directories in sidecars.

use super::*;

#[test]
fn a_quota_is_for_a_writable_directory_and_allows_something() {
    let grant = |access: &str, quota: &str| {
        read(&format!(
            "[[grants.directories]]\nhost = 'data'\nguest = '/x'\naccess = '{access}'\n{quota}"
        ))
    };
    let sidecar = grant("write", "max_bytes = '1GiB'\nmax_files = 1000").unwrap();
    let quota = campanile_sandbox::DirectoryQuota {
        max_bytes: Some(1 << 30),
        max_files: Some(1000),
    };
    assert_eq!(sidecar.grants.directories[0].quota, quota);
    for (access, quota, expected) in [
        (
            "read",
            "max_bytes = '1GiB'",
            ":5:1: `grants.directories[0].max_bytes` limits what a task may write, and `access` is \"read\": leave the key out",
        ),
        (
            "read",
            "max_files = 0",
            ":5:1: `grants.directories[0].max_files` limits what a task may write",
        ),
        (
            "write",
            "max_bytes = '0B'",
            "max_bytes` is a quota of 0, with which nothing may be written: write `access = \"read\"`, or leave the key out",
        ),
        ("write", "max_files = 0", "max_files` is a quota of 0"),
        (
            "write",
            "max_bytes = '4095B'",
            "max_bytes` is less than \"4KiB\", which the smallest file counts",
        ),
        (
            "write",
            "max_files = 1000001",
            "max_files` must be a whole number from 0 to 1000000",
        ),
        ("write", "max_bytes = 100", "a size in quotes with a unit"),
    ] {
        let error = grant(access, quota).unwrap_err();
        assert!(error.contains(expected), "{quota}: {error}");
    }
}

#[test]
fn a_quota_is_not_evaded_through_another_grant_of_the_same_file() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path().canonicalize().unwrap();
    fs::create_dir_all(root.join("plugins")).unwrap();
    fs::create_dir_all(root.join("out/in")).unwrap();
    fs::create_dir_all(root.join("out2")).unwrap();
    let read = |grants: [(&str, &str); 2]| {
        let grant = |(number, (host, more)): (usize, (&str, &str))| {
            format!(
                "[[grants.directories]]\nhost = '../{host}'\nguest = '/{number}'\naccess = {more}\n"
            )
        };
        let text: String = grants.into_iter().enumerate().map(grant).collect();
        Sidecar::parse(&root.join("plugins/p.toml"), &text, &rules(Vec::new()))
            .map_err(|error| error.to_string())
    };
    let (free, quota, read_only) = ("'write'", "'write'\nmax_files = 9", "'read'");
    for grants in [
        [("out", quota), ("out/in", free)],
        [("out", free), ("out/in", quota)],
        [("out/in", quota), ("out", free)],
        [("out", quota), ("out", quota)],
    ] {
        let error = read(grants).unwrap_err();
        assert!(
            error.contains("could evade the quota of one through the other"),
            "{error}"
        );
    }
    for grants in [
        [("out", free), ("out/in", free)],
        [("out", quota), ("out/in", read_only)],
        [("out", quota), ("out2", quota)],
    ] {
        read(grants).unwrap();
    }
}
