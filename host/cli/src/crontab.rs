//! The parser of crontabs. It is pure.
//!
//! The format is that of Vixie cron and its successors. Expressions are not parsed here: that is for
//! [`Rule::parse`](campanile_schedule::rule::Rule::parse), whose dialect may be stricter.

/// The characters that separate fields.
const BLANKS: [char; 2] = [' ', '\t'];

/// The longest name of an entry, in bytes. It leaves space for a number.
const NAME_BYTES_MAX: usize = 100;

/// The name of an entry whose command has no usable name.
const NAME_DEFAULT: &str = "job";

/// A line that is not blank and not a comment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// A command and when to run it.
    Entry(Entry),
    /// `CRON_TZ=Europe/Rome`: the time zone of the entries below; `None` for an empty value.
    Zone(Option<String>),
    /// An environment variable of the commands below.
    Variable(String),
    /// A line that has no command, which cron would not accept.
    ///
    /// The text says what to write instead.
    NoCommand(&'static str),
}

/// A command and when to run it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// Five fields or a macro, separated by single spaces.
    pub expression: String,
    /// The zone of the last `CRON_TZ` line above.
    pub zone: Option<String>,
    /// The user, in a system crontab.
    pub user: Option<String>,
    /// The command line, up to the first `%` that is not escaped.
    pub command: String,
    /// Whether a `%` gives the command standard input.
    pub has_input: bool,
    /// Whether a `-` before the entry hides it from cron's log.
    pub unlogged: bool,
}

/// Parse a crontab; return its lines with their numbers, from 1.
///
/// A `system` crontab has a user before each command, as `/etc/crontab`.
pub fn read(text: &str, system: bool) -> Vec<(usize, Line)> {
    let mut lines = Vec::new();
    let mut zone = None;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    for (index, line) in text.lines().enumerate() {
        let line = line.trim_matches(|letter: char| letter.is_ascii_whitespace());
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let line = match variable(line) {
            Some(("CRON_TZ", value)) => {
                zone = Some(value.to_owned()).filter(|zone| !zone.is_empty());
                Line::Zone(zone.clone())
            }
            Some((name, _)) => Line::Variable(name.to_owned()),
            None => entry(line, zone.clone(), system),
        };
        lines.push((index + 1, line));
    }
    lines
}

/// Returns the name and the value of `NAME = "value"`.
fn variable(line: &str) -> Option<(&str, &str)> {
    let (name, value) = line.split_once('=')?;
    let name = unquoted(name.trim_matches(BLANKS));
    let plain = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    (!name.is_empty() && name.chars().all(plain) && !name.starts_with(|c: char| c.is_ascii_digit()))
        .then(|| (name, unquoted(value.trim_matches(BLANKS))))
}

/// Returns `text` without the pair of quotes around it.
fn unquoted(text: &str) -> &str {
    let inner = |quote| text.strip_prefix(quote)?.strip_suffix(quote);
    inner('"').or_else(|| inner('\'')).unwrap_or(text)
}

fn entry(line: &str, zone: Option<String>, system: bool) -> Line {
    let rest = line.strip_prefix('-');
    let (rest, unlogged) = (rest.unwrap_or(line), rest.is_some());
    let fields = match first_word(rest).0 {
        // The only macro of two words is Campanile's own.
        "@every" => 2,
        word if word.starts_with('@') => 1,
        _ => 5,
    };
    let (expression, rest) = words(rest, fields);
    let (user, rest) = match first_word(rest) {
        (user, rest) if system => (Some(user.to_owned()), rest),
        _ => (None, rest),
    };
    if rest.is_empty() {
        let hint = if system {
            "write five fields, a user and a command; leave --system out if there are no users"
        } else {
            "write minute, hour, day-of-month, month, day-of-week and a command; or @daily and a command"
        };
        return Line::NoCommand(hint);
    }
    let (command, has_input) = up_to_percent(rest);
    Line::Entry(Entry {
        expression: expression.join(" "),
        zone,
        user,
        command,
        has_input,
        unlogged,
    })
}

/// Returns the first word of `text`, and the rest.
fn first_word(text: &str) -> (&str, &str) {
    let text = text.trim_start_matches(BLANKS);
    let (word, rest) = text.split_at(text.find(BLANKS).unwrap_or(text.len()));
    (word, rest.trim_start_matches(BLANKS))
}

/// Returns the first `number` words of `text`, and the rest.
fn words(text: &str, number: usize) -> (Vec<&str>, &str) {
    let mut rest = text;
    let words = (0..number).map(|_| {
        let word;
        (word, rest) = first_word(rest);
        word
    });
    (words.collect(), rest)
}

/// Returns the command line up to an unescaped `%`, and whether there is one. `\%` is a plain `%`.
fn up_to_percent(text: &str) -> (String, bool) {
    let mut command = String::with_capacity(text.len());
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '%' => return (command.trim_end().to_owned(), true),
            '\\' if letters.next_if_eq(&'%').is_some() => command.push('%'),
            other => command.push(other),
        }
    }
    (command, false)
}

impl Entry {
    /// Returns the name of the program's file without its extension, as a valid name of a schedule.
    pub fn name(&self) -> String {
        let program = unquoted(program(&self.command));
        let file = program.rsplit('/').next().unwrap_or_default();
        let stem = match file.rsplit_once('.') {
            Some((stem, _)) if !stem.is_empty() => stem,
            _ => file,
        };
        let fits = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
        let name: String = stem
            .chars()
            .map(|letter| if fits(letter) { letter } else { '-' })
            .take(NAME_BYTES_MAX)
            .collect();
        match name.trim_matches(['-', '.']) {
            "" => NAME_DEFAULT.to_owned(),
            name => name.to_owned(),
        }
    }
}

