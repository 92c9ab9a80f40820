"""The run that a task is called in."""

from __future__ import annotations

import datetime
from typing import Any

from . import host
from .bucket import Bucket
from .http import body_of


class Run:
    """Facts about the current run, its log, and its progress."""

    def __init__(self, context: dict[str, Any]):
        #: The whole context, with the keys that the host sets.
        self.context = context

    @property
    def execution_id(self) -> str:
        """The id of the launch. It is the same for every run of one slot: use it as an idempotency key."""
        return host.current().execution_id

    @property
    def run_id(self) -> str:
        """The id of this run. The new run of a recovered launch has a new id."""
        return host.current().run_id

    @property
    def task_name(self) -> str:
        return host.current().task_name

    @property
    def attempt(self) -> int:
        """The number of this call of the task for this launch, from 1."""
        return host.current().attempt

    @property
    def is_recovery(self) -> bool:
        """Whether an earlier run was lost with its host. Some of its effects may have happened."""
        return host.current().is_recovery

    @property
    def scheduled_time(self) -> datetime.datetime:
        """The time at which the host should start this run: the slot plus jitter, in UTC."""
        return host.current().scheduled_time

    @property
    def original_scheduled_time(self) -> datetime.datetime:
        """The slot, in UTC. It is the same for every run of a launch, however late the run is."""
        return host.current().original_scheduled_time

    @property
    def slot(self) -> str:
        """The slot as the host writes it, such as `2026-11-21T02:00:00Z`."""
        return self.context["original_scheduled_time"]

    @property
    def last_result(self) -> Any:
        """The output of the last run that succeeded; none before the first."""
        return self.context.get("last_result")

    @property
    def deadline(self) -> datetime.datetime | None:
        """The time at which the host stops this call, in UTC."""
        return host.current().deadline

    @property
    def cancel_requested(self) -> bool:
        """Whether this run was asked to stop. The host stops it at the deadline in any case."""
        return host.current().cancel_requested()

    def config(self, name: str) -> str | None:
        """Return the value of a configuration key or a secret that the sidecar grants; none without a grant."""
        return host.current().config(name)

    def bucket(self, name: str) -> Bucket:
        """Open a bucket that the sidecar grants. What a call writes stays, even if the task fails later.

        Raises: `Denied` without a grant.
        """
        return Bucket(name, host.current().open_bucket)

    def session_bucket(self, name: str) -> Bucket:
        """Open a bucket in the session of this call: what it writes is kept if and only if the call succeeds.

        The host commits the session together with the success of the call. Reads through this bucket see the writes of
        the session. If another call has changed a value that the session read, this call fails and is retried.

        Raises: `Denied` without a grant.
        """
        return Bucket(name, host.current().open_session_bucket)

    def send(
        self,
        url: str,
        *,
        method: str = "POST",
        json: Any = None,
        body: bytes | str | None = None,
        headers: dict[str, str] | None = None,
    ) -> str:
        """Hand over a message: the host delivers it if and only if this call succeeds. Return the message's id.

        Each delivery has the header `Idempotency-Key` with the id. A retry or a recovery of the call sends the same ids in
        the same order. `{secret:NAME}` in the value of a header stands for a granted secret.

        Raises: `Denied` without a grant for the address, `Permanent` if the message is not valid.
        """
        content, sent = body_of(json, body, headers)
        return host.current().send_message(host.Request(method, url, sent, content))

    def progress(self, percent: int | None, message: str = "") -> None:
        """Report the progress, from 0 to 100 percent if it is known."""
        host.current().report_progress(percent, message)

    def debug(self, message: str) -> None:
        host.current().log("debug", "", message)

    def info(self, message: str) -> None:
        host.current().log("info", "", message)

    def warn(self, message: str) -> None:
        host.current().log("warn", "", message)

    def error(self, message: str) -> None:
        host.current().log("error", "", message)
