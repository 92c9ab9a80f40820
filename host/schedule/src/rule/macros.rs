//! Short forms of cron expressions, such as `@daily`.

use super::error::{RuleError, quoted};

const MACROS: [(&str, &str); 7] = [
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
];

/// Expands a macro such as `@daily`.
pub(super) fn fields_of_macro(name: &str) -> Result<&'static str, RuleError> {
    let known = MACROS.iter().find(|(known, _)| *known == name);
    known.map(|(_, fields)| *fields).ok_or_else(|| {
        let names = MACROS.map(|(name, _)| name).join(", ");
        RuleError::new(
            format!("{} is not a known macro", quoted(name)),
            format!("write one of {names}, @reboot or `@every 15m`"),
        )
    })
}
