//! The task's logic. It needs no host, so its tests run natively.

use serde::Deserialize;

/// The task's keys of the context. Other keys are ignored, because the host sets some.
#[derive(Debug, Deserialize, PartialEq)]
#[serde(default)]
pub struct Params {
    pub below: usize,
    pub rounds: u32,
    /// The folder of reports in the sandbox.
    pub report: Option<String>,
}

impl Default for Params {
    fn default() -> Params {
        Params {
            below: 1000,
            rounds: 1,
            report: None,
        }
    }
}

/// Count the primes with the sieve of Eratosthenes. It needs one byte of memory for each number.
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

/// Return the file name of a slot's report. A repeated run overwrites the report.
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
    fn absent_keys_have_defaults() {
        let context = r#"{"execution_id": "…", "attempt": 1, "report": null}"#;
        assert_eq!(
            serde_json::from_str::<Params>(context).unwrap(),
            Params::default()
        );
    }

    #[test]
    fn an_invalid_context_is_an_error() {
        for context in [
            r#"{"below": "many"}"#,
            r#"{"below": -1}"#,
            r#"{"report": 7}"#,
        ] {
            assert!(
                serde_json::from_str::<Params>(context).is_err(),
                "{context}"
            );
        }
    }

    #[test]
    fn the_report_is_named_after_the_slot() {
        let file = report_file("/reports/", "2026-11-21T02:00:00Z");
        assert_eq!(file, "/reports/primes-2026-11-21T02-00-00Z.json");
    }
}
