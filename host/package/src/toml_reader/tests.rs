use super::*;
use bytesize::ByteSize;
use campanile_model::text::{duration_text, size_text};

fn read<T>(text: &str, ask: impl Fn(&mut Section<'_>) -> Result<T, Error>) -> Result<T, String> {
    let document = Document::parse("x.toml", text).map_err(|error| error.to_string())?;
    let mut section = document.section();
    let value = ask(&mut section).map_err(|error| error.to_string())?;
    section.finish().map_err(|error| error.to_string())?;
    Ok(value)
}

const HOUR: Duration = Duration::from_secs(3600);

#[test]
fn an_unknown_key_is_named_with_its_line_and_the_nearest_known_one() {
    let ask = |section: &mut Section<'_>| {
        let mut limits = section.table("limits")?.unwrap();
        limits.duration("timeout", Duration::ZERO, HOUR)?;
        limits.size("memory", 0, 1 << 30)?;
        limits.finish()
    };
    assert_eq!(
        read("\n[limits]\nmemory = \"1MiB\"\ntimout = \"5s\"\n", ask).unwrap_err(),
        "x.toml:4:1: unknown key `limits.timout`: did you mean `timeout`?"
    );
    assert_eq!(
        read("[limits]\nzzz = 1", ask).unwrap_err(),
        "x.toml:2:1: unknown key `limits.zzz`: the keys known here are `timeout`, `memory`"
    );
}

#[test]
fn a_wrong_type_error_names_the_right_type() {
    assert_eq!(
        read("\nwait = 5", |s| s.duration("wait", Duration::ZERO, HOUR)).unwrap_err(),
        "x.toml:2:1: `wait` must be a duration in quotes with a unit, such as \"30s\" or \"5m\", not a number"
    );
    assert_eq!(
        read("size = '7 furlongs'", |s| s.size("size", 0, 9)).unwrap_err(),
        "x.toml:1:1: `size` is \"7 furlongs\", which is not a size: write a number with a unit, such as \"64MiB\""
    );
    assert_eq!(
        read("env = ['A', 1]", |s| s.texts("env")).unwrap_err(),
        "x.toml:1:1: `env` must hold only texts, and item 2 is a number"
    );
}

#[test]
fn a_number_out_of_bounds_is_refused_with_the_bounds() {
    assert_eq!(
        read("wait = '2h'", |s| s.duration(
            "wait",
            Duration::from_secs(1),
            HOUR
        ))
        .unwrap_err(),
        "x.toml:1:1: `wait` must be from \"1s\" to \"1h\", not \"2h\""
    );
    assert_eq!(
        read("n = -1", |s| s.number::<u64>("n", 0, 5)).unwrap_err(),
        "x.toml:1:1: `n` must be a whole number from 0 to 5, not -1"
    );
    assert_eq!(read("n = 0x05", |s| s.number("n", 0, 5)), Ok(Some(5)));
    assert_eq!(
        read("n = 1_000", |s| s.number("n", 0, 5000)),
        Ok(Some(1000))
    );
    assert_eq!(
        read("s = '1.5GiB'", |s| s.size("s", 0, u64::MAX)),
        Ok(Some(3 << 29))
    );
}

#[test]
fn broken_syntax_is_reported_at_its_line() {
    let error = read("a = 1\nb = [1,\nc = 2\n", |_| Ok(())).unwrap_err();
    assert!(error.starts_with("x.toml:"), "{error}");
    assert!(error.contains("this is not TOML"), "{error}");
    let twice = read("a = 1\nb = 2\na = 3\n", |_| Ok(())).unwrap_err();
    assert!(twice.starts_with("x.toml:3:1: this is not TOML"), "{twice}");
}

#[test]
fn an_empty_list_of_tables_differs_from_an_absent_one_and_items_have_places() {
    let count = |s: &mut Section<'_>| Ok(s.tables("schedules")?.map(|list| list.len()));
    assert_eq!(read("", count), Ok(None));
    assert_eq!(read("schedules = []", count), Ok(Some(0)));
    let ask = |s: &mut Section<'_>| {
        for mut one in s.tables("schedules")?.unwrap_or_default() {
            one.text("cron")?;
            one.finish()?;
        }
        Ok(())
    };
    assert_eq!(
        read("[[schedules]]\ncron = ''\n[[schedules]]\ncorn = ''", ask).unwrap_err(),
        "x.toml:4:1: unknown key `schedules[1].corn`: did you mean `cron`?"
    );
    assert_eq!(
        read("schedules = 'x'", ask).unwrap_err(),
        "x.toml:1:1: `schedules` must be a list of tables, such as [[schedules]], not a text"
    );
}

#[test]
fn free_tables_become_json_and_values_that_json_cannot_express_are_refused() {
    let ask = |s: &mut Section<'_>| s.json("context");
    let context = read(
        "[context]\na = 1\nb = [true, 0.5]\nc = { d = 2026-11-21T08:00:00Z }",
        ask,
    );
    assert_eq!(
        Value::Object(context.unwrap()),
        serde_json::json!({"a": 1, "b": [true, 0.5], "c": {"d": "2026-11-21T08:00:00Z"}})
    );
    assert_eq!(
        read("context = { x = nan }", ask).unwrap_err(),
        "x.toml:1:13: `context.x` holds nan, which JSON cannot express"
    );
    let far = read("context = { x = 99999999999999999999 }", ask).unwrap_err();
    assert!(far.contains("write it as text"), "{far}");
}

#[test]
fn an_instant_may_be_bare_or_quoted_but_needs_its_offset() {
    let ask = |s: &mut Section<'_>| s.instant("at");
    let eight = Timestamp::from_micros(1_800_000_000_000_000);
    assert_eq!(read("at = 2027-01-15T08:00:00Z", ask), Ok(Some(eight)));
    assert_eq!(
        read("at = '2027-01-15T09:00:00+01:00'", ask),
        Ok(Some(eight))
    );
    let local = read("at = 2027-01-15T08:00:00", ask).unwrap_err();
    assert!(local.contains("RFC 3339"), "{local}");
}

#[test]
fn sizes_and_durations_print_as_they_are_read() {
    for bytes in [0, 1, 1023, 1024, 64 << 20, (64 << 20) + 1, 3 << 40] {
        assert_eq!(size_text(bytes).parse::<ByteSize>().unwrap().0, bytes);
    }
    assert_eq!(size_text(64 << 20), "64MiB");
    assert_eq!(duration_text(Duration::from_secs(300)), "5m");
}
