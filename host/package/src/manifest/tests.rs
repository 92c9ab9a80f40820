use std::slice;

use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;
use rand::{Rng as _, SeedableRng as _};
use serde_json::json;

use super::*;
use crate::requests::denial;
use campanile_sandbox::{DirectoryGrant, Grants};
use campanile_schedule::policy::{Coefficient, Policy, ValueKind};
use campanile_schedule::rule::RuleKind;

fn read(description: Value) -> Manifest {
    Manifest::from_json("backup", &description).unwrap()
}

fn fault(description: Value) -> String {
    let error = Manifest::from_json("backup", &description).unwrap_err();
    let prefix = "the package's description of itself is wrong: ";
    error.strip_prefix(prefix).unwrap().to_owned()
}

fn ids(tasks: Option<Vec<&Task>>) -> Vec<&str> {
    tasks
        .unwrap()
        .into_iter()
        .map(|task| task.id.as_str())
        .collect()
}

#[test]
fn a_whole_description_is_read() {
    let manifest = read(json!({
        "name": "Backup", "version": "1.2.3", "language": "Rust", "summary": "keeps things",
        "tasks": [
            {"id": "collect", "timeout": "30s", "max_attempts": 5},
            {"id": "upload", "summary": "sends", "depends_on": ["collect"]},
        ],
        "schedules": [
            {"name": "nightly", "cron": "0 2 * * *", "timezone": "Europe/Paris", "context": {"full": true}},
            {"task": "collect", "every": "15m", "anchor": "2027-01-15T08:00:00Z"},
            {"at": "2027-01-15T08:00:00Z"},
        ],
        "context_schema": {"type": "object"},
        "requests": {
            "directories": [{"guest": "/source", "access": "read", "reason": "what to keep"}],
            "env": ["TOKEN"],
            "http": [{"scheme": "https", "host": "*.example.com"}],
            "config": ["bucket"],
        },
    }));
    assert_eq!(manifest.warnings, Vec::<String>::new());
    assert_eq!(manifest.name.as_deref(), Some("Backup"));
    assert_eq!(manifest.language.as_deref(), Some("Rust"));
    assert_eq!(manifest.package, "backup");
    assert_eq!(
        manifest.task("collect").unwrap().timeout,
        Some(Duration::from_secs(30))
    );
    assert_eq!(manifest.task("collect").unwrap().max_attempts, Some(5));
    assert_eq!(manifest.task("upload").unwrap().depends_on, ["collect"]);
    assert_eq!(manifest.schedules()[0].rule.kind, RuleKind::Cron);
    assert_eq!(manifest.schedules()[0].rule.timezone, "Europe/Paris");
    assert_eq!(manifest.schedules()[0].context["full"].value(), json!(true));
    assert_eq!(manifest.schedules()[1].rule.kind, RuleKind::Every);
    assert_eq!(manifest.schedules()[1].rule.timezone, "UTC");
    assert_eq!(manifest.schedules()[2].rule.kind, RuleKind::At);
    assert_eq!(manifest.requests[3].parts, ["https", "*.example.com", ""]);
}

#[test]
fn a_package_without_description_or_tasks_is_one_task_of_its_name() {
    let undescribed = Manifest::undescribed("Backup_2");
    assert_eq!(ids(undescribed.order(None)), ["Backup_2"]);
    assert_eq!(ids(read(json!({"name": "x"})).order(None)), ["backup"]);
    assert_eq!(ids(read(json!({"tasks": []})).order(None)), ["backup"]);
}

#[test]
fn unknown_keys_warn_and_null_is_absent() {
    let manifest = read(json!({
        "summry": "x", "version": null,
        "tasks": [{"id": "a", "depend_on": []}],
        "requests": {"gpu": 1},
    }));
    assert_eq!(
        manifest.warnings,
        [
            "unknown key `tasks[0].depend_on` is ignored: did the author mean `depends_on`?",
            "unknown key `requests.gpu` is ignored",
            "unknown key `summry` is ignored: did the author mean `summary`?",
        ]
    );
}

