//! The host functions of `campanile:task/outbox`.

use std::sync::Arc;

use campanile_model::ids::MessageId;
use wasmtime::component::HasData;

use crate::bindings::campanile::task::outbox;
use crate::capability::outbox::check::{Refusal, check, refuse_secrets};
use crate::capability::outbox::message::OutboxMessage;
use crate::capability::shared::Shared;
use crate::limits::Resource;
use crate::uncommitted::Uncommitted;

/// A body of more bytes is searched for secrets apart from the guests' threads.
const SEARCHED_AT_ONCE_BYTES_MAX: usize = 64 << 10;

/// What the functions of the interface need of a call.
pub(crate) struct OutboxView<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) uncommitted: &'a mut Uncommitted,
}

impl HasData for OutboxView<'static> {
    type Data<'a> = OutboxView<'a>;
}

impl OutboxView<'_> {
    fn accept(&mut self, message: &OutboxMessage) -> Result<(), Refusal> {
        check(message, &self.shared.call.grants)?;
        if !self.shared.spend(Resource::HttpRequests, 1) {
            return Err(Refusal::Invalid(format!(
                "the task has made {} HTTP requests and messages, its limit; {}",
                self.shared.limit(Resource::HttpRequests),
                Resource::HttpRequests.raise()
            )));
        }
        let bytes = self.uncommitted.bytes().saturating_add(message.bytes());
        let bytes_max = self.shared.limit(Resource::Uncommitted);
        if bytes > bytes_max {
            return Err(Refusal::Invalid(format!(
                "the messages and the session of the call would have {bytes} bytes, and their limit is {bytes_max}; {}",
                Resource::Uncommitted.raise()
            )));
        }
        let kept = self.shared.kept.keep(message.bytes());
        kept.map_err(Refusal::Invalid)?;
        self.shared.record_peak(Resource::Uncommitted, bytes);
        Ok(())
    }
}

/// Refuse a message that holds a secret. A long search does not hold up a thread of the guests.
async fn search(message: OutboxMessage, shared: &Shared) -> Result<OutboxMessage, Refusal> {
    let secrets = Arc::clone(&shared.call.secrets);
    if secrets.is_empty() {
        return Ok(message);
    }
    let is_long = message.body.len() > SEARCHED_AT_ONCE_BYTES_MAX;
    let search = move || refuse_secrets(&message, &secrets).map(|()| message);
    let searched = if is_long {
        tokio::task::spawn_blocking(search)
            .await
            .unwrap_or_else(|error| {
                Err(format!(
                    "the host could not search the message for secrets: {error}"
                ))
            })
    } else {
        search()
    };
    searched.map_err(Refusal::Invalid)
}

impl outbox::Host for OutboxView<'_> {
    async fn send(
        &mut self,
        message: outbox::Message,
    ) -> wasmtime::Result<Result<String, outbox::Error>> {
        let call = &self.shared.call;
        let index = self.uncommitted.messages.len();
        let message = OutboxMessage {
            id: MessageId::of(call.facts.execution_id, &call.task, index as u64),
            method: message.method,
            url: message.url,
            headers: message.headers,
            body: message.body,
        };
        let accepted = self.accept(&message);
        let accepted = match accepted {
            Ok(()) => {
                let bytes = message.bytes();
                let searched = search(message, self.shared).await;
                searched.inspect_err(|_| self.shared.kept.release(bytes))
            }
            Err(refusal) => Err(refusal),
        };
        Ok(match accepted {
            Ok(message) => {
                let id = message.id.to_string();
                self.uncommitted.push(message);
                Ok(id)
            }
            Err(Refusal::Denied(why)) => {
                self.shared.deny(why);
                Err(outbox::Error::AccessDenied)
            }
            Err(Refusal::Invalid(why)) => Err(outbox::Error::Refused(why)),
        })
    }
}
