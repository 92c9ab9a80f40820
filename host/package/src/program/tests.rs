use std::fs;
use std::os::unix::fs::symlink;

use campanile_sandbox::{DirectoryGrant, DirectoryQuota};

use super::*;
use crate::host_rules::OwnPathKind;
use crate::toml_reader::Document;

/// Grants of the directories `guests` and of the variable `TOKEN`.
fn grants(guests: &[&str]) -> Grants {
    let directory = |guest: &&str| DirectoryGrant {
        host: "/srv".into(),
        guest: (*guest).to_owned(),
        writable: false,
        quota: DirectoryQuota::default(),
    };
    Grants {
        directories: guests.iter().map(directory).collect(),
        env: [("TOKEN".to_owned(), "1".to_owned())].into(),
        ..Grants::default()
    }
}

/// Read `text` as the table of a sidecar in a folder with the files of this test.
fn read_text(text: &str) -> Result<(ProgramInput, String), String> {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("input.txt"), "ding").unwrap();
    fs::create_dir(folder.path().join("folder")).unwrap();
    symlink("input.txt", folder.path().join("link.txt")).unwrap();
    let shown = folder.path().display().to_string();
    let document = Document::parse("x.toml", text).unwrap();
    let mut top = document.section();
    let section = top.table_or_empty("program").unwrap();
    fs::write(folder.path().join("token"), "secret").unwrap();
    fs::hard_link(
        folder.path().join("token"),
        folder.path().join("other_name"),
    )
    .unwrap();
    fs::write(folder.path().join("x.toml"), text).unwrap();
    let rules = HostRules {
        secret_variables: Default::default(),
        limits: Default::default(),
        memory_bytes_most: 1 << 30,
        env: |_| None,
        own_paths: vec![OwnPath {
            kind: OwnPathKind::SecretFile,
            path: folder.path().join("token"),
        }],
        foreign_writers: Default::default(),
        secrets: Default::default(),
        groups: Default::default(),
        policy: Default::default(),
    };
    let program = read(section, folder.path(), &grants(&["/data"]), &rules);
    let program = program.map_err(|error| error.to_string().replace(&shown, "FOLDER"))?;
    Ok((program, shown))
}

#[test]
fn a_whole_table_is_read() {
    let text = r#"
        [program]
        argv0 = "rsync"
        args = ["--url={{ context.url }}", "plain"]
        stdin = { file = "input.txt" }
        env_from_context = { NAME = "schedule.name" }
        campanile_env = false
        cwd = "/data"
    "#;
    let (program, folder) = read_text(text).unwrap();
    let expected = ProgramInput {
        argv0: Some("rsync".to_owned()),
        args: ["--url={{ context.url }}", "plain"]
            .map(|text| Template::parse(text).unwrap())
            .into(),
        stdin: Stdin::File(Path::new(&folder).join("input.txt")),
        env_from_context: [(
            "NAME".to_owned(),
            ContextKey::parse("schedule.name").unwrap(),
        )]
        .into(),
        campanile_env: false,
        cwd: Some("/data".to_owned()),
    };
    assert_eq!(program, expected);
    assert_eq!(read_text("").unwrap().0, ProgramInput::default());
    for (text, expected) in [
        ("stdin = 'context'", Stdin::Context),
        ("stdin = 'none'", Stdin::Empty),
        ("stdin.text = 'none'", Stdin::Bytes("none".into())),
        ("stdin = { text = '' }", Stdin::Bytes("".into())),
    ] {
        let (program, _) = read_text(&format!("[program]\n{text}")).unwrap();
        assert_eq!(program.stdin, expected, "{text}");
    }
}