#[test]
fn ids_must_be_plain_and_unique_and_dependencies_known() {
    assert!(fault(json!([])).contains("not a JSON object"));
    assert!(fault(json!({"tasks": [{}]})).contains("`tasks[0].id` is missing"));
    assert!(fault(json!({"tasks": [{"id": "A b"}]})).contains("`tasks[0].id` is \"A b\""));
    assert!(fault(json!({"tasks": [{"id": "x".repeat(65)}]})).contains("1 to 64"));
    assert_eq!(
        fault(json!({"tasks": [{"id": "a"}, {"id": "a"}]})),
        "`tasks` has two tasks with the id `a`"
    );
    assert_eq!(
        fault(json!({"tasks": [{"id": "collect"}, {"id": "b", "depends_on": ["colect"]}]})),
        "`tasks` has a task `b` that depends on `colect`, which is no task of this package; did you mean `collect`?"
    );
    assert!(
        fault(json!({"tasks": [{"id": "a"}, {"id": "b", "depends_on": ["a", "a"]}]}))
            .contains("twice")
    );
    assert!(
        fault(json!({"tasks": [{"id": "a", "timeout": "soon"}]}))
            .contains("`tasks[0].timeout` is \"soon\", which is not a duration")
    );
    for timeout in ["0s", "999us", "367d", "18446744073709551615s"] {
        let error = fault(json!({"tasks": [{"id": "a", "timeout": timeout}]}));
        assert!(
            error.contains("`tasks[0].timeout` must be from \"1ms\" to"),
            "{error}"
        );
    }
    assert!(fault(json!({"tasks": [{"id": "a", "max_attempts": 0}]})).contains("from 1"));
}

#[test]
fn a_cycle_is_shown_from_its_first_task() {
    let tasks = |list: &[(&str, &[&str])]| {
        let tasks: Vec<Value> = list
            .iter()
            .map(|(id, on)| json!({"id": id, "depends_on": on}))
            .collect();
        json!({"tasks": tasks})
    };
    assert_eq!(
        fault(tasks(&[("a", &["b"]), ("b", &["c"]), ("c", &["a"])])),
        "`tasks` has tasks that depend on each other: a → b → c → a"
    );
    assert_eq!(
        fault(tasks(&[("a", &["a"])])),
        "`tasks` has tasks that depend on each other: a → a"
    );
    // `z` depends on the cycle and `free` on nothing; neither belongs to it.
    assert_eq!(
        fault(tasks(&[
            ("z", &["free", "x"]),
            ("free", &[]),
            ("x", &["y"]),
            ("y", &["x"])
        ])),
        "`tasks` has tasks that depend on each other: x → y → x"
    );
}

#[test]
fn order_puts_dependencies_first_and_otherwise_keeps_the_declared_order() {
    let manifest = read(json!({"tasks": [
        {"id": "report", "depends_on": ["upload", "scan"]},
        {"id": "upload", "depends_on": ["collect"]},
        {"id": "scan"},
        {"id": "collect"},
        {"id": "separate"},
    ]}));
    assert_eq!(
        ids(manifest.order(None)),
        ["scan", "collect", "upload", "report", "separate"]
    );
    assert_eq!(ids(manifest.order(Some("upload"))), ["collect", "upload"]);
    assert_eq!(
        ids(manifest.order(Some("report"))),
        ["scan", "collect", "upload", "report"]
    );
    assert_eq!(manifest.order(Some("nothing")), None);
    assert_eq!(manifest.nearest_task("uplod"), Some("upload"));
}

/// Returns a description of tasks called `t0`, `t1` and so on, each with the numbers of those that it depends on.
fn graph(depends_on: &[Vec<usize>]) -> Value {
    let tasks = depends_on.iter().enumerate().map(|(place, depends_on)| {
        let ids: Vec<String> = depends_on
            .iter()
            .map(|before| format!("t{before}"))
            .collect();
        json!({"id": format!("t{place}"), "depends_on": ids})
    });
    json!({"tasks": tasks.collect::<Vec<_>>()})
}

