//! Compiled code in memory: shared between identical files, with one bound over all of them.
//!
//! Code is loaded on demand, evicting the least recently used code when memory runs out. Three rules keep that fair:
//!
//! * One file may take at most half of the bound.
//! * Using code must leave room for other code in use: eight times its own size, capped at half the bound. However many large
//!   packages are running, smaller ones still fit.
//! * Recently used code is only evicted for code that hasn't been loaded recently. Packages too large to fit together take
//!   turns instead of evicting each other on every call.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use campanile_model::ids::ArtifactDigest;
use campanile_model::text::{size_rounded, size_text};
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::load::artifact::Code;
use crate::load::recognise::Form;
use crate::load::refusal::Refusal;

/// Room to leave for other code in use, as a multiple of the size of the code about to be used.
const LEFT_FACTOR: u64 = 8;
/// How long code counts as recently used or loaded.
const RECENT: Duration = Duration::from_secs(10);
/// How long a call waits for room before failing.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// How often a waiting call checks whether other code has stopped counting as recent.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// A checked package file. Its compiled code is loaded on demand, see [`Sandbox::hold`].
///
/// Artifacts with the same bytes share their code.
///
/// [`Sandbox::hold`]: crate::Sandbox::hold
#[derive(Clone)]
pub struct Artifact {
    /// The digest of the file, before any adaption.
    pub digest: ArtifactDigest,
    pub form: Form,
    /// Memory taken by the compiled code while it's loaded.
    pub code_bytes: u64,
    pub(crate) place: Arc<CodePlace>,
}

/// All loaded code of a sandbox.
pub(crate) struct LoadedCode {
    bytes_max: u64,
    state: Mutex<State>,
    /// Notified when code is loaded, released or unloaded.
    changed: Notify,
}

#[derive(Default)]
struct State {
    /// Total size of the entries that are loaded or loading.
    bytes: u64,
    entries: HashMap<ArtifactDigest, Entry>,
}

/// The code of a file with at least one live artifact.
struct Entry {
    place: Weak<CodePlace>,
    bytes: u64,
    code: CodeState,
    /// When a call last started or finished using it.
    used_at: Option<Instant>,
    loaded_at: Option<Instant>,
}

enum CodeState {
    Unloaded,
    Loading,
    Loaded { code: Arc<Code>, users: u32 },
}

/// A file's slot among the loaded code, shared by its artifacts. Dropping the last one unloads the code.
pub(crate) struct CodePlace {
    digest: ArtifactDigest,
    loaded: Arc<LoadedCode>,
}

/// Loaded code in use, pinned in memory until this is dropped.
pub struct HeldCode {
    code: Arc<Code>,
    place: Arc<CodePlace>,
}

/// The next step for a call that needs code.
pub(crate) enum Next {
    Held(HeldCode),
    /// Room is reserved: load the code into it.
    Load(Room),
    /// There's no room yet, or another call is loading the code.
    Wait,
}

/// Room reserved for loading code, given back on drop unless it was filled.
pub(crate) struct Room {
    place: Arc<CodePlace>,
}

impl LoadedCode {
    /// Starts with no code loaded, bounded by `bytes_max`.
    pub(crate) fn new(bytes_max: u64) -> Arc<LoadedCode> {
        Arc::new(LoadedCode {
            bytes_max,
            state: Mutex::default(),
            changed: Notify::new(),
        })
    }

    /// Returns the slot for the file with this digest, whose code takes `bytes`.
    ///
    /// # Errors
    /// Returns a sentence if the code is too large ever to load.
    pub(crate) fn place(
        self: &Arc<Self>,
        digest: &ArtifactDigest,
        bytes: u64,
    ) -> Result<Arc<CodePlace>, Refusal> {
        self.check(bytes)?;
        let mut state = self.state();
        let known = state.entries.get(digest);
        if let Some(place) = known.and_then(|entry| entry.place.upgrade()) {
            return Ok(place);
        }
        let place = Arc::new(CodePlace {
            digest: digest.clone(),
            loaded: Arc::clone(self),
        });
        let entry = Entry {
            place: Arc::downgrade(&place),
            bytes,
            code: CodeState::Unloaded,
            used_at: None,
            loaded_at: None,
        };
        if let Some(former) = state.entries.insert(digest.clone(), entry) {
            state.bytes -= former.taken();
        }
        Ok(place)
    }

