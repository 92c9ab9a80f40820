//! `[defaults]` of the configuration: the policies of schedules that do not set them.

use campanile_tests::{Place, on_both_empty};
use serde_json::json;

use crate::site::{Site, list, stop};

on_both_empty!(
    the_configuration_sets_policies_of_schedules_that_do_not,
    a_wrong_default_is_refused,
);

async fn the_configuration_sets_policies_of_schedules_that_do_not(place: Place) {
    let site = Site::with_guests(place);
    site.configure("[defaults]\ncatchup = 'none'\ndelivery = 'at_most_once'\n");
    let shown = |name: &str| site.json(["schedule", "show", name]);
    let applies = |name: &str| {
        let effective = shown(name)["effective_policies"].clone();
        json!([effective["catchup"], effective["delivery"]])
    };
    site.add("silent", "ok", &["--every", "1h"]);
    let latest = ["--every", "1h", "--catchup", "latest"];
    site.add("latest", "ok", &latest);
    // The configuration applies when a host starts with it.
    assert_eq!(applies("silent"), json!(["latest", "at_least_once"]));
    let mut host = site.serve();
    assert_eq!(applies("silent"), json!(["none", "at_most_once"]));
    assert_eq!(applies("latest"), json!(["latest", "at_most_once"]));
    let silent = shown("silent");
    assert_eq!(silent["policies"], json!({}));
    let both = json!({"catchup": "none", "delivery": "at_most_once"});
    assert_eq!(
        (&silent["defaults"], &silent["revision"]),
        (&both, &json!(2))
    );
    let delivery = json!({"delivery": "at_most_once"});
    assert_eq!(shown("latest")["defaults"], delivery);
    let text = site.ok(["schedule", "show", "latest"]);
    assert!(text.contains("catchup latest\n"), "{text}");
    let by = "delivery at_most_once (by the configuration)";
    assert!(text.contains(by), "{text}");
    stop(&mut host);

    // A command adds and edits with what the hosts follow, whatever its own configuration says.
    site.configure("");
    site.add("later", "ok", &["--every", "1h"]);
    assert_eq!(applies("later"), json!(["none", "at_most_once"]));
    site.ok(["schedule", "edit", "later", "--catchup", "all"]);
    assert_eq!(applies("later"), json!(["all", "at_most_once"]));
    site.ok(["schedule", "edit", "later", "--clear", "catchup"]);
    assert_eq!(applies("later"), json!(["none", "at_most_once"]));

    let mut host = site.serve();
    host.wait_for_line("give every host the same `[defaults]`");
    for name in ["silent", "later"] {
        assert_eq!(applies(name), json!(["latest", "at_least_once"]));
    }
    let events = list(site.json(["event", "list"]));
    let changes = events.iter();
    let changes = changes.filter(|event| event["kind"] == "defaults_changed");
    let details: Vec<_> = changes.map(|event| event["detail"].clone()).collect();
    let expected = [
        "catchup is latest, delivery is at_least_once; schedules with another revision: 3",
        "catchup is none, delivery is at_most_once; schedules with another revision: 2",
    ];
    assert_eq!(details, expected.map(|detail| json!(detail)));
    stop(&mut host);
}

async fn a_wrong_default_is_refused(place: Place) {
    let site = Site::new(place);
    for (text, expected) in [
        (
            "catchup = 'newest'",
            "`defaults.catchup` must be `none` or `latest`",
        ),
        (
            "delivery = 'once'",
            "`defaults.delivery` must be `at_least_once`",
        ),
        ("overlap = 'skip'", "unknown key `defaults.overlap`"),
    ] {
        site.configure(&format!("[defaults]\n{text}\n"));
        site.run(["config", "check"]).assert_refused(&[expected]);
    }
}
