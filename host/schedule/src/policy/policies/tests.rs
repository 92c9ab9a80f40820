//! The table of the policies, compared with its readers and the guide.

use super::*;

fn all_policies() -> Policies {
    Policies {
        catchup: Some(Catchup::All),
        catchup_window: Some(Duration::from_secs(5_400)),
        catchup_max: Some(7),
        catchup_spread: Some(Duration::from_millis(1_500)),
        misfire_grace: Some(Duration::from_secs(60)),
        overlap: Overlap::BufferOne,
        max_buffered: Some(3),
        keep: Some(Keep::Latest),
        max_concurrent: Some(2),
        cancel_grace: Some(Duration::from_secs(10)),
        delivery: Some(Delivery::AtMostOnce),
        jitter: Some(Duration::from_secs(30)),
        start_at: Some("2026-01-01T00:00:00Z".parse().unwrap()),
        end_at: Some("2027-01-01T00:00:00Z".parse().unwrap()),
        max_launches: Some(1_000),
        pause_on_failure: Some(5),
        priority: Some(9),
        group: Some("db".parse().unwrap()),
        run_on: Some("gpu,ssd".parse().unwrap()),
        retention: Some(Duration::from_secs(7 * 86_400)),
        expect_within: Some(Duration::from_secs(3_600)),
        max_attempts: Some(8),
        backoff: Some(Duration::from_secs(10)),
        backoff_coefficient: Some("1.5".parse().unwrap()),
        backoff_max: Some(Duration::from_secs(300)),
        retry_expiration: Some(Duration::from_secs(3_600)),
        non_retryable: Some("trapped,timed_out".parse().unwrap()),
    }
}

#[test]
fn policies_that_are_not_set_are_not_stored() {
    let stored = serde_json::to_string(&Policies::default()).unwrap();
    assert_eq!(stored, "{}");
    assert_eq!(
        serde_json::from_str::<Policies>("{}").unwrap(),
        Policies::default()
    );
}

#[test]
fn every_policy_is_stored_and_read_back() {
    // Existing databases contain this text, so it must not change.
    let stored = r#"{"catchup":"all","catchup_window":"1h 30m","catchup_max":7,"catchup_spread":"1s 500ms","misfire_grace":"1m","overlap":"buffer_one","max_buffered":3,"keep":"latest","max_concurrent":2,"cancel_grace":"10s","delivery":"at_most_once","jitter":"30s","start_at":"2026-01-01T00:00:00Z","end_at":"2027-01-01T00:00:00Z","max_launches":1000,"pause_on_failure":5,"priority":9,"group":"db","run_on":["gpu","ssd"],"retention":"7days","expect_within":"1h","max_attempts":8,"backoff":"10s","backoff_coefficient":1.5,"backoff_max":"5m","retry_expiration":"1h","non_retryable":["trapped","timed_out"]}"#;
    assert_eq!(serde_json::to_string(&all_policies()).unwrap(), stored);
    assert_eq!(
        serde_json::from_str::<Policies>(stored).unwrap(),
        all_policies()
    );
}

#[test]
fn unknown_keys_and_values_are_refused() {
    for stored in [
        r#"{"catchup":"newest"}"#,
        r#"{"jitter":"soon"}"#,
        r#"{"grace":"5m"}"#,
    ] {
        assert!(
            serde_json::from_str::<Policies>(stored).is_err(),
            "{stored}"
        );
    }
}

#[test]
fn catchup_has_the_names_of_other_schedulers() {
    let read = |text: &str| {
        let mut policies = Policies::default();
        policies.set(Policy::Catchup, text)?;
        Ok::<_, String>((policies.catchup(), policies.catchup_spread))
    };
    for &word in Catchup::ALL {
        assert_eq!(read(word.as_str()), Ok((word, None)));
    }
    for (alias, word, spread) in [
        ("skip", Catchup::None, None),
        ("run_all", Catchup::All, None),
        ("execute", Catchup::Latest, None),
        ("execute_with_delay", Catchup::Latest, Some(EXECUTE_DELAY)),
    ] {
        assert_eq!(read(alias), Ok((word, spread)), "{alias}");
    }
    let fault = read("newest").unwrap_err();
    assert_eq!(fault, "must be `none` or `latest` or `earliest` or `all`");
}