    /// Refuses a file whose code takes more `bytes` than one file may.
    ///
    /// # Errors
    /// Returns a sentence saying what to do about it.
    pub(crate) fn check(&self, bytes: u64) -> Result<(), Refusal> {
        let most = self.bytes_max / 2;
        if bytes <= most {
            return Ok(());
        }
        Err(Refusal::new(format!(
            "its compiled code and data take {} of memory and may take {}, half of `packages.loaded_max`; \
             build a smaller package, or raise that",
            size_rounded(bytes),
            size_rounded(most),
        )))
    }

    /// Returns the total size of the loaded code, in bytes.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> u64 {
        self.state().bytes
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every statement leaves the counts consistent, so a poisoned lock is fine.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CodePlace {
    /// Returns the code if it's loaded, or room for loading it if `now` allows that.
    pub(crate) fn next(self: &Arc<Self>, now: Instant) -> Next {
        let mut state = self.loaded.state();
        let Some(entry) = state.entries.get(&self.digest) else {
            return Next::Wait;
        };
        if matches!(entry.code, CodeState::Loading)
            || entry.is_idle() && !state.may_use(entry, &self.loaded)
        {
            return Next::Wait;
        }
        let is_due = entry.loaded_at.is_none_or(|at| now - at >= RECENT);
        if !entry.is_loaded() {
            let Some(unloaded) = state.unloaded_for(entry.bytes, is_due, now, &self.loaded) else {
                return Next::Wait;
            };
            for digest in unloaded {
                state.unload(&digest);
            }
        }
        let Some(entry) = state.entries.get_mut(&self.digest) else {
            return Next::Wait;
        };
        entry.used_at = Some(now);
        if let CodeState::Loaded { code, users } = &mut entry.code {
            *users += 1;
            return Next::Held(HeldCode {
                code: Arc::clone(code),
                place: Arc::clone(self),
            });
        }
        entry.code = CodeState::Loading;
        entry.loaded_at = Some(now);
        let bytes = entry.bytes;
        state.bytes += bytes;
        Next::Load(Room {
            place: Arc::clone(self),
        })
    }

    /// Waits for the code, or for room to load it.
    ///
    /// # Errors
    /// Returns a sentence if code in use has left no room for a minute.
    pub(crate) async fn held_or_room(self: &Arc<Self>) -> Result<Result<HeldCode, Room>, Refusal> {
        match self.next(Instant::now()) {
            Next::Held(held) => Ok(Ok(held)),
            Next::Load(room) => Ok(Err(room)),
            Next::Wait => Box::pin(self.wait_for_room()).await,
        }
    }

    async fn wait_for_room(self: &Arc<Self>) -> Result<Result<HeldCode, Room>, Refusal> {
        let begun = Instant::now();
        loop {
            let changed = self.loaded.changed.notified();
            let mut changed = std::pin::pin!(changed);
            changed.as_mut().enable();
            match self.next(Instant::now()) {
                Next::Held(held) => return Ok(Ok(held)),
                Next::Load(room) => return Ok(Err(room)),
                Next::Wait if begun.elapsed() >= WAIT_MAX => return Err(self.no_room()),
                Next::Wait => drop(timeout(LOOK_AGAIN, changed).await),
            }
        }
    }

    /// Returns room for the code if it fits without evicting anything.
    pub(crate) fn free_room(self: &Arc<Self>) -> Option<Room> {
        let is_free = {
            let state = self.loaded.state();
            let entry = state.entries.get(&self.digest)?;
            let after = state.bytes.saturating_add(entry.bytes);
            !entry.is_loaded() && after <= self.loaded.bytes_max
        };
        match is_free.then(|| self.next(Instant::now()))? {
            Next::Load(room) => Some(room),
            _ => None,
        }
    }

    fn no_room(&self) -> Refusal {
        let most = size_text(self.loaded.bytes_max);
        Refusal::new(format!(
            "there is no room for its code beside that of the packages that run now; \
             raise `packages.loaded_max` ({most}), or let fewer large packages run at the same time"
        ))
    }
}

impl Room {
    /// Loads `code` into this room, and starts using it.
    pub(crate) fn fill(self, code: Code) -> HeldCode {
        let code = Arc::new(code);
        let place = Arc::clone(&self.place);
        let mut state = place.loaded.state();
        if let Some(entry) = state.entries.get_mut(&place.digest) {
            let before = entry.taken();
            // `entry.bytes` came from the process that compiled the code; this is the actual size.
            entry.bytes = code.bytes;
            entry.code = CodeState::Loaded {
                code: Arc::clone(&code),
                users: 1,
            };
            let bytes = entry.bytes;
            state.bytes = state.bytes - before + bytes;
        }
        drop(state);
        // Filled by now, so dropping the room gives nothing back.
        drop(self);
        HeldCode { code, place }
    }
}

impl State {
    /// Whether the idle code of `entry` may join the code in use.
    fn may_use(&self, entry: &Entry, loaded: &LoadedCode) -> bool {
        let left = (loaded.bytes_max / 2).min(entry.bytes.saturating_mul(LEFT_FACTOR));
        let most = loaded.bytes_max.saturating_sub(entry.bytes + left);
        // Code in use is at most all the loaded code, which is quicker to check.
        if self.bytes - entry.taken() <= most {
            return true;
        }
        let in_use = self.entries.values().filter(|entry| !entry.is_idle());
        in_use.map(|entry| entry.bytes).sum::<u64>() <= most
    }

