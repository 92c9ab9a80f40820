//! The bucket behind a guest's handle.

use crate::grants::BucketGrant;

/// An open bucket of a guest.
#[derive(Clone, Debug)]
pub struct OpenBucket {
    pub(crate) grant: BucketGrant,
    /// Whether it was opened in the session of the call.
    pub(crate) in_session: bool,
}
