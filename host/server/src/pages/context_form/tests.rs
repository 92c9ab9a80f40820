use serde_json::{Value, json};

use super::*;
use crate::pages::form::Form;
use campanile_model::json_text::{JsonObject, text_of};

fn of(schema: Value) -> ContextForm {
    ContextForm::of(Some(&schema))
}

fn typed(fields: &[(&str, &str)]) -> Form {
    let fields = fields.iter();
    let fields = fields.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    Form::of(fields.collect())
}

fn object(text: &str) -> JsonObject {
    serde_json::from_str(text).unwrap()
}

/// Returns the context that a form has.
fn read(form: &ContextForm, fields: &[(&str, &str)]) -> Result<String, String> {
    let read = form.read(&typed(fields), &JsonObject::new()).checked();
    read.map(|context| text_of(&context))
        .map_err(|error| error.problem.message)
}

/// Returns the names of the fields, as the page shows them.
fn names(form: &ContextForm) -> Vec<&str> {
    let fields = form.parts.iter().flat_map(Part::fields);
    fields.map(|field| field.name.as_str()).collect()
}

fn shown(form: &ContextForm, fields: &[(&str, &str)]) -> String {
    let typed = typed(fields);
    let read = form.read(&typed, &JsonObject::new());
    form.show(&typed, &JsonObject::new(), &read).into_string()
}

fn plain() -> ContextForm {
    of(json!({
        "type": "object",
        "required": ["name", "server"],
        "properties": {
            "keep": {"type": "integer", "minimum": 1, "maximum": 9, "description": "How many stay"},
            "name": {"type": "string", "default": "world"},
            "share": {"type": ["number", "null"]},
            "deep": {"type": "boolean"},
            "level": {"enum": ["low", "high", 3, null]},
            "tags": {"type": "array", "items": {"type": "string"}},
            "server": {
                "type": "object",
                "required": ["host"],
                "properties": {"host": {"type": "string"}, "a/b~c": {"type": "integer"}}
            }
        }
    }))
}

#[test]
fn a_schema_becomes_fields_with_the_required_ones_first() {
    let form = plain();
    assert_eq!(
        names(&form),
        [
            "context/name",
            "context/server/host",
            "context/server/a~1b~0c",
            "context/keep",
            "context/share",
            "context/deep",
            "context/level",
            "context/tags",
        ]
    );
    let page = shown(&form, &[]);
    for part in [
        "How many stay. A whole number from 1 to 9.",
        "Left empty: &quot;world&quot;.",
        "<legend><code>server</code> required",
        "<option value=\"&quot;low&quot;\">low</option>",
        "<option value=\"3\">3</option>",
        "Further values, a JSON object",
    ] {
        assert!(page.contains(part), "no {part}: {page}");
    }
}

#[test]
fn what_is_typed_becomes_a_context_and_numbers_keep_their_text() {
    let form = plain();
    let context = read(
        &form,
        &[
            ("context/name", " two\nlines "),
            ("context/keep", " 9 "),
            ("context/share", "1.10"),
            ("context/deep", "false"),
            ("context/level", "\"high\""),
            ("context/tags", "[ 1.0, \"x\" ]"),
            ("context/server/host", "h"),
            ("context", "{\"more\": 12345678901234567890123}"),
        ],
    );
    let expected = r#"{"deep":false,"keep":9,"level":"high","more":12345678901234567890123,"name":" two\nlines ","server":{"host":"h"},"share":1.10,"tags":[1.0,"x"]}"#;
    assert_eq!(context.as_deref(), Ok(expected));
}