#[test]
fn execute_with_delay_keeps_a_spread_that_is_set() {
    let mut policies = all_policies();
    policies.set(Policy::Catchup, "execute_with_delay").unwrap();
    assert_eq!(policies.catchup_spread, all_policies().catchup_spread);
}

#[test]
fn failures_in_a_row_pause_the_schedule() {
    assert!(!Policies::default().pauses_after(u32::MAX));
    for (failures, pauses) in [(4, false), (5, true), (6, true)] {
        assert_eq!(all_policies().pauses_after(failures), pauses, "{failures}");
    }
}

#[test]
fn launches_left_ends_at_zero() {
    assert_eq!(Policies::default().launches_left(9), None);
    for (made, left) in [(0, 1_000), (999, 1), (1_000, 0), (1_001, 0)] {
        assert_eq!(all_policies().launches_left(made), Some(left), "{made}");
    }
}

/// Every policy with a value, as text.
const WRITTEN: [(Policy, &str); 27] = [
    (Policy::Catchup, "all"),
    (Policy::CatchupWindow, "1h 30m"),
    (Policy::CatchupMax, "7"),
    (Policy::CatchupSpread, "1s 500ms"),
    (Policy::MisfireGrace, "1m"),
    (Policy::Overlap, "buffer_one"),
    (Policy::MaxBuffered, "3"),
    (Policy::Keep, "first"),
    (Policy::MaxConcurrent, "2"),
    (Policy::CancelGrace, "10s"),
    (Policy::Delivery, "at_most_once"),
    (Policy::Jitter, "30s"),
    (Policy::StartAt, "2026-01-01T00:00:00Z"),
    (Policy::EndAt, "2027-01-01T00:00:00Z"),
    (Policy::MaxLaunches, "1000"),
    (Policy::PauseOnFailure, "5"),
    (Policy::Priority, "9"),
    (Policy::Group, "db"),
    (Policy::RunOn, "gpu,ssd"),
    (Policy::Retention, "7days"),
    (Policy::ExpectWithin, "1h"),
    (Policy::MaxAttempts, "8"),
    (Policy::Backoff, "10s"),
    (Policy::BackoffCoefficient, "1.5"),
    (Policy::BackoffMax, "5m"),
    (Policy::RetryExpiration, "1h"),
    (Policy::NonRetryable, "trapped,timed_out"),
];

#[test]
fn every_policy_prints_as_it_is_read_and_stored() {
    let mut all = Policies::default();
    for (policy, text) in WRITTEN {
        all.set(policy, text).unwrap();
    }
    let entries: Vec<(Policy, String)> = all.entries().collect();
    let written = WRITTEN.map(|(policy, text)| (policy, text.to_owned()));
    assert_eq!(entries, written);
    // No policy is forgotten here.
    assert_eq!(WRITTEN.map(|(policy, _)| policy), Policy::ALL);
    let stored = serde_json::to_value(&all).unwrap();
    let stored = stored.as_object().unwrap();
    assert_eq!(stored.len(), WRITTEN.len());
    for (policy, text) in WRITTEN {
        let value = &stored[policy.as_str()];
        let expected = match policy.spec().kind {
            Number(..) | ValueKind::Coefficient => serde_json::from_str(text).unwrap(),
            ValueKind::Labels => serde_json::json!(["gpu", "ssd"]),
            ValueKind::FailureKinds(_) => serde_json::json!(["trapped", "timed_out"]),
            _ => Value::from(text),
        };
        assert_eq!(*value, expected, "{policy}");
    }
}

#[test]
fn a_default_applies_to_a_policy_that_is_not_set() {
    let defaults = Policies {
        catchup: Some(Catchup::None),
        delivery: Some(Delivery::AtMostOnce),
        ..Policies::default()
    };
    // A policy that is set to the default of the contract is set.
    let set = Policies {
        catchup: Some(Catchup::Latest),
        priority: Some(1),
        ..Policies::default()
    };
    let unset = Policies {
        delivery: Some(Delivery::AtMostOnce),
        ..Policies::default()
    };
    assert_eq!(set.unset_of(&defaults), unset);
    let all = Policies {
        delivery: Some(Delivery::AtMostOnce),
        ..set.clone()
    };
    assert_eq!(set.or(&defaults), all);
    assert_eq!(set.or(&Policies::default()), set);
}