#[test]
fn mistakes_are_named_with_line_and_hint() {
    for (text, expected) in [
        ("arguments = []", "2:1: unknown key `program.arguments`"),
        (
            "arg = []",
            "2:1: unknown key `program.arg`: did you mean `args`?",
        ),
        (
            "args = 'a b'",
            "2:1: `program.args` must be a list of texts",
        ),
        (
            "args = ['{{ contxt.url }}']",
            "2:1: `program.args` holds `{{ contxt.url }}`: write `{{ context.KEY }}`",
        ),
        (
            "stdin = '@input.txt'",
            "2:1: `program.stdin` is \"@input.txt\": write \"context\", \"none\", { text = \"…\" } or { file = \"input.txt\" }",
        ),
        ("stdin = 3", "2:1: `program.stdin` must be a text in quotes"),
        (
            "stdin = {}",
            "2:9: `program.stdin` needs either `text` or `file`",
        ),
        (
            "stdin = { text = 'a', file = 'input.txt' }",
            "`program.stdin` needs either `text` or `file`",
        ),
        (
            "stdin = { fil = 'input.txt', text = '' }",
            "unknown key `program.stdin.fil`: did you mean `file`?",
        ),
        (
            "stdin = { file = '../input.txt' }",
            "`program.stdin.file` is \"../input.txt\": write the name of a file beside the sidecar",
        ),
        (
            "stdin = { file = '..' }",
            "`program.stdin.file` is \"..\": write the name",
        ),
        (
            "stdin = { file = 'gone.txt' }",
            "`program.stdin.file` is FOLDER/gone.txt, which cannot be read: No such file",
        ),
        (
            "stdin = { file = 'folder' }",
            "`program.stdin.file` is FOLDER/folder, which is not a regular file",
        ),
        (
            "stdin = { file = 'link.txt' }",
            "`program.stdin.file` is FOLDER/link.txt, which is a link",
        ),
        (
            "stdin = { file = 'other_name' }",
            "`program.stdin.file` is FOLDER/other_name, which is the secret file FOLDER/token, a path that the host uses",
        ),
        (
            "stdin = { file = 'x.toml' }",
            "`program.stdin.file` is FOLDER/x.toml, which is a file of a package",
        ),
        (
            "env_from_context = { TOKEN = 'a' }",
            "2:20: `program.env_from_context` sets TOKEN, which `grants` also sets",
        ),
        (
            "env_from_context = { CAMPANILE_URL = 'a' }",
            "`program.env_from_context` names CAMPANILE_URL: the host sets",
        ),
        (
            "env_from_context = { URL = '' }",
            "`program.env_from_context` names \"\", which is no key of a context",
        ),
        (
            "env_from_context = ['URL']",
            "`program.env_from_context` must be a table",
        ),
        (
            "campanile_env = 'no'",
            "`program.campanile_env` must be true or false",
        ),
        (
            "cwd = '/elsewhere'",
            "2:1: `program.cwd` is \"/elsewhere\", which is no granted directory",
        ),
        ("cwd = '/data/below'", "which is no granted directory"),
        ("argv0 = \"a\\u0000\"", "`program.argv0` holds a NUL"),
    ] {
        let error = read_text(&format!("[program]\n{text}")).unwrap_err();
        assert!(
            error.starts_with("x.toml:") && error.contains(expected),
            "{text}: {error}"
        );
    }
}

#[test]
fn only_one_directory_can_be_where_relative_paths_begin() {
    for (path, guests, is_accepted) in [
        ("/data", &["/data", "/out"][..], true),
        ("/data", &["/data", "/"], false),
        ("/", &["/data", "/"], true),
        ("/", &["/data"], false),
    ] {
        let checked = check_directory(path, &grants(guests));
        assert_eq!(checked.is_ok(), is_accepted, "{path}: {checked:?}");
    }
}

#[test]
fn a_package_that_is_no_program_is_refused() {
    for form in [Form::CommandComponent, Form::Preview1Command] {
        assert_eq!(check_form(form), Ok(()));
    }
    for form in [Form::TypedComponent, Form::CoreModuleWithWit] {
        let error = check_form(form).unwrap_err();
        let expected = format!("this package is a {form}: leave the table out");
        assert!(error.contains(&expected), "{error}");
    }
}