#[test]
fn each_wrong_value_is_named() {
    let form = plain();
    let right = [("context/name", "a"), ("context/server/host", "h")];
    for (name, value, part) in [
        ("context/keep", "abc", "`keep` is `abc`, which is no number"),
        ("context/keep", "+1", "`keep` is `+1`, which is no number"),
        ("context/keep", "007", "no number"),
        (
            "context/keep",
            "1.5",
            "`keep` is `1.5`, which is no whole number",
        ),
        ("context/keep", "1e2", "no whole number"),
        ("context/keep", "0", "`keep` is 0, and the least is 1"),
        ("context/keep", "10", "`keep` is 10, and the most is 9"),
        ("context/share", "1,5", "no number"),
        ("context/share", "NaN", "no number"),
        ("context/share", "\"1\"", "no number"),
        ("context/share", "1e999", "no number"),
        (
            "context/deep",
            "yes",
            "`deep` is `yes`, which is none of its choices",
        ),
        ("context/level", "high", "none of its choices"),
        ("context/level", "\"middle\"", "none of its choices"),
        ("context/tags", "a, b", "`tags` is no JSON"),
        ("context/server/a~1b~0c", "x", "`server/a~1b~0c` is `x`"),
        (
            "context/gone",
            "x",
            "`gone` isn't in the package's schema any more",
        ),
        ("context/name", "a\u{202e}b", "can't be seen"),
        ("context", "{", "the JSON object is no JSON"),
        ("context", "[]", "the JSON object is JSON but no object"),
        (
            "context",
            "{\"name\": 1}",
            "`name` is set in its field and in the JSON object",
        ),
        ("context/name", " ", "`name` is required"),
        ("context/server/host", "", "`server/host` is required"),
    ] {
        let mut fields = right.to_vec();
        fields.retain(|(other, _)| *other != name);
        fields.push((name, value));
        let error = read(&form, &fields).unwrap_err();
        assert!(error.contains(part), "{name} {value}: {error}");
        if name != "context/gone" {
            assert!(
                shown(&form, &fields).contains("aria-invalid=\"true\""),
                "{name} {value}"
            );
        }
    }
    let error = read(&form, &[("context/keep", "x")]).unwrap_err();
    assert!(
        error.starts_with("3 values of the context are wrong:\n"),
        "{error}"
    );
    // A required value may be in the JSON object too.
    let fields = [("context", r#"{"name": "", "server": {"host": "h"}}"#)];
    assert_eq!(
        read(&form, &fields).as_deref(),
        Ok(r#"{"name":"","server":{"host":"h"}}"#)
    );
}

#[test]
fn an_object_is_sent_when_one_of_its_values_is_typed() {
    let form = of(json!({"properties": {"server": {
        "type": "object", "required": ["host"],
        "properties": {"host": {"type": "string"}, "port": {"type": "integer"}},
    }}}));
    assert_eq!(read(&form, &[]).as_deref(), Ok("{}"));
    let error = read(&form, &[("context/server/port", "1")]).unwrap_err();
    assert!(error.contains("`server/host` is required"), "{error}");
    // A launch by hand replaces an object of its schedule as a whole, so the other values come along.
    let base = object(r#"{"server": {"host": "h", "port": 1, "more": 2.50}, "x": 1}"#);
    let typed = typed(&[("context/server/port", "2")]);
    let context = form.read(&typed, &base).checked().unwrap();
    assert_eq!(
        text_of(&context),
        r#"{"server":{"host":"h","more":2.50,"port":2}}"#
    );
}

#[test]
fn references_and_unions_with_null_are_followed() {
    let form = of(json!({
        "type": "object",
        "properties": {
            "a": {"$ref": "#/$defs/Text"},
            "b": {"anyOf": [{"$ref": "#/$defs/Count"}, {"type": "null"}], "description": "own"},
            "c": {"allOf": [{"type": "boolean"}]},
        },
        "$defs": {"Text": {"type": "string", "description": "of Text"}, "Count": {"type": "integer"}},
    }));
    let kinds = Vec::from_iter(form.parts.iter().map(|part| &part.fields()[0]));
    assert_eq!(kinds[0].kind, Kind::Text);
    assert_eq!(kinds[0].description, "of Text");
    assert!(matches!(kinds[1].kind, Kind::Number { is_whole: true, .. }));
    assert_eq!(kinds[1].description, "own");
    assert_eq!(kinds[2].kind, Kind::Flag);
}

#[test]
fn what_a_field_cannot_express_is_json() {
    let form = of(json!({"properties": {
        "union": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
        "types": {"type": ["string", "integer"]},
        "any": true,
        "not": {"not": {"type": "string"}, "type": "string"},
        "gone": {"$ref": "#/$defs/Gone"},
        "elsewhere": {"$ref": "https://example.com/schema"},
        "loop": {"$ref": "#/properties/loop"},
        "open": {"type": "object"},
        "objects": {"enum": [{"a": 1}]},
    }}));
    assert_eq!(form.parts.len(), 9);
    for part in &form.parts {
        assert_eq!(part.fields()[0].kind, Kind::Json, "{part:?}");
    }
    assert_eq!(
        read(
            &form,
            &[("context/union", "1.0"), ("context/open", "{\"a\": [1]}")]
        )
        .as_deref(),
        Ok(r#"{"open":{"a":[1]},"union":1.0}"#)
    );
}

#[test]
fn a_hostile_schema_gives_a_bounded_form() {
    /// The most bytes of the form of any schema.
    const BYTES_MAX: usize = 130_000;
    let many = |count: usize| {
        let properties = (0..count).map(|n| (format!("p{n}"), json!({"type": "string"})));
        json!({"properties": Value::Object(properties.collect())})
    };
    let deep = (0..120).fold(
        json!({"type": "string"}),
        |inner, _| json!({"type": "object", "properties": {"a": inner}}),
    );
    let long = "<&\"\u{202e}".repeat(20_000);
    let rings = json!({
        "properties": {"a": {"$ref": "#/$defs/a"}, "b": {"anyOf": [{"$ref": "#/$defs/b"}]}},
        "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}},
    });
    let choices = |count: usize| {
        (0..count)
            .map(|n| json!(format!("choice {n}")))
            .collect::<Vec<_>>()
    };
    let many_choices = (0..40).map(|n| {
        (
            format!("p{n}"),
            json!({"type": "string", "enum": choices(30)}),
        )
    });
    for (name, schema, fields) in [
        ("no object", json!([]), 0),
        ("a text", json!("x"), 0),
        ("a list", json!({"type": "array"}), 0),
        ("a ring at the top", json!({"$ref": "#"}), 0),
        ("rings", rings, 2),
        ("the most", many(40), 40),
        ("one too many", many(41), 0),
        ("ten thousand", many(10_000), 0),
        (
            "ten thousand within",
            json!({"properties": {"a": {"type": "object", "properties": many(10_000)["properties"]}}}),
            0,
        ),
        ("deep", deep, 1),
        (
            "a huge enum",
            json!({"properties": {"a": {"type": "string", "enum": choices(10_000)}}}),
            1,
        ),
        (
            "many enums",
            json!({"properties": Value::Object(many_choices.collect())}),
            40,
        ),
        (
            "a long choice",
            json!({"properties": {"a": {"enum": [long]}}}),
            1,
        ),
        (
            "long texts",
            json!({"properties": {"a": {"type": "string", "description": long, "default": long}}}),
            1,
        ),
        (
            "a long key",
            json!({"properties": {long.clone(): {"type": "string"}, "": {}, "x\u{1b}": {}}}),
            0,
        ),
        (
            "reserved keys",
            json!({"properties": {"run_id": {"type": "string"}}}),
            0,
        ),
        (
            "wrong types",
            json!({"properties": [1], "required": 3, "type": null}),
            0,
        ),
        (
            "wrong bounds",
            json!({"properties": {"a": {"type": "integer", "minimum": "x", "enum": 1}}, "required": {"a": 1}}),
            1,
        ),
    ] {
        let form = of(schema);
        assert_eq!(names(&form).len(), fields, "{name}");
        let page = shown(&form, &[]);
        assert!(page.len() < BYTES_MAX, "{name}: {} bytes", page.len());
        assert!(!page.contains(['\u{202e}', '\u{1b}']), "{name}");
        assert!(
            fields > 0 || page.contains("name=\"context\""),
            "{name}: {page}"
        );
        assert_eq!(read(&form, &[]).as_deref(), Ok("{}"), "{name}");
    }
    // The values of an enum that is too large for the page are typed.
    let form = of(json!({"properties": {"a": {"type": "string", "enum": choices(10_000)}}}));
    assert_eq!(form.parts[0].fields()[0].kind, Kind::Text);
}

#[test]
fn a_closed_schema_takes_no_further_values_unless_a_key_has_no_field() {
    let closed =
        |key: &str| of(json!({"additionalProperties": false, "properties": {"a": {}, key: {}}}));
    assert!(!closed("b").takes_more);
    assert!(closed("b\u{1b}").takes_more);
    let nothing = ContextForm::of_manifest("{}");
    assert!(nothing.takes_more && nothing.parts.is_empty());
    assert!(ContextForm::of_manifest("no JSON").takes_more);
}
