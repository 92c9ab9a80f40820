//! The link with which a person who has just started a host at a terminal signs a browser in: as the local token does, once, and for a
//! few minutes.
//!
//! The host keeps a hash of its secret in memory, and nothing else of it. A restart ends the link.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use campanile_model::clock::Timestamp;
use campanile_model::ids::TokenHash;

use crate::token::is_same;

/// How long a link can be used.
const LASTS: Duration = Duration::from_secs(5 * 60);
/// The parameter of a link with its secret.
pub(crate) const ONCE: &str = "once";

/// The newest link of a host.
#[derive(Default)]
pub(crate) struct SignInLink(Mutex<Option<Offer>>);

struct Offer {
    hash: TokenHash,
    since: Timestamp,
    is_used: bool,
}

/// Why a link signs nobody in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkFault {
    /// It isn't the newest link of this host since its start.
    Unknown,
    Expired,
    Used,
}

/// Makes the links of a host.
#[derive(Clone)]
pub struct SignIn {
    /// The address of the pages, without a slash at its end.
    origin: String,
    link: Arc<SignInLink>,
}

impl SignIn {
    pub(crate) fn new(origin: &str, link: Arc<SignInLink>) -> SignIn {
        SignIn {
            origin: origin.to_owned(),
            link,
        }
    }

    /// Makes a link that can be used once, from `now` on for five minutes. A link made before it can't be used any more.
    pub fn offer(&self, now: Timestamp) -> String {
        format!("{}/login?{ONCE}={}", self.origin, self.link.offer(now))
    }
}

impl SignInLink {
    fn locked(&self) -> MutexGuard<'_, Option<Offer>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the secret of a new link: 256 random bits.
    fn offer(&self, now: Timestamp) -> String {
        let secret = format!(
            "{:032x}{:032x}",
            rand::random::<u128>(),
            rand::random::<u128>()
        );
        *self.locked() = Some(Offer {
            hash: TokenHash::of(secret.as_bytes()),
            since: now,
            is_used: false,
        });
        secret
    }

    /// Uses the link. A wrong secret leaves it as it is.
    pub(crate) fn redeem(&self, secret: &str, now: Timestamp) -> Result<(), LinkFault> {
        let mut offer = self.locked();
        let hash = TokenHash::of(secret.as_bytes());
        let offer = offer.as_mut();
        let offer = offer.filter(|offer| is_same(hash.as_str(), offer.hash.as_str()));
        let offer = offer.ok_or(LinkFault::Unknown)?;
        if offer.is_used {
            return Err(LinkFault::Used);
        }
        // A clock that was set back to before the start doesn't make it last longer.
        if now < offer.since || now.since(offer.since) >= LASTS {
            return Err(LinkFault::Expired);
        }
        offer.is_used = true;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::EPOCH.plus(Duration::from_secs(1_000 + seconds))
    }

    fn secret(link: &str) -> &str {
        link.strip_prefix("http://127.0.0.1:7979/login?once=")
            .unwrap()
    }

    fn offered() -> (Arc<SignInLink>, String) {
        let link = Arc::<SignInLink>::default();
        let sign_in = SignIn::new("http://127.0.0.1:7979", Arc::clone(&link));
        let address = sign_in.offer(at(0));
        (link, secret(&address).to_owned())
    }

    #[test]
    fn a_link_is_used_once() {
        let (link, secret) = offered();
        assert_eq!(secret.len(), 64);
        assert_eq!(link.redeem(&secret, at(1)), Ok(()));
        assert_eq!(link.redeem(&secret, at(2)), Err(LinkFault::Used));
    }

    #[test]
    fn a_link_lasts_five_minutes() {
        let (link, secret) = offered();
        assert_eq!(link.redeem(&secret, at(300)), Err(LinkFault::Expired));
        let before = at(0).minus(Duration::from_secs(1));
        assert_eq!(link.redeem(&secret, before), Err(LinkFault::Expired));
        assert_eq!(link.redeem(&secret, at(299)), Ok(()));
    }

    #[test]
    fn a_wrong_secret_uses_nothing_and_a_new_link_ends_the_one_before() {
        let (link, secret) = offered();
        for wrong in ["", &secret[1..], "x"] {
            assert_eq!(link.redeem(wrong, at(1)), Err(LinkFault::Unknown));
        }
        let other = link.offer(at(1));
        assert_ne!(other, secret);
        assert_eq!(link.redeem(&secret, at(1)), Err(LinkFault::Unknown));
        assert_eq!(link.redeem(&other, at(1)), Ok(()));
    }

    #[test]
    fn a_host_keeps_no_secret() {
        let (link, secret) = offered();
        let offer = link.locked();
        assert_ne!(offer.as_ref().unwrap().hash.as_str(), secret);
    }
}