#[test]
fn policies_are_cleared_and_copied_one_by_one() {
    let mut all = Policies::default();
    for (policy, text) in WRITTEN {
        all.set(policy, text).unwrap();
    }
    let mut copy = Policies::default();
    for (policy, text) in WRITTEN {
        copy.copy(policy, &all);
        assert_eq!(copy.text(policy).as_deref(), Some(text));
    }
    assert_eq!(copy, all);
    for (policy, _) in WRITTEN {
        all.copy(policy, &Policies::default());
        assert_eq!(all.text(policy), None);
        copy.copy(policy, &all);
    }
    assert_eq!((all, copy), (Policies::default(), Policies::default()));
}

#[test]
fn a_wrong_value_is_refused_with_a_clause_that_continues_the_key() {
    for (policy, text, clause) in [
        (
            Policy::Catchup,
            "newest",
            "must be `none` or `latest` or `earliest` or `all`",
        ),
        (
            Policy::Overlap,
            "bufer_one",
            "must be `skip` or `buffer_one` or `buffer_all` or `cancel_other` or `terminate_other` or `allow`; \
             did you mean `buffer_one`?",
        ),
        (
            Policy::Keep,
            "last",
            "must be `first` or `latest`; did you mean `latest`?",
        ),
        (
            Policy::Jitter,
            "soon",
            "is \"soon\", which is not a duration: write a number with a unit, such as \"30s\" or \"5m\"",
        ),
        (
            Policy::CancelGrace,
            "11y",
            "is \"11y\", longer than ten years: write a shorter time",
        ),
        (
            Policy::CatchupMax,
            "many",
            "must be a whole number from 1 to 1000",
        ),
        (
            Policy::MaxLaunches,
            "9223372036854775808",
            "must be a whole number from 1 to 9223372036854775807",
        ),
        (
            Policy::Priority,
            "urgent",
            "must be a whole number from 0 to 9",
        ),
        (
            Policy::MaxAttempts,
            "often",
            "must be a whole number from 1 to 1000",
        ),
        (
            Policy::BackoffCoefficient,
            "0.5",
            "must be a number from 1 to 10 with at most two decimals, such as 1.5",
        ),
        (
            Policy::NonRetryable,
            "failed,denied",
            "names \"denied\", which is no kind of failure that is retried: write some of `failed`, `trapped`, `timed_out`, `memory_exceeded`, `host_error`",
        ),
        (
            Policy::Group,
            "My Database",
            "is \"My Database\", which cannot name a group: use 1 to 64 lower-case letters, digits, `-` or `_`",
        ),
        (
            Policy::RunOn,
            "gpu,My Host",
            "names \"My Host\", which is no label: use 1 to 64 lower-case letters, digits, `-` or `.`",
        ),
        (
            Policy::EndAt,
            "noon",
            "is wrong: `noon` is not an RFC 3339 time such as 2026-11-21T08:00:00Z",
        ),
    ] {
        let mut policies = Policies::default();
        assert_eq!(policies.set(policy, text), Err(clause.to_owned()));
        assert_eq!(policies, Policies::default(), "{policy}");
    }
}

#[test]
fn every_entry_of_the_table_is_consistent() {
    for (index, &policy) in Policy::ALL.iter().enumerate() {
        let spec = policy.spec();
        assert_eq!(
            (policy as usize, policy.as_str().parse()),
            (index, Ok(policy))
        );
        let mut policies = Policies::default();
        match spec.default {
            Fixed(text) | Recorded(text) => policies.set(policy, &text()).unwrap(),
            Host(of) => assert!(of(&Defaults::default()) > Duration::ZERO),
            Nothing(meaning) => assert!(!meaning.is_empty()),
        }
        if let Word(words) = spec.kind {
            assert!(words.iter().all(|word| policies.set(policy, word).is_ok()));
        }
        if let ValueKind::Duration(example) = spec.kind {
            policies.set(policy, example).unwrap();
        }
        if let Some((other, words)) = spec.needs {
            let Word(known) = other.spec().kind else {
                panic!("{policy} needs {other}, which has no words");
            };
            assert!(words.iter().all(|word| known.contains(word)), "{policy}");
        }
        assert!(!spec.meaning.ends_with('.'), "{policy}");
    }
}

