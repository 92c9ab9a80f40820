//! A URL and the expected response.

use std::time::{Duration, Instant};

use campanile_sdk::{Error, Result};
use serde::Deserialize;

use crate::{Get, ProbeResult};

/// The size of the part of a response that is searched, in bytes.
const BODY_BYTES_MAX: usize = 1 << 20;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Probe {
    url: String,
    /// By default, any status from 200 to 299.
    expect_status: Option<u16>,
    /// A text that the response must contain.
    contains: Option<String>,
    /// The limit for the whole response.
    #[serde(default = "ten_seconds")]
    timeout_ms: u64,
}

fn ten_seconds() -> u64 {
    10_000
}

impl Probe {
    /// Create a probe that expects a status from 200 to 299.
    pub fn new(url: String) -> Probe {
        Probe {
            url,
            expect_status: None,
            contains: None,
            timeout_ms: ten_seconds(),
        }
    }

    /// Request the URL and check the response.
    ///
    /// # Errors
    ///
    /// Permanent if the URL is invalid.
    pub fn request(&self, get: Get) -> Result<ProbeResult> {
        let start = Instant::now();
        let response = get(
            &self.url,
            Duration::from_millis(self.timeout_ms),
            BODY_BYTES_MAX,
        );
        let ms = u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX);
        let (status, error, denied) = match response {
            Ok(response) => (Some(response.status), self.mismatch(&response), false),
            Err(fetch::Failure::BadUrl(message)) => return Err(Error::permanent(message)),
            Err(failure) => {
                let denied = matches!(failure, fetch::Failure::Denied(_));
                (None, Some(failure.to_string()), denied)
            }
        };
        Ok(ProbeResult {
            url: self.url.clone(),
            status,
            ms,
            ok: error.is_none(),
            error,
            denied,
        })
    }

    /// Return why the response is not as expected, or `None` if it is.
    fn mismatch(&self, response: &fetch::Response) -> Option<String> {
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
        let searched = if response.truncated {
            format!("the first {BODY_BYTES_MAX} bytes of the response")
        } else {
            "the response".to_owned()
        };
        Some(format!("{url}: {text:?} is not in {searched}"))
    }
}

fn contains(body: &[u8], text: &[u8]) -> bool {
    text.is_empty() || body.windows(text.len()).any(|window| window == text)
}
