"""Fakes for unit tests: call a task without a host.

    outcome = campanile.testing.call(package, "hello", {"name": "world"})
    assert outcome.output == {"message": "Hello, world!"}
"""

from __future__ import annotations

import datetime
import json
from dataclasses import dataclass, field
from typing import Any

from . import host
from .failures import Denied, Failure
from .host import Reply, Request
from .package import Package, dumps

SLOT = datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc)


@dataclass
class FakeHost:
    """A host that records what a task does. `replies` has `"POST https://host/path"` and the reply to it."""

    replies: dict[str, Reply | Failure] = field(default_factory=dict)
    values: dict[str, str] = field(default_factory=dict)
    task_name: str = "task"
    execution_id: str = "0197a000-0000-7000-8000-000000000001"
    run_id: str = "0197a000-0000-7000-8000-000000000002"
    attempt: int = 1
    is_recovery: bool = False
    scheduled_time: datetime.datetime = SLOT
    original_scheduled_time: datetime.datetime = SLOT
    deadline: datetime.datetime | None = None
    cancelled: bool = False
    logs: list[tuple[str, str]] = field(default_factory=list)
    progress: list[tuple[int | None, str]] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)

    def cancel_requested(self) -> bool:
        return self.cancelled

    def report_progress(self, percent: int | None, message: str) -> None:
        self.progress.append((percent, message))

    def log(self, level: str, context: str, message: str) -> None:
        self.logs.append((level, f"{context}: {message}" if context else message))

    def config(self, name: str) -> str | None:
        return self.values.get(name)

    def send(self, request: Request) -> Reply:
        reply = self.replies.get(f"{request.method} {request.url}")
        if reply is None:
            raise Denied(f"{request.method} {request.url} is not granted: the test has no reply to it")
        self.requests.append(request)
        if isinstance(reply, Failure):
            raise reply
        return reply


@dataclass(frozen=True)
class Outcome:
    """How a call ended: its output and the keys for dependent tasks, or its failure; and what the host saw."""

    output: Any
    context: dict[str, Any] | None
    failure: Failure | None
    host: FakeHost


def reply(status: int = 200, *, json: Any = None, body: bytes = b"", headers: dict[str, str] | None = None) -> Reply:
    """Return a reply for `FakeHost.replies`."""
    content = body if json is None else dumps(json).encode()
    return Reply(status, {name.lower(): value for name, value in (headers or {}).items()}, content)


def call(package: Package, task: str, context: dict[str, Any] | None = None, **facts: Any) -> Outcome:
    """Call a task with a fake host. `facts` are fields of `FakeHost`. A bug of the task raises, as it does in a host."""
    fake = FakeHost(**{"task_name": task, **facts})
    reserved = {
        "execution_id": fake.execution_id,
        "attempt": fake.attempt,
        "is_recovery": fake.is_recovery,
        "original_scheduled_time": _text(fake.original_scheduled_time),
        "scheduled_time": _text(fake.scheduled_time),
    }
    host.push(fake)
    try:
        completion = package.call(task, {**(context or {}), **reserved})
    except Failure as failure:
        return Outcome(None, None, failure, fake)
    finally:
        host.pop()
    # A host takes JSON: a value that JSON does not have raises here too.
    output, passed = (json.loads(dumps(value)) for value in (completion.output, completion.context))
    return Outcome(output, passed, None, fake)


def _text(time: datetime.datetime) -> str:
    return time.astimezone(datetime.timezone.utc).isoformat().replace("+00:00", "Z")
