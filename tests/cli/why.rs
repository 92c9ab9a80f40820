//! `campanile schedule why`: what it prints, as text and as JSON, and what it refuses.

use campanile_tests::{Place, on_both_empty};
use serde_json::json;

use crate::site::{Said, Site, keys, list, text};

on_both_empty!(a_chain_is_told_to_people_and_to_programs);

/// `schedule why` with these arguments, and what it said.
fn why(site: &Site, args: &[&str]) -> Said {
    site.run(["schedule", "why"].into_iter().chain(args.iter().copied()))
}

async fn a_chain_is_told_to_people_and_to_programs(place: Place) {
    let site = Site::new(place);
    site.bring("guests");
    let mut host = site.serve();
    site.add("tick", "ok", &["--every", "1s"]);
    let launch = site.launch_where("tick", |row| row["status"] == "succeeded");
    let slot = text(&launch["scheduled_time"]);
    host.terminate();
    host.wait_exit();

    let answer = site.json(["schedule", "why", "tick", "--at", &slot]);
    assert_eq!(
        keys(&answer),
        ["findings", "schedule", "schedule_id", "timezone"]
    );
    let findings = list(answer["findings"].clone());
    let kinds = findings.iter().map(|finding| text(&finding["kind"]));
    // Whether it was a little late, or waited a second, is not up to this test.
    let path: Vec<String> = kinds
        .filter(|kind| kind != "late" && kind != "waited")
        .collect();
    let expected = ["slot", "launched", "taken", "called", "outcome"];
    assert_eq!(path, expected, "{findings:?}");
    for finding in &findings {
        assert_eq!(keys(finding), ["at", "kind", "local", "text"]);
    }
    assert_eq!(findings[0]["at"], json!(slot));
    assert_eq!(findings[0]["local"], launch["scheduled_local"]);

    let said = why(&site, &["tick", "--at", &slot]);
    assert_eq!((said.code, said.stderr.as_str()), (0, ""), "{said:?}");
    let lines: Vec<&str> = said.stdout.lines().collect();
    assert_eq!(lines[0], "tick (UTC)");
    let begins = format!("  slot      {slot}");
    assert!(lines[1].starts_with(&begins), "{said:?}");
    assert!(
        lines[1].contains("a slot of every `1s` (revision 1), launch "),
        "{said:?}"
    );
    assert!(lines[lines.len() - 1].ends_with("  succeeded"), "{said:?}");

    // What is decided last, and why nothing follows.
    let said = why(&site, &["tick"]);
    assert!(said.stdout.contains("no host serves"), "{said:?}");

    for (args, parts) in [
        (
            &["tick", "--at", "noon"][..],
            &["--at: `noon` is not a time", "hint: write an RFC 3339 time"][..],
        ),
        (
            &["tick", "--at", "2026-02-30 02:30"],
            &["`2026-02-30 02:30` is not a time", "hint: "],
        ),
        (
            &["tick", "--at", "1969-12-31T00:00:00Z"],
            &["outside the years 1970 to 2099", "hint: "],
        ),
        (
            &["tock"],
            &["there is no schedule named `tock`", "did you mean `tick`?"],
        ),
    ] {
        why(&site, args).refused(parts);
    }
    let said = why(&site, &["tick", "--at", "noon", "--json"]);
    assert_eq!(said.code, 2, "{said:?}");
    assert_eq!(said.json()["error"], json!("--at: `noon` is not a time"));

    // A removed schedule is still known.
    site.json(["schedule", "remove", "tick"]);
    let said = why(&site, &["tick"]);
    assert!(
        said.stdout
            .contains("it was removed; nothing after that is launched"),
        "{said:?}"
    );
}
