//! One URL and what its answer must be.

use std::time::{Duration, Instant};

use campanile_sdk::{Error, Result};
use serde::Deserialize;

use crate::{Finding, Get};

/// As much of an answer as is searched, in bytes.
const BODY_BYTES_MAX: usize = 1 << 20;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Probe {
    url: String,
    /// Any status from 200 to 299 if not said.
    expect_status: Option<u16>,
    /// A text that must be in the answer.
    contains: Option<String>,
    /// For the whole answer.
    #[serde(default = "ten_seconds")]
    timeout_ms: u64,
}

fn ten_seconds() -> u64 {
    10_000
}

impl Probe {
    /// The URL must answer, and say that all is well.
    pub fn of(url: String) -> Probe {
        Probe {
            url,
            expect_status: None,
            contains: None,
            timeout_ms: ten_seconds(),
        }
    }

    /// Ask, and judge the answer.
    ///
    /// # Errors
    ///
    /// Permanent, when the URL is none.
    pub fn find(&self, get: Get) -> Result<Finding> {
        let begun = Instant::now();
        let answer = get(
            &self.url,
            Duration::from_millis(self.timeout_ms),
            BODY_BYTES_MAX,
        );
        let ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        let (status, error, denied) = match answer {
            Ok(response) => (Some(response.status), self.fault(&response), false),
            Err(fetch::Failure::BadUrl(message)) => return Err(Error::permanent(message)),
            Err(failure) => {
                let denied = matches!(failure, fetch::Failure::Denied(_));
                (None, Some(failure.to_string()), denied)
            }
        };
        Ok(Finding {
            url: self.url.clone(),
            status,
            ms,
            ok: error.is_none(),
            error,
            denied,
        })
    }

    /// What is wrong with the answer, if anything is.
    fn fault(&self, response: &fetch::Response) -> Option<String> {
        let (url, status) = (&self.url, response.status);
        match self.expect_status {
            Some(expected) if status != expected => {
                return Some(format!("{url}: status {status} instead of {expected}"));
            }
            None if !(200..300).contains(&status) => {
                return Some(format!("{url}: status {status}"));
            }
            Some(_) | None => {}
        }
        let text = self.contains.as_deref()?;
        if contains(&response.body, text.as_bytes()) {
            return None;
        }
        let where_looked = if response.truncated {
            format!("the first {BODY_BYTES_MAX} bytes of the answer")
        } else {
            "the answer".to_owned()
        };
        Some(format!("{url}: {text:?} is not in {where_looked}"))
    }
}

fn contains(body: &[u8], text: &[u8]) -> bool {
    text.is_empty() || body.windows(text.len()).any(|window| window == text)
}
