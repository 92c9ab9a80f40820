//! Reading a crontab: which lines it has, and what each says. Pure.
//!
//! The format is that of Vixie's cron and its heirs. Expressions are cut out and not read: that
//! is for [`Rule::parse`](campanile_schedule::rule::Rule::parse), whose dialect may be stricter.

/// Between fields, as cron has it.
const BLANKS: [char; 2] = [' ', '\t'];

/// The longest name made of a command, in bytes. Leaves room for a number.
const NAME_BYTES_MAX: usize = 100;

/// The name of a command that none can be made of.
const NAME_DEFAULT: &str = "job";

/// A line that says something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Counted from 1.
    pub number: usize,
    /// What it says.
    pub says: Says,
}

/// What a line says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Says {
    /// When to run a command.
    Entry(Entry),
    /// `CRON_TZ=Europe/Rome`: the zone of the entries after it; none when it ends the one before.
    Zone(Option<String>),
    /// A variable for the environment of the commands after it.
    Variable(String),
    /// Nothing that cron would understand.
    Fault {
        /// One lower-case sentence.
        message: &'static str,
        /// What to write instead.
        hint: &'static str,
    },
}

/// A command and when it is run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// Five fields or a macro, with single blanks between.
    pub expression: String,
    /// The zone that a line before it set.
    pub zone: Option<String>,
    /// Who runs it, in a system crontab.
    pub user: Option<String>,
    /// The command line, up to the first `%` that is not escaped.
    pub command: String,
    /// Whether a `%` hands the command something on its standard input.
    pub has_input: bool,
    /// Whether a `-` before the entry keeps it out of cron's log.
    pub unlogged: bool,
}

/// Read a crontab; `system` is for one with a user before each command, as `/etc/crontab`.
///
/// Blank lines and comments are left out.
pub fn read(text: &str, system: bool) -> Vec<Line> {
    let mut lines = Vec::new();
    let mut zone = None;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    for (index, line) in text.lines().enumerate() {
        let line = line.trim_matches(|letter: char| letter.is_ascii_whitespace());
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let says = match variable(line) {
            Some(("CRON_TZ", value)) => {
                zone = Some(value.to_owned()).filter(|zone| !zone.is_empty());
                Says::Zone(zone.clone())
            }
            Some((name, _)) => Says::Variable(name.to_owned()),
            None => entry(line, zone.clone(), system),
        };
        lines.push(Line {
            number: index + 1,
            says,
        });
    }
    lines
}

/// The name and the value of `NAME = "value"`.
fn variable(line: &str) -> Option<(&str, &str)> {
    let (name, value) = line.split_once('=')?;
    let name = unquoted(name.trim_matches(BLANKS));
    let plain = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    (!name.is_empty() && name.chars().all(plain) && !name.starts_with(|c: char| c.is_ascii_digit()))
        .then(|| (name, unquoted(value.trim_matches(BLANKS))))
}

/// `text` without the quotes around it, if there are two of a kind.
fn unquoted(text: &str) -> &str {
    let inner = |quote| text.strip_prefix(quote)?.strip_suffix(quote);
    inner('"').or_else(|| inner('\'')).unwrap_or(text)
}

fn entry(line: &str, zone: Option<String>, system: bool) -> Says {
    let (rest, unlogged) = match line.strip_prefix('-') {
        Some(rest) => (rest, true),
        None => (line, false),
    };
    let fields = match first_word(rest).0 {
        // The only macro of two words is ours.
        "@every" => 2,
        word if word.starts_with('@') => 1,
        _ => 5,
    };
    let (expression, rest) = words(rest, fields);
    let (user, rest) = match system {
        true => {
            let (user, rest) = first_word(rest);
            (Some(user.to_owned()), rest)
        }
        false => (None, rest),
    };
    if rest.is_empty() {
        return Says::Fault {
            message: "it has no command",
            hint: match system {
                true => {
                    "write five fields, a user and a command; leave --system out if there are no \
                     users"
                }
                false => {
                    "write minute, hour, day-of-month, month, day-of-week and a command; or \
                     @daily and a command"
                }
            },
        };
    }
    let (command, has_input) = up_to_percent(rest);
    Says::Entry(Entry {
        expression: expression.join(" "),
        zone,
        user,
        command,
        has_input,
        unlogged,
    })
}

/// The first word of `text`, and what follows it.
fn first_word(text: &str) -> (&str, &str) {
    let text = text.trim_start_matches(BLANKS);
    let (word, rest) = text.split_at(text.find(BLANKS).unwrap_or(text.len()));
    (word, rest.trim_start_matches(BLANKS))
}

/// The first `number` words of `text`, and what follows them.
fn words(text: &str, number: usize) -> (Vec<&str>, &str) {
    let mut rest = text;
    let words = (0..number).map(|_| {
        let word;
        (word, rest) = first_word(rest);
        word
    });
    (words.collect(), rest)
}

/// A command line without what follows a `%`, and whether there was one. `\%` is a plain `%`.
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
    /// The name of the program that is run, made to fit the rules for names of schedules: its
    /// file's without the extension.
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

/// The first word of a command line that is the name of a program: after variables of its own,
/// and after going to a directory.
fn program(command: &str) -> &str {
    let mut rest = command;
    loop {
        let (word, after) = first_word(rest.trim_start_matches(['(', ' ', '\t']));
        let gone_to = (word == "cd").then(|| after.split_once("&&").or(after.split_once(';')));
        rest = match gone_to.flatten() {
            Some((_, then)) => then,
            None if variable(word).is_some() && !after.is_empty() => after,
            None => return word.trim_end_matches([';', ')']),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the only line of `text` says.
    fn says(text: &str, system: bool) -> Says {
        let mut lines = read(text, system);
        assert_eq!(lines.len(), 1, "{text:?}: {lines:?}");
        lines.remove(0).says
    }

    fn entry_of(text: &str) -> Entry {
        match says(text, false) {
            Says::Entry(entry) => entry,
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
        let numbers: Vec<usize> = lines.iter().map(|line| line.number).collect();
        assert_eq!(numbers, [3, 4, 5, 6, 7, 8, 9]);
        let zones: Vec<Option<&str>> = lines
            .iter()
            .filter_map(|line| match &line.says {
                Says::Entry(entry) => Some(entry.zone.as_deref()),
                _ => None,
            })
            .collect();
        assert_eq!(zones, [None, Some("Europe/Rome"), Some("Asia/Tokyo"), None]);
    }

    #[test]
    fn variables_are_told_from_entries() {
        for (line, name) in [
            ("PATH=/bin:/usr/bin", "PATH"),
            ("  MAILTO = \"\"", "MAILTO"),
            ("'TZ' = 'Europe/Rome'", "TZ"),
            ("_A1=x y z", "_A1"),
        ] {
            assert_eq!(says(line, false), Says::Variable(name.to_owned()));
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
        assert_eq!(says(line, true), Says::Entry(entry));
        assert!(matches!(says("@daily root", true), Says::Fault { .. }));
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
            assert!(matches!(says(line, false), Says::Fault { .. }), "{line:?}");
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
