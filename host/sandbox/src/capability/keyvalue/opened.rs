//! What a guest's handle of an open bucket stands for.

use crate::grants::BucketGrant;

/// An open bucket of a guest.
#[derive(Clone, Debug)]
pub struct OpenBucket {
    pub(crate) grant: BucketGrant,
    /// Whether it was opened in the session of the call.
    pub(crate) in_session: bool,
}
