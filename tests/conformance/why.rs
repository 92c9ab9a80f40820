//! Why a slot was launched or not: a chain of findings for each reason, as it is read from the record of a host on a
//! simulated clock. Ids are shown as `<id>`, and the version of the time zone database as `<tzdata>`.

mod decisions;
mod moments;
mod stage;