/// Returns the program of a command line: the first word after assignments of variables and after `cd`.
fn program(command: &str) -> &str {
    let mut rest = command;
    loop {
        let (word, after) = first_word(rest.trim_start_matches(['(', ' ', '\t']));
        let after_cd = (word == "cd").then(|| after.split_once("&&").or(after.split_once(';')));
        rest = match after_cd.flatten() {
            Some((_, then)) => then,
            None if variable(word).is_some() && !after.is_empty() => after,
            None => return word.trim_end_matches([';', ')']),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the only line of `text`.
    fn line_of(text: &str, system: bool) -> Line {
        let mut lines = read(text, system);
        assert_eq!(lines.len(), 1, "{text:?}: {lines:?}");
        lines.remove(0).1
    }

    fn entry_of(text: &str) -> Entry {
        match line_of(text, false) {
            Line::Entry(entry) => entry,
            other => panic!("{text:?}: {other:?}"),
        }
    }

    #[test]
    fn an_entry_is_an_expression_and_a_command() {
        for (line, expression, command) in [
            ("30 2 * * * backup", "30 2 * * *", "backup"),
            (" 30\t2  * * *\t backup  -v ", "30 2 * * *", "backup  -v"),
            ("@daily /bin/x --a=b", "@daily", "/bin/x --a=b"),
            ("@reboot x", "@reboot", "x"),
            ("@every 15m x y", "@every 15m", "x y"),
            ("H 3 * * * A=1 x", "H 3 * * *", "A=1 x"),
            ("*/5 * * * MON-FRI x # y\r", "*/5 * * * MON-FRI", "x # y"),
        ] {
            let entry = Entry {
                expression: expression.to_owned(),
                command: command.to_owned(),
                ..Entry::default()
            };
            assert_eq!(entry_of(line), entry, "{line:?}");
        }
        assert!(entry_of("-0 3 * * * x").unlogged);
    }

    #[test]
    fn what_follows_a_percent_sign_is_standard_input() {
        for (command, kept, has_input) in [
            ("mail -s hi ada%Hello%Bye", "mail -s hi ada", true),
            (r"date +\%F \% x", "date +%F % x", false),
            (r"date +\%F %x", "date +%F", true),
            (r"a \b", r"a \b", false),
        ] {
            let entry = entry_of(&format!("0 3 * * * {command}"));
            assert_eq!((entry.command.as_str(), entry.has_input), (kept, has_input));
        }
    }

    #[test]
    fn a_zone_holds_until_the_next() {
        let text = "\u{feff}# zones\n\n0 1 * * * a\nCRON_TZ=Europe/Rome\n0 2 * * * b\n\
                    CRON_TZ = \"Asia/Tokyo\"\n@daily c\nCRON_TZ=\n@daily d\n";
        let lines = read(text, false);
        let numbers: Vec<usize> = lines.iter().map(|(number, _)| *number).collect();
        assert_eq!(numbers, [3, 4, 5, 6, 7, 8, 9]);
        let zones: Vec<Option<&str>> = lines
            .iter()
            .filter_map(|(_, line)| match line {
                Line::Entry(entry) => Some(entry.zone.as_deref()),
                _ => None,
            })
            .collect();
        assert_eq!(zones, [None, Some("Europe/Rome"), Some("Asia/Tokyo"), None]);
    }

    #[test]
    fn variables_are_not_entries() {
        for (line, name) in [
            ("PATH=/bin:/usr/bin", "PATH"),
            ("  MAILTO = \"\"", "MAILTO"),
            ("'TZ' = 'Europe/Rome'", "TZ"),
            ("_A1=x y z", "_A1"),
        ] {
            assert_eq!(line_of(line, false), Line::Variable(name.to_owned()));
        }
    }

    #[test]
    fn a_system_crontab_has_users() {
        let entry = Entry {
            expression: "17 * * * *".to_owned(),
            user: Some("root".to_owned()),
            command: "cd / && run-parts --report /etc/cron.hourly".to_owned(),
            ..Entry::default()
        };
        let line = "17 *\t* * *\troot\tcd / && run-parts --report /etc/cron.hourly";
        assert_eq!(line_of(line, true), Line::Entry(entry));
        assert!(matches!(
            line_of("@daily root", true),
            Line::NoCommand { .. }
        ));
    }

    #[test]
    fn a_line_without_a_command_is_a_fault() {
        for line in [
            "0 3 * * *",
            "0 3 * *",
            "@daily",
            "@every 15m",
            "backup",
            "-",
        ] {
            assert!(
                matches!(line_of(line, false), Line::NoCommand { .. }),
                "{line:?}"
            );
        }
    }

    #[test]
    fn a_name_is_made_of_the_program() {
        for (command, name) in [
            ("/usr/local/bin/backup.sh --all", "backup"),
            ("cd /srv/app && ./report.py", "report"),
            ("cd /srv/app; ./report.py", "report"),
            ("A=1 B='2' \"/opt/x y\"", "x"),
            ("(cd / && run-parts /etc)", "run-parts"),
            ("tar.gz.sh", "tar.gz"),
            (".hidden", "hidden"),
            ("[ -x /bin/true ] && true", "job"),
            ("größe", "gr--e"),
            ("A=1", "A-1"),
            ("cd", "cd"),
        ] {
            let entry = Entry {
                command: command.to_owned(),
                ..Entry::default()
            };
            assert_eq!(entry.name(), name, "{command:?}");
        }
    }
}
