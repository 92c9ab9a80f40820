//! `[policy]` of the configuration: which versions of packages a host runs.

use campanile_model::words;

use crate::signature::{self, PublicKey};

words! {
    /// Which new versions of packages wait for an approval.
    #[derive(Default)]
    Approval {
        /// A version that requests more than it is granted and more than the active version requests.
        #[default]
        Requests => "requests",
        /// Every version that no operator has approved, also the first one of a package.
        Always => "always",
        /// None, because a version runs only if its sidecar pins its digest.
        Pinned => "pinned",
    }
}

/// Which versions of packages a host runs. The default trusts all users who may write the plugins folder.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct VersionPolicy {
    pub approval: Approval,
    /// The keys whose signatures count.
    pub trusted_keys: Vec<PublicKey>,
    /// Whether a version runs only with a signature by a trusted key.
    pub require_signature: bool,
}

impl VersionPolicy {
    /// Returns the signature of `bytes` if a trusted key made it; `None` when none is needed.
    ///
    /// A signature that does not count is a warning, unless one is required.
    ///
    /// # Errors
    /// A sentence that says why the required signature does not count.
    pub fn check_signature(
        &self,
        name: &str,
        bytes: &[u8],
        signature: Option<Result<String, String>>,
    ) -> Result<Option<String>, String> {
        if self.trusted_keys.is_empty() && !self.require_signature {
            return Ok(None);
        }
        let verified = match signature {
            None if !self.require_signature => return Ok(None),
            None => Err(format!(
                "it has no signature, and `policy.require_signature` is true: sign it with `campanile package sign \
                 {name}.wasm`"
            )),
            Some(read) => read.and_then(|text| {
                signature::verify(bytes, &text, &self.trusted_keys)?;
                Ok(text)
            }),
        };
        match verified {
            Ok(text) => Ok(Some(text)),
            Err(why) if self.require_signature => Err(why),
            Err(why) => {
                tracing::warn!(package = name, "the signature does not count: {why}");
                Ok(None)
            }
        }
    }
}

#[cfg(test)]
mod tests;