/// The former definition of the order: again and again the first task whose dependencies are done.
fn former_order(depends_on: &[Vec<usize>]) -> Vec<usize> {
    let mut order: Vec<usize> = Vec::new();
    while order.len() < depends_on.len() {
        let is_next = |place: &usize| {
            let mut before = depends_on[*place].iter();
            !order.contains(place) && before.all(|before| order.contains(before))
        };
        let next = (0..depends_on.len()).find(is_next).unwrap();
        order.push(next);
    }
    order
}

#[test]
fn the_order_equals_its_former_definition() {
    for seed in 0..300 {
        let mut random = StdRng::seed_from_u64(seed);
        let mut tasks: Vec<usize> = (0..random.random_range(1..12)).collect();
        tasks.shuffle(&mut random);
        let mut depends_on = vec![Vec::new(); tasks.len()];
        for (rank, &place) in tasks.iter().enumerate() {
            let earlier = tasks[..rank].iter().copied();
            depends_on[place] = earlier.filter(|_| random.random_bool(0.3)).collect();
        }
        let expected = former_order(&depends_on);
        let expected: Vec<String> = expected.iter().map(|place| format!("t{place}")).collect();
        let manifest = read(graph(&depends_on));
        assert_eq!(ids(manifest.order(None)), expected, "seed {seed}");
    }
}

#[test]
fn many_layers_are_read_and_ordered_at_once() {
    for layers in [40, 128] {
        // The last layer comes first in the description, so that each task stands before those that it depends on.
        let last = 2 * layers - 1;
        let after = |place: usize| match place / 2 + 1 {
            layer if layer == layers => Vec::new(),
            layer => vec![2 * layer, 2 * layer + 1],
        };
        let depends_on: Vec<Vec<usize>> = (0..=last).map(after).collect();
        let manifest = read(graph(&depends_on));
        let order = ids(manifest.order(None));
        assert_eq!(
            (order.len(), order[0]),
            (2 * layers, &*format!("t{}", last - 1))
        );
        assert_eq!(ids(manifest.order(Some("t0"))).len(), 2 * layers - 1);
        // The search for a cycle follows each dependency once, too.
        let mut with_cycle = depends_on;
        with_cycle[last] = vec![last - 1];
        with_cycle[last - 1] = vec![last];
        let cycle = format!("t{} → t{last} → t{}", last - 1, last - 1);
        let expected = format!("`tasks` has tasks that depend on each other: {cycle}");
        assert_eq!(fault(graph(&with_cycle)), expected);
    }
}

#[test]
fn a_package_has_at_most_so_many_dependencies() {
    let depends_on = |last: usize| -> Vec<Vec<usize>> {
        let full = (0..256).map(|place: usize| match place {
            // 32 tasks that depend on 128 others.
            128..160 => (0..128).collect(),
            160 => (0..last).collect(),
            _ => Vec::new(),
        });
        full.collect()
    };
    assert_eq!(read(graph(&depends_on(0))).tasks.len(), 256);
    assert_eq!(
        fault(graph(&depends_on(1))),
        "`tasks` has 4097 dependencies over all its tasks, and 4096 are allowed: put a task between the many and those that depend on all of them"
    );
}

