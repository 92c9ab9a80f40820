//! The compiled code that is loaded now: shared by the bytes of the file, and bounded over all files.
//!
//! Code is loaded when a call needs it and unloaded when other code needs its room, the least recently used first. Three
//! rules keep that fair:
//!
//! * One file may take at most half of the bound.
//! * Code is used only if it leaves some times its size of the bound to other code in use, and the largest code a half.
//!   Whatever large packages run, smaller ones find room.
//! * Code that was used a moment ago makes room only for code that was not loaded a moment ago. Packages that do not fit
//!   together thus take turns and do not unload each other at each call.

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

/// How many times its size the code that a call begins to use must leave to other code in use.
const LEFT_FACTOR: u64 = 8;
/// Code that was used or loaded within this time counts as recent.
const RECENT: Duration = Duration::from_secs(10);
/// How long a call waits for room before it fails.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// How often a waiting call looks whether other code is no longer recent.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// A package's file that was checked. Its compiled code is loaded when a call needs it, see [`Sandbox::hold`].
///
/// All artifacts of the same bytes share their code.
///
/// [`Sandbox::hold`]: crate::Sandbox::hold
#[derive(Clone)]
pub struct Artifact {
    /// The digest of the file, before any adaption.
    pub digest: ArtifactDigest,
    pub form: Form,
    /// What the compiled code takes of the host's memory while it is loaded.
    pub code_bytes: u64,
    pub(crate) place: Arc<CodePlace>,
}

/// All loaded code of a sandbox.
pub(crate) struct LoadedCode {
    bytes_max: u64,
    state: Mutex<State>,
    /// Notified when code is loaded, no longer in use, or unloaded.
    changed: Notify,
}

#[derive(Default)]
struct State {
    /// The sum of the entries with code or a load that runs.
    bytes: u64,
    entries: HashMap<ArtifactDigest, Entry>,
}

/// What is known of the code of a file for which there is an artifact.
struct Entry {
    place: Weak<CodePlace>,
    bytes: u64,
    code: CodeState,
    /// When a call began or ended to use it.
    used_at: Option<Instant>,
    loaded_at: Option<Instant>,
}

enum CodeState {
    Unloaded,
    Loading,
    Loaded { code: Arc<Code>, users: u32 },
}

/// The place of a file's code, shared by all its artifacts. The code is unloaded when the last of them is dropped.
pub(crate) struct CodePlace {
    digest: ArtifactDigest,
    loaded: Arc<LoadedCode>,
}

/// Loaded code in use. It stays loaded until this is dropped.
pub struct HeldCode {
    code: Arc<Code>,
    place: Arc<CodePlace>,
}

/// What is next for a call that needs code.
pub(crate) enum Next {
    Held(HeldCode),
    /// The code is to be loaded, and has room.
    Load(Room),
    /// There is no room now, or the code is being loaded.
    Wait,
}

/// Room for code that is to be loaded. It is given back unless the code is put into it.
pub(crate) struct Room {
    place: Arc<CodePlace>,
}

impl LoadedCode {
    /// Bound all code by `bytes_max`.
    pub(crate) fn new(bytes_max: u64) -> Arc<LoadedCode> {
        Arc::new(LoadedCode {
            bytes_max,
            state: Mutex::default(),
            changed: Notify::new(),
        })
    }

    /// Return the place of the file with this digest, whose code takes `bytes`.
    ///
    /// # Errors
    /// A sentence, when its code is too large ever to be loaded.
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

    /// Refuse code of one file that takes too many `bytes`.
    ///
    /// # Errors
    /// A sentence that says what to do.
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

    /// Return the bytes of all code that is loaded.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> u64 {
        self.state().bytes
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // The counts are right after each statement, even if a thread panicked.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CodePlace {
    /// Return the loaded code, or the room for it if it may be loaded at `now`.
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

    /// Wait for the loaded code, or for the room to load it.
    ///
    /// # Errors
    /// A sentence, when other code in use has left no room for a minute.
    pub(crate) async fn held_or_room(self: &Arc<Self>) -> Result<Result<HeldCode, Room>, Refusal> {
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

    /// Return the room for the code if nothing must be unloaded for it.
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
    /// Put the code here, and use it.
    pub(crate) fn fill(self, code: Code) -> HeldCode {
        let code = Arc::new(code);
        let place = Arc::clone(&self.place);
        let mut state = place.loaded.state();
        if let Some(entry) = state.entries.get_mut(&place.digest) {
            let before = entry.taken();
            // The loading process said how many bytes it takes. What is here counts.
            entry.bytes = code.bytes;
            entry.code = CodeState::Loaded {
                code: Arc::clone(&code),
                users: 1,
            };
            let bytes = entry.bytes;
            state.bytes = state.bytes - before + bytes;
        }
        drop(state);
        // Not the room any more: it is taken.
        drop(self);
        HeldCode { code, place }
    }
}

impl State {
    /// Whether the code of `entry`, which is not in use, may be used beside the code that is.
    fn may_use(&self, entry: &Entry, loaded: &LoadedCode) -> bool {
        let left = (loaded.bytes_max / 2).min(entry.bytes.saturating_mul(LEFT_FACTOR));
        let most = loaded.bytes_max.saturating_sub(entry.bytes + left);
        // When all other code is loaded and leaves so much, what is in use does too.
        if self.bytes - entry.taken() <= most {
            return true;
        }
        let in_use = self.entries.values().filter(|entry| !entry.is_idle());
        in_use.map(|entry| entry.bytes).sum::<u64>() <= most
    }

    /// Return which code is unloaded to make room for `bytes`; none when that would not suffice.
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

    /// Whether no call uses it, or loads it.
    fn is_idle(&self) -> bool {
        match self.code {
            CodeState::Unloaded => true,
            CodeState::Loading => false,
            CodeState::Loaded { users, .. } => users == 0,
        }
    }

    /// Return the bytes that it takes now.
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
        // Another place of the same file may have replaced this one.
        let is_this = |entry: &Entry| entry.place.strong_count() == 0;
        if state.entries.get(&self.digest).is_some_and(is_this) {
            state.unload(&self.digest);
            state.entries.remove(&self.digest);
        }
        drop(state);
        self.loaded.changed.notify_waiters();
    }
}
