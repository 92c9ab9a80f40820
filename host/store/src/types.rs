//! Text as both databases can store it.

use std::borrow::Cow;

/// A text as both databases can keep it: Postgres refuses a zero byte, and what a task
/// prints must not make its end impossible to record.
pub(super) fn storable(text: &str) -> Cow<'_, str> {
    if text.contains('\0') {
        Cow::Owned(text.replace('\0', "\u{FFFD}"))
    } else {
        Cow::Borrowed(text)
    }
}