#[test]
fn a_proposed_schedule_must_have_one_rule_a_known_task_and_no_reserved_context_key() {
    let one = |schedule: Value| fault(json!({"tasks": [{"id": "a"}], "schedules": [schedule]}));
    assert!(one(json!({})).contains("`schedules[0]` has no rule"));
    assert!(one(json!({"cron": "* * * * *", "every": "5m"})).contains("more than one rule"));
    assert!(one(json!({"every": "5m", "task": "b"})).contains("no task of this package"));
    assert!(one(json!({"at": "tomorrow"})).contains("RFC 3339"));
    assert!(
        one(json!({"every": "5m", "anchor": "noon"})).contains("`schedules[0].anchor` is wrong")
    );
    assert!(
        one(json!({"cron": "@daily", "dst_gap": "leap"}))
            .contains("`schedules[0].dst_gap` must be `shift` or `skip`")
    );
    assert!(one(json!({"every": "5m", "context": {"run_id": 1}})).contains("may not set `run_id`"));
    assert!(one(json!({"every": "5m", "context": 3})).contains("must be an object"));
    let twice = json!({"schedules": [{"name": "x", "every": "5m"}, {"name": "x", "every": "6m"}]});
    assert_eq!(
        fault(twice),
        "`schedules[1].name` is \"x\", the name of another schedule: choose another name"
    );
}

#[test]
fn a_proposal_sets_policies_by_the_keys_of_the_published_schema() {
    let proposal = json!({"every": "1h", "catchup": "run_all", "catchup_max": 3, "jitter": "30s",
        "start_at": "2027-01-01T00:00:00Z", "keep": null});
    let manifest = read(json!({"schedules": [proposal]}));
    assert_eq!(manifest.warnings, Vec::<String>::new());
    let actual: Vec<String> = manifest.schedules()[0]
        .policies
        .entries()
        .map(|(policy, text)| format!("{policy} {text}"))
        .collect();
    let written = [
        "catchup all",
        "catchup_max 3",
        "jitter 30s",
        "start_at 2027-01-01T00:00:00Z",
    ];
    assert_eq!(actual, written);

    let one = |schedule: Value| fault(json!({"schedules": [schedule]}));
    for (policy, expected) in [
        (
            json!({"every": "1h", "overlap": "alow"}),
            "`schedules[0].overlap` must be `skip` or ",
        ),
        (
            json!({"every": "1h", "jitter": "soon"}),
            "`schedules[0].jitter` is \"soon\", which is not a duration: ",
        ),
        (
            json!({"every": "1h", "catchup_max": "3"}),
            "`schedules[0].catchup_max` must be a whole number",
        ),
        (
            json!({"every": "1h", "end_at": "noon"}),
            "`schedules[0].end_at` is wrong: `noon` is not an RFC 3339 time",
        ),
    ] {
        let fault = one(policy);
        assert!(fault.starts_with(expected), "{fault}");
    }

    let schema: Value =
        serde_json::from_str(include_str!("../../../../wit/manifest.schema.json")).unwrap();
    let keys = schema["$defs"]["schedule"]["properties"]
        .as_object()
        .unwrap();
    for policy in Policy::ALL {
        let spec = policy.spec();
        let property = &keys[policy.as_str()];
        let needs = spec.needs.map(|(other, words)| {
            let words = words.join("` or `");
            format!(" Needs `{other}` = `{words}`.")
        });
        let description = format!("{}.{}", spec.meaning, needs.unwrap_or_default());
        assert_eq!(property["description"], json!(description), "{policy}");
        match spec.kind {
            ValueKind::Word(words) => {
                let known = property["enum"].as_array().unwrap();
                assert!(words.iter().all(|word| known.contains(&json!(word))));
            }
            ValueKind::Duration(example) => {
                assert_eq!(property["examples"], json!([example]), "{policy}");
            }
            ValueKind::Number(least, most) => {
                let maximum = Some(most).filter(|&most| most < u64::from(u32::MAX));
                assert_eq!(property["maximum"].as_u64(), maximum, "{policy}");
                assert_eq!(property["minimum"], json!(least), "{policy}");
            }
            ValueKind::Coefficient => {
                assert_eq!(property["minimum"], json!(Coefficient::LEAST), "{policy}");
                assert_eq!(property["maximum"], json!(Coefficient::MOST), "{policy}");
            }
            ValueKind::FailureKinds(words) => {
                assert_eq!(property["items"]["enum"], json!(words), "{policy}");
            }
            ValueKind::Labels => {
                let pattern = &property["items"]["pattern"];
                assert_eq!(*pattern, json!("^[a-z0-9.-]{1,64}$"), "{policy}");
            }
            ValueKind::Group => {
                assert_eq!(property["pattern"], json!("^[a-z0-9_-]{1,64}$"), "{policy}");
            }
            ValueKind::Instant => assert_eq!(property["format"], json!("date-time"), "{policy}"),
        }
    }
}