impl fmt::Display for DefaultValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Nothing(meaning) => f.write_str(meaning),
            Fixed(text) => write!(f, "`{}`", text()),
            Recorded(text) => write!(f, "`{}`, or as `[defaults]` says", text()),
            Host(of) => {
                let text = duration_text(of(&Defaults::default()));
                write!(f, "`{text}`, or as the host's `[late]` says")
            }
        }
    }
}

/// Returns the reference of all policies: a table in Markdown.
fn reference() -> String {
    let mut table = "| policy | value | default | meaning |\n|---|---|---|---|\n".to_owned();
    for (key, spec) in Policy::WORDS.iter().zip(TABLE) {
        let value = match spec.kind {
            Word(words) => format!("`{}`", words.join("`, `")),
            ValueKind::Duration(example) => format!("duration, such as `{example}`"),
            Number(least, most) if most < u64::from(u32::MAX) => {
                format!("whole number from {least} to {most}")
            }
            Number(least, _) => format!("whole number from {least}"),
            ValueKind::Coefficient => {
                let (least, most) = (Coefficient::LEAST, Coefficient::MOST);
                format!("number from {least} to {most} with at most two decimals")
            }
            ValueKind::FailureKinds(words) => format!("list of `{}`", words.join("`, `")),
            ValueKind::Labels => "list of labels".to_owned(),
            ValueKind::Group => "name of a group".to_owned(),
            Instant => "instant in RFC 3339".to_owned(),
        };
        let needs = spec
            .needs
            .map(|(policy, words)| format!(". Needs `{policy}` = `{}`", words.join("` or `")));
        let (default, meaning) = (spec.default, spec.meaning);
        let needs = needs.unwrap_or_default();
        table += &format!("| `{key}` | {value} | {default} | {meaning}{needs} |\n");
    }
    table
}

#[test]
fn the_guide_has_the_table() {
    let guide = format!(
        "{}/../../docs/src/guides/late-and-overlapping.md",
        env!("CARGO_MANIFEST_DIR")
    );
    let guide = std::fs::read_to_string(guide).unwrap();
    assert!(
        guide.contains(&reference()),
        "write into the guide:\n{}",
        reference()
    );
}

#[test]
fn the_default_of_a_policy_applies_where_it_has_a_meaning() {
    let defaults = Defaults::default();
    let effective = |policies: &Policies| -> BTreeMap<&str, String> {
        let all = policies.effective(&defaults);
        all.filter_map(|(policy, text)| Some((policy.as_str(), text?)))
            .collect()
    };
    let text = |pairs: &[(&'static str, &str)]| -> BTreeMap<&'static str, String> {
        pairs
            .iter()
            .map(|(key, text)| (*key, (*text).to_owned()))
            .collect()
    };
    assert_eq!(
        effective(&Policies::default()),
        text(&[
            ("catchup", "latest"),
            ("catchup_window", "1day"),
            ("misfire_grace", "5m"),
            ("overlap", "skip"),
            ("delivery", "at_least_once"),
            ("priority", "5"),
            ("backoff", "1s"),
            ("backoff_coefficient", "2"),
            ("backoff_max", "1m"),
        ])
    );
    let policies = Policies {
        catchup: Some(Catchup::None),
        overlap: Overlap::BufferAll,
        jitter: Some(Duration::from_secs(1)),
        ..Policies::default()
    };
    assert_eq!(
        effective(&policies),
        text(&[
            ("catchup", "none"),
            ("misfire_grace", "5m"),
            ("overlap", "buffer_all"),
            ("max_buffered", "100"),
            ("delivery", "at_least_once"),
            ("jitter", "1s"),
            ("priority", "5"),
            ("backoff", "1s"),
            ("backoff_coefficient", "2"),
            ("backoff_max", "1m"),
        ])
    );
}
