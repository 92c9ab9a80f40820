//! Granted variables, and `wasi:config/store`: the granted configuration and secrets.

use std::sync::Arc;

use wasmtime_wasi::WasiCtxBuilder;

use crate::bindings::wasi::config::store;
use crate::capability::shared::Shared;
use crate::grants::ENV_PREFIX;

/// Set the granted variables, with the secrets among them.
pub(crate) fn set_variables(wasi: &mut WasiCtxBuilder, shared: &Shared) {
    for (name, value) in &shared.call.grants.env {
        // Variables with this prefix are the host's own.
        if !name.starts_with(ENV_PREFIX) {
            wasi.env(name, value);
        }
    }
    for (variable, name) in &shared.call.grants.secret_env {
        if let Some(secret) = shared.call.secrets.get(name) {
            wasi.env(variable, secret.reveal());
        }
    }
}

impl store::Host for Arc<Shared> {
    fn get(&mut self, key: String) -> Result<Option<String>, store::Error> {
        if self.call.grants.secrets.contains(&key)
            && let Some(secret) = self.call.secrets.get(&key)
        {
            return Ok(Some(secret.reveal().to_owned()));
        }
        Ok(self.call.grants.config.get(&key).cloned())
    }

    /// Secrets are left out: a task gets one only by its name.
    fn get_all(&mut self) -> Result<Vec<(String, String)>, store::Error> {
        let pairs = self.call.grants.config.iter();
        Ok(pairs.map(|(k, v)| (k.clone(), v.clone())).collect())
    }
}