#[test]
fn a_request_for_a_variable_of_the_host_is_refused() {
    let fault = fault(json!({"requests": {"env": ["CAMPANILE_RUN_ID"]}}));
    assert!(
        fault.contains("`requests.env` asks for CAMPANILE_RUN_ID"),
        "{fault}"
    );
}

#[test]
fn a_description_of_too_many_values_is_refused() {
    let with = |values: usize| json!({ "context_schema": { "enum": vec![0; values] } });
    read(with(VALUES_MAX - 3));
    assert_eq!(
        Manifest::from_json("backup", &with(VALUES_MAX - 2)).unwrap_err(),
        "the package's description of itself has 32769 JSON values, and 32768 are allowed"
    );
}

#[test]
fn the_published_schema_has_every_request() {
    let schema: Value =
        serde_json::from_str(include_str!("../../../../wit/manifest.schema.json")).unwrap();
    let published = schema["$defs"]["requests"]["properties"]
        .as_object()
        .unwrap();
    let read = crate::grants::KINDS
        .into_iter()
        .filter(|kind| !kind.parts.is_empty());
    let read: BTreeSet<&str> = read.map(|kind| kind.key).collect();
    assert_eq!(
        published
            .keys()
            .map(String::as_str)
            .collect::<BTreeSet<_>>(),
        read
    );
}

#[test]
fn too_many_entries_are_refused() {
    let tasks: Vec<Value> = (0..257).map(|n| json!({"id": format!("t{n}")})).collect();
    assert!(fault(json!({"tasks": tasks})).contains("257 entries"));
}

#[test]
fn an_ungranted_request_comes_with_the_lines_that_grant_it() {
    let manifest = read(json!({"requests": {
        "directories": [{"guest": "/in", "access": "read"}, {"guest": "/out", "access": "write", "reason": "results\nINFO all is well"}],
        "env": ["TOKEN"], "config": ["bucket.name"],
        "http": [{"scheme": "https", "host": "example.com"}],
    }}));
    let directory = |guest: &str, writable| DirectoryGrant {
        host: "/srv".into(),
        guest: guest.to_owned(),
        writable,
        quota: campanile_sandbox::DirectoryQuota::default(),
    };
    let mut grants = Grants {
        directories: vec![directory("/in", true), directory("/out", false)],
        ..Grants::default()
    };
    let missing = |grants: &Grants| -> Vec<String> {
        let missing = manifest.missing_grants(&grants.into());
        let each = missing.iter();
        each.map(|one| denial("backup", slice::from_ref(one)))
            .collect()
    };
    let first = missing(&grants);
    assert_eq!(first.len(), 3);
    assert_eq!(
        first[0],
        "the package needs to write the directory /out (results\\nINFO all is well), which is not granted: add to backup.toml\n\
         [[grants.directories]]\nhost = \"/a/directory/of/this/host\"\nguest = \"/out\"\naccess = \"write\""
    );
    assert_eq!(
        first[1],
        "the package needs the environment variable TOKEN, which is not granted: add to backup.toml\n[grants]\nenv = [\"TOKEN\"]"
    );
    assert!(first[2].ends_with("[grants.config]\n\"bucket.name\" = \"its value\""));
    grants.directories[1].writable = true;
    grants.env.insert("TOKEN".into(), String::new());
    grants.config.insert("bucket.name".into(), "b".into());
    assert_eq!(missing(&grants), Vec::<String>::new());
}
