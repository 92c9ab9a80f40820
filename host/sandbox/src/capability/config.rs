//! Granted variables, and `wasi:config/store`: the granted configuration and secrets.

use wasmtime_wasi::WasiCtxBuilder;

use crate::bindings::wasi::config::store;
use crate::capability::shared::Shared;
use crate::grants::ENV_PREFIX;

/// Set the granted variables, with the secrets among them.
pub(crate) fn set_variables(wasi: &mut WasiCtxBuilder, shared: &Shared) {
    for (name, value) in &shared.grants.env {
        // Variables with this prefix are the host's own.
        if !name.starts_with(ENV_PREFIX) {
            wasi.env(name, value);
        }
    }
    for (variable, name) in &shared.grants.secret_env {
        if let Some(secret) = shared.secrets.get(name) {
            wasi.env(variable, secret.reveal());
        }
    }
}

/// The configuration of one call.
pub(crate) struct Config<'a>(pub(crate) &'a Shared);

impl store::Host for Config<'_> {
    fn get(&mut self, key: String) -> Result<Option<String>, store::Error> {
        if self.0.grants.secrets.contains(&key)
            && let Some(secret) = self.0.secrets.get(&key)
        {
            return Ok(Some(secret.reveal().to_owned()));
        }
        Ok(self.0.grants.config.get(&key).cloned())
    }

    /// Secrets are left out: a task gets one only by its name.
    fn get_all(&mut self) -> Result<Vec<(String, String)>, store::Error> {
        let pairs = self.0.grants.config.iter();
        Ok(pairs.map(|(k, v)| (k.clone(), v.clone())).collect())
    }
}

/// Names [`Config`] for the linker.
pub(crate) struct HasConfig;

impl wasmtime::component::HasData for HasConfig {
    type Data<'a> = Config<'a>;
}
