//! `why`: the findings for each reason why a slot was launched or not. The rows come from a host on a simulated clock.
//! In the expected text an id is `<id>`, and the version of the time zone database is `<tzdata>`.

mod decisions;
mod not_launched;
mod retries;
mod test_host;
