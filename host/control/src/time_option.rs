//! Times as options of a command.

use campanile_model::clock::{Clock, Timestamp};
use campanile_model::time_text;

/// Reads a time. Words such as `yesterday` count from this machine's clock. A time without an offset is in UTC.
///
/// # Errors
///
/// A sentence with the text and examples, when it is no time.
pub fn time(text: &str) -> Result<Timestamp, String> {
    time_text::read(text, Clock::system().now())
}
