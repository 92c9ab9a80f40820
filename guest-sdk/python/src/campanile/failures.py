"""The failures that a task can raise. Any other exception is a bug: its traceback is recorded, and the call ends."""

from __future__ import annotations

import json
from typing import Any


class Failure(Exception):
    """A failure with a message for the person who reads it.

    `retry_after` is the least time before the next attempt, in seconds. `details` is any JSON value.
    """

    retryable = True
    kind: str | None = None

    def __init__(self, message: str, *, retry_after: float | None = None, details: Any = None):
        super().__init__(message)
        self.message = message
        self.retry_after = retry_after
        self.details = details

    def details_json(self) -> str | None:
        """Return the details as JSON, with the kind of the failure."""
        details = self.details
        if self.kind is not None:
            more = details if isinstance(details, dict) else {} if details is None else {"details": details}
            details = {"kind": self.kind, **more}
        return None if details is None else json.dumps(details)


class Retryable(Failure):
    """The same call may succeed later. The host retries it, with increasing pauses."""


class Permanent(Failure):
    """A retry cannot help. The host does not retry the call."""

    retryable = False


class Denied(Permanent):
    """The sidecar does not grant something that the task needs."""

    kind = "denied"
