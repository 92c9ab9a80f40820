//! Files that do harm while they are read or compiled: the host goes on, says what happened, and does not try again.

use campanile_tests::hostile::{many_functions, many_types, nested_components, nested_types};
use campanile_tests::{Place, on_both_empty};
use serde_json::Value;

use crate::site::{Site, eventually, list, package, stop, text};

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
    let launches = list(site.json(["launch", "list"]));
    let succeeded = launches.iter().filter(|row| row["status"] == "succeeded");
    succeeded.count()
}

async fn files_that_exhaust_their_loader_are_refused_and_a_neighbour_launches_on(place: Place) {
    let site = site(place);
    site.copy_package("noop");
    site.sidecar("noop", "[[schedules]]\nevery = '1s'\n");
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
    assert_eq!(site.json(["health"])["healthy"], Value::Bool(true));
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
    // The next start refuses the file from what it remembers: its loader would have no time to find anything else.
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