    /// Returns the code to evict so that `bytes` fit, or none if evicting isn't enough.
    fn unloaded_for(
        &self,
        bytes: u64,
        is_due: bool,
        now: Instant,
        loaded: &LoadedCode,
    ) -> Option<Vec<ArtifactDigest>> {
        let most = loaded.bytes_max.saturating_sub(bytes);
        let is_old = |entry: &Entry| entry.used_at.is_none_or(|at| now - at >= RECENT);
        let idle = self
            .entries
            .iter()
            .filter(|(_, entry)| entry.is_loaded() && entry.is_idle() && (is_due || is_old(entry)));
        let mut idle: Vec<_> = idle.collect();
        idle.sort_by_key(|(_, entry)| entry.used_at);
        let (mut left, mut unloaded) = (self.bytes, Vec::new());
        for (digest, entry) in idle {
            if left <= most {
                break;
            }
            left -= entry.bytes;
            unloaded.push(digest.clone());
        }
        (left <= most).then_some(unloaded)
    }

    fn unload(&mut self, digest: &ArtifactDigest) {
        if let Some(entry) = self.entries.get_mut(digest) {
            let bytes = entry.taken();
            entry.code = CodeState::Unloaded;
            self.bytes -= bytes;
        }
    }
}

impl Entry {
    fn is_loaded(&self) -> bool {
        matches!(self.code, CodeState::Loaded { .. })
    }

    /// Whether no call is using or loading it.
    fn is_idle(&self) -> bool {
        match self.code {
            CodeState::Unloaded => true,
            CodeState::Loading => false,
            CodeState::Loaded { users, .. } => users == 0,
        }
    }

    /// Returns its current size in memory, in bytes.
    fn taken(&self) -> u64 {
        match self.code {
            CodeState::Unloaded => 0,
            CodeState::Loading | CodeState::Loaded { .. } => self.bytes,
        }
    }
}

impl HeldCode {
    pub(crate) fn code(&self) -> &Code {
        &self.code
    }
}

impl Drop for HeldCode {
    fn drop(&mut self) {
        let mut state = self.place.loaded.state();
        if let Some(entry) = state.entries.get_mut(&self.place.digest) {
            entry.used_at = Some(Instant::now());
            if let CodeState::Loaded { users, .. } = &mut entry.code {
                *users = users.saturating_sub(1);
            }
        }
        drop(state);
        self.place.loaded.changed.notify_waiters();
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let mut state = self.place.loaded.state();
        let entry = state.entries.get(&self.place.digest);
        if entry.is_some_and(|entry| matches!(entry.code, CodeState::Loading)) {
            state.unload(&self.place.digest);
        }
        drop(state);
        self.place.loaded.changed.notify_waiters();
    }
}

impl Drop for CodePlace {
    fn drop(&mut self) {
        let mut state = self.loaded.state();
        // A new slot for the same file may have replaced this one.
        let is_this = |entry: &Entry| entry.place.strong_count() == 0;
        if state.entries.get(&self.digest).is_some_and(is_this) {
            state.unload(&self.digest);
            state.entries.remove(&self.digest);
        }
        drop(state);
        self.loaded.changed.notify_waiters();
    }
}
