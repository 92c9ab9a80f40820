//! Parsing times given as command-line options.

use campanile_model::clock::{Clock, Timestamp};
use campanile_model::time_text;

/// Parses a time, taking words such as `yesterday` relative to this machine's clock, and UTC when missing an offset.
///
/// # Errors
///
/// Returns a sentence quoting the text and giving examples.
pub fn time(text: &str) -> Result<Timestamp, String> {
    time_text::read(text, Clock::system().now())
}
