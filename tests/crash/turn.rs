//! How many sites there are at once.

use std::sync::{Condvar, Mutex, PoisonError};

/// The sites at once for each core. A site mostly waits, but its hosts launch dozens of times a second: with many more of them,
/// a host gets too little of a busy machine to renew its leases.
const SITES_OF_CORE: usize = 3;

static SITES: Mutex<usize> = Mutex::new(0);
static SITE_ENDED: Condvar = Condvar::new();

/// The turn of a site. The next one begins when it's dropped.
pub struct Turn;

impl Turn {
    /// Waits until fewer sites than the machine can carry are left.
    pub fn wait() -> Turn {
        let most = SITES_OF_CORE * std::thread::available_parallelism().map_or(1, usize::from);
        let sites = SITES.lock().unwrap_or_else(PoisonError::into_inner);
        let sites = SITE_ENDED.wait_while(sites, |sites| *sites >= most);
        *sites.unwrap_or_else(PoisonError::into_inner) += 1;
        Turn
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        *SITES.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        SITE_ENDED.notify_one();
    }
}
