//! Commands about versions that are refused, and change nothing.

use campanile_tests::{Place, on_both_empty};

use super::{digest_of, first, second, serve_first_version};
use crate::site::{CommandOutput, list, text};

on_both_empty!(an_invalid_version_command_is_refused);

async fn an_invalid_version_command_is_refused(place: Place) {
    let (site, host) = serve_first_version(place);
    std::fs::write(site.plugin("bad.wasm"), "a broken build").expect("a file");
    host.wait_for_line("rejected bad");
    let before = site.json(["event", "list"]);
    let other = "0".repeat(64);
    let run = |args: &[&'static str]| -> CommandOutput {
        site.run(["package"].iter().chain(args).copied())
    };
    for (args, expected) in [
        (&["show", "chime"][..], "did you mean `chimes`?"),
        (&["diff", "chime"], "did you mean `chimes`?"),
        (&["approve", "chime"], "did you mean `chimes`?"),
        (&["reject", "chime"], "did you mean `chimes`?"),
        (&["rollback", "chime"], "did you mean `chimes`?"),
        (
            &["approve", "bad"],
            "no version of `bad` was ever active: this is not WebAssembly",
        ),
        (&["rollback", "bad"], "no version of `bad` was ever active"),
        (&["diff", "bad"], "no version of `bad` was ever active"),
        (&["diff", "chimes"], "has no pending version"),
        (&["diff", "chimes", "zzzz"], "at least 4"),
        (
            &["diff", "chimes", "0000", "0000"],
            "has no version `0000`; it has ",
        ),
        (&["approve", "chimes"], "has no pending version"),
        (&["reject", "chimes"], "has no pending version"),
        (&["rollback", "chimes"], "no former version"),
        (&["rollback", "chimes", "--to", "12"], "at least 4"),
        (
            &["rollback", "chimes", "--to", "0000"],
            "has no version `0000`",
        ),
    ] {
        run(args).assert_refused(&[expected]);
    }
    let active = digest_of(&first());
    let to = ["package", "rollback", "chimes", "--to", &active];
    site.run(to).assert_refused(&["is active already"]);
    site.replace_package(&second());
    host.wait_for_line("waits for approval");
    let approve = ["package", "approve", "chimes", "--digest", &other];
    site.run(approve).assert_refused(&[
        "the pending version of `chimes` is",
        "hint: look at it with",
    ]);
    let pending = digest_of(&second());
    let to = ["package", "rollback", "chimes", "--to", &pending];
    site.run(to).assert_refused(&["was never active"]);
    let json = site.run(["package", "approve", "nothing", "--json"]);
    assert_eq!(json.code, 2, "{json:?}");
    assert!(
        text(&json.json()["error"]).contains("no package named"),
        "{json:?}"
    );
    site.wait_for_state("pending_approval", &first());
    let after = list(site.json(["event", "list"]));
    assert_eq!(after.len(), list(before).len() + 1, "{after:#?}");
}
