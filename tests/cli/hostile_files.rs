//! Files that do harm while they are read or compiled: the host continues, says what happened, and does not try again.

use campanile_tests::hostile::{
    language_engine, many_functions, many_types, nested_components, nested_types,
};
use campanile_tests::{Place, on_both_empty};

use crate::site::{Site, eventually, list, package, run, stop, text};

on_both_empty!(
    files_that_exhaust_their_loader_are_refused_and_a_neighbour_launches_on,
    a_refused_file_is_not_loaded_again_until_it_is_touched,
);

/// What the loader may use in these tests: far less than by default, so that files fail soon.
const LIMITS: &str = "[packages]\nload_memory = '128MiB'\nload_time = '30s'\n";

fn site(place: Place) -> Site {
    let site = Site::new(place);
    site.configure(LIMITS);
    site
}

fn rejection(site: &Site, name: &str) -> Option<String> {
    let row = list(site.json(["package", "list"]));
    let row = row.into_iter().find(|row| row["name"] == name)?;
    row["rejection"].as_str().map(str::to_owned)
}

/// The number of launches that succeeded.
fn succeeded(site: &Site) -> usize {
    let launches = list(site.json(["launch", "list", "--limit", "1000"]));
    let succeeded = launches.iter().filter(|row| row["status"] == "succeeded");
    succeeded.count()
}

async fn files_that_exhaust_their_loader_are_refused_and_a_neighbour_launches_on(place: Place) {
    let site = site(place);
    site.copy_package("noop");
    // On a slow machine a launch may take longer than a second.
    site.sidecar("noop", "[[schedules]]\nevery = '1s'\noverlap = 'allow'\n");
    let mut host = site.serve();
    let hello = std::fs::read(package("hello")).unwrap();
    for (name, bytes) in [
        ("functions", many_functions(900_000)),
        ("types", many_types(900_000)),
        ("nested", nested_components(&hello, 4_000)),
        ("nested-types", nested_types(4_000)),
        ("cut", many_functions(10)[..40].to_vec()),
    ] {
        std::fs::write(site.plugin(&format!("{name}.wasm")), bytes).unwrap();
    }
    let refused = |name: &str, part: &str| {
        let why =
            eventually(|| rejection(&site, name).ok_or_else(|| format!("{name} has no rejection")));
        assert!(why.contains(part), "{name}: {why}");
    };
    refused("functions", "load failed: out of memory at 128MiB");
    refused("types", "load failed: out of memory at 128MiB");
    refused("nested", "load failed: ");
    refused("nested-types", "load failed: ");
    refused("cut", "the file is cut short");
    let before = succeeded(&site);
    eventually(|| match succeeded(&site) > before {
        true => Ok(()),
        false => Err("no launch succeeds".to_owned()),
    });
    let launches = list(site.json(["launch", "list", "--limit", "1000"]));
    assert!(
        launches.iter().all(|row| row["decision"] == "launched"),
        "{launches:#?}"
    );
    site.wait_until_healthy();
    stop(&mut host);
}

async fn a_refused_file_is_not_loaded_again_until_it_is_touched(place: Place) {
    let site = site(place);
    let file = site.plugin("functions.wasm");
    std::fs::write(&file, many_functions(900_000)).unwrap();
    let rejected_at = |site: &Site| {
        eventually(|| match list(site.json(["package", "list"])).first() {
            Some(row) if row["rejection"].is_string() => Ok(text(&row["rejected_at"])),
            _ => Err("no rejection".to_owned()),
        })
    };
    let mut host = site.serve();
    rejected_at(&site);
    stop(&mut host);
    // The next start refuses the file by the rejection on record. With these limits, a loader would report another error.
    site.configure(LIMITS);
    let mut host = site.serve();
    rejected_at(&site);
    let loads = |host: &campanile_tests::HostProcess| {
        host.stderr_lines()
            .iter()
            .filter(|line| line.contains("loading functions"))
            .count()
    };
    assert_eq!(loads(&host), 0);
    std::fs::write(&file, many_functions(900_000)).unwrap();
    eventually(|| match loads(&host) {
        0 => Err("the file is not loaded".to_owned()),
        _ => Ok(()),
    });
    stop(&mut host);
}

#[test]
fn a_large_file_with_scattered_data_loads_in_little_memory() {
    let place = tempfile::tempdir().unwrap();
    // A separate cache, since other tests have compiled the same bytes.
    let config = "[packages]\nload_memory = '256MiB'\n[sandbox]\ncache_dir = 'cache'\n";
    std::fs::write(place.path().join("campanile.toml"), config).unwrap();
    std::fs::write(place.path().join("engine.wasm"), language_engine()).unwrap();
    let output = run(place.path(), ["task", "run", "engine.wasm", "--json"]);
    assert_eq!(output.json()["outcome"], "succeeded", "{output:?}");
}

#[test]
#[cfg(target_os = "linux")]
fn the_process_that_loads_a_file_is_confined_before_it_reads_it() {
    let cache = tempfile::tempdir().unwrap();
    let settings = serde_json::json!({
        "package": "x",
        "cache_dir": cache.path(),
        "memory_bytes_max": 1 << 20,
        "stack_bytes_max": 1 << 20,
        "loaded_bytes_max": 1 << 30,
        "component_limits": {"core_instances_max": 200, "memories_max": 8, "tables_max": 40, "instance_bytes_max": 8 << 20},
        "limits": {"memory_bytes": 128 << 20, "time": {"secs": 7, "nanos": 0}},
    });
    let mut loading = crate::site::command(cache.path(), ["load-package", &settings.to_string()])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let about = |file: &str| {
        let path = format!("/proc/{}/{file}", loading.id());
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let words = text
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
        words.collect::<Vec<_>>()
    };
    let has = |file: &str, expected: &str| {
        eventually(
            || match about(file).iter().any(|line| line.starts_with(expected)) {
                true => Ok(()),
                false => Err(format!("no `{expected}` in {:#?}", about(file))),
            },
        );
    };
    has("status", "Seccomp: 2");
    has("status", "NoNewPrivs: 1");
    has("limits", "Max data size 134217728 134217728");
    has("limits", "Max cpu time 14 14");
    has("limits", "Max core file size 0 0");
    drop(loading.stdin.take());
    let found = loading.wait_with_output().unwrap();
    let found = String::from_utf8(found.stdout).unwrap();
    assert!(
        found.starts_with(r#"{"Err":"#),
        "the verdict refuses the file: {found}"
    );
}
