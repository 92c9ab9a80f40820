"""The run that a task is called in."""

from __future__ import annotations

import datetime
from typing import Any

from . import host


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
