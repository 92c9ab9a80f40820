//! The work itself. It needs no host, so its tests run anywhere.

use serde::Deserialize;

/// This task's keys of the context. It ignores other keys: some are the host's.
#[derive(Debug, Deserialize, PartialEq)]
#[serde(default)]
pub struct Order {
    pub below: usize,
    pub rounds: u32,
    /// The folder of reports in the sandbox.
    pub report: Option<String>,
}

impl Default for Order {
    fn default() -> Order {
        Order {
            below: 1000,
            rounds: 1,
            report: None,
        }
    }
}

/// The sieve of Eratosthenes: one byte of memory for each number.
pub fn count_primes(below: usize) -> usize {
    let mut composite = vec![false; below];
    let mut primes = 0;
    for number in 2..below {
        if composite[number] {
            continue;
        }
        primes += 1;
        if let Some(square) = number.checked_mul(number) {
            for multiple in (square..below).step_by(number) {
                composite[multiple] = true;
            }
        }
    }
    primes
}

/// One name for each slot: a repeated run overwrites its report.
pub fn report_file(folder: &str, slot: &str) -> String {
    let folder = folder.trim_end_matches('/');
    format!("{folder}/primes-{}.json", slot.replace(':', "-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn primes_are_counted() {
        let counts = [0, 2, 3, 4, 10, 1000].map(count_primes);
        assert_eq!(counts, [0, 0, 1, 2, 4, 168]);
    }

    #[test]
    fn what_the_context_does_not_say_has_a_default() {
        let hosts_own = r#"{"execution_id": "…", "attempt": 1, "report": null}"#;
        assert_eq!(
            serde_json::from_str::<Order>(hosts_own).unwrap(),
            Order::default()
        );
    }

    #[test]
    fn a_context_of_the_wrong_shape_is_refused() {
        for context in [
            r#"{"below": "many"}"#,
            r#"{"below": -1}"#,
            r#"{"report": 7}"#,
        ] {
            assert!(serde_json::from_str::<Order>(context).is_err(), "{context}");
        }
    }

    #[test]
    fn a_slot_has_one_report_whatever_its_run() {
        let file = report_file("/reports/", "2026-11-21T02:00:00Z");
        assert_eq!(file, "/reports/primes-2026-11-21T02-00-00Z.json");
    }
}
