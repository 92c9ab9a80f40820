//! `campanile schedule why`: what it prints, as text and as JSON, and what it refuses.

use campanile_tests::{Place, on_both_empty};
use serde_json::json;

use crate::site::{CommandOutput, Site, keys, list, text};

on_both_empty!(why_prints_the_history_of_a_slot_as_text_and_json);

/// Run `schedule why` with these arguments.
fn why(site: &Site, args: &[&str]) -> CommandOutput {
    site.run(["schedule", "why"].into_iter().chain(args.iter().copied()))
}

async fn why_prints_the_history_of_a_slot_as_text_and_json(place: Place) {
    let site = Site::new(place);
    site.copy_package("guests");
    let mut host = site.serve();
    site.add("tick", "ok", &["--every", "1s"]);
    let launch = site.wait_for_launch("tick", |row| row["status"] == "succeeded");
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
    // The launch may have been late or may have waited; both are right here.
    let main_kinds: Vec<String> = kinds
        .filter(|kind| kind != "late" && kind != "waited")
        .collect();
    let expected = ["slot", "launched", "claimed", "called", "outcome"];
    assert_eq!(main_kinds, expected, "{findings:?}");
    for finding in &findings {
        assert_eq!(keys(finding), ["at", "kind", "local", "text"]);
    }
    assert_eq!(findings[0]["at"], json!(slot));
    assert_eq!(findings[0]["local"], launch["scheduled_local"]);

    let output = why(&site, &["tick", "--at", &slot]);
    assert_eq!((output.code, output.stderr.as_str()), (0, ""), "{output:?}");
    let lines: Vec<&str> = output.stdout.lines().collect();
    assert_eq!(lines[0], "tick (UTC)");
    let slot_line = format!("  slot      {slot}");
    assert!(lines[1].starts_with(&slot_line), "{output:?}");
    assert!(
        lines[1].contains("a slot of every `1s` (revision 1), launch "),
        "{output:?}"
    );
    assert!(
        lines[lines.len() - 1].ends_with("  succeeded"),
        "{output:?}"
    );

    for at in ["yesterday 14:00", "tomorrow 9:00", "2026-11-20", "now-2h"] {
        let answer = site.json(["schedule", "why", "tick", "--at", at]);
        assert_eq!(answer["schedule"], "tick", "{at}");
        assert!(!list(answer["findings"].clone()).is_empty(), "{at}");
    }
    // A time that counts from now is a time as in other commands.
    let answer = site.json(["schedule", "why", "tick", "--at", "now-365days"]);
    let before = list(answer["findings"].clone());
    let kinds: Vec<String> = before
        .iter()
        .map(|finding| text(&finding["kind"]))
        .collect();
    assert!(kinds.contains(&"added".to_owned()), "{before:?}");

    // Without `--at`, the reason why no launch follows.
    let output = why(&site, &["tick"]);
    output.assert_stdout("no host serves");

    for (args, parts) in [
        (
            &["tick", "--at", "noon"][..],
            &["`at`: `noon` is not a time", "hint: write an RFC 3339 time"][..],
        ),
        (
            &["tick", "--at", "nowhere"],
            &["`at`: `nowhere` is not a time", "`now-2h`"],
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
        why(&site, args).assert_refused(parts);
    }
    let output = why(&site, &["tick", "--at", "noon", "--json"]);
    assert_eq!(output.code, 2, "{output:?}");
    assert_eq!(output.json()["error"], json!("`at`: `noon` is not a time"));

    // The history of a removed schedule stays.
    site.json(["schedule", "remove", "tick"]);
    let output = why(&site, &["tick"]);
    output.assert_stdout("it was removed; nothing after that is launched");
}
