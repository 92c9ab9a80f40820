"""Fakes for unit tests: call a task without a host.

    outcome = campanile.testing.call(package, "hello", {"name": "world"})
    assert outcome.output == {"message": "Hello, world!"}
"""

from __future__ import annotations

import datetime
import json
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from . import host
from .failures import Denied, Failure, Permanent
from .host import Fault, Reply, Request
from .package import Package
from .values import dumps

SLOT = datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc)


@dataclass
class FakeHost:
    """A host that records what a task does. `replies` has `"POST https://host/path"` and the reply to it.

    `buckets` are the granted buckets and their keys, `read_only_buckets` those that are granted for reading alone. After a
    call, `buckets` has the writes of its session, and `messages` its messages, if the call succeeded.
    """

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
    buckets: dict[str, dict[str, str | bytes]] = field(default_factory=dict)
    read_only_buckets: dict[str, dict[str, str | bytes]] = field(default_factory=dict)
    messages: list[Request] = field(default_factory=list)
    _session: dict[str, FakeBucket] = field(default_factory=dict, init=False, repr=False)
    _held_back: list[Request] = field(default_factory=list, init=False, repr=False)

    def __post_init__(self) -> None:
        # A call does not change what the test gave.
        self.buckets = {name: dict(entries) for name, entries in self.buckets.items()}

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

    def open_bucket(self, name: str) -> FakeBucket:
        if name in self.buckets:
            return FakeBucket(self.buckets[name], is_writable=True)
        if name in self.read_only_buckets:
            return FakeBucket(self.read_only_buckets[name], is_writable=False)
        raise Fault("no-such-store")

    def open_session_bucket(self, name: str) -> FakeBucket:
        if name not in self._session:
            granted = self.open_bucket(name)
            self._session[name] = FakeBucket(dict(granted.entries), is_writable=granted.is_writable)
        return self._session[name]

    def send_message(self, message: Request) -> str:
        address = urlsplit(message.url)
        if address.scheme not in ("http", "https") or not address.netloc:
            raise Permanent(f"sending the message {message.method} {message.url}: the address must begin with https:// or http://")
        self._held_back.append(message)
        return f"{self.execution_id}-{len(self._held_back)}"

    def end_call(self, *, succeeded: bool) -> None:
        """Keep the writes of the session and the messages, or drop them."""
        session, held_back = self._session, self._held_back
        self._session, self._held_back = {}, []
        if succeeded:
            self.buckets.update({name: bucket.entries for name, bucket in session.items() if bucket.is_writable})
            self.messages.extend(held_back)


class FakeBucket:
    """A bucket in memory."""

    def __init__(self, entries: dict[str, str | bytes], *, is_writable: bool):
        self.entries = entries
        self.is_writable = is_writable

    def get(self, key: str) -> bytes | None:
        value = self.entries.get(key)
        return value.encode() if isinstance(value, str) else value

    def set(self, key: str, value: bytes) -> None:
        self._writable()[key] = _content(value)

    def delete(self, key: str) -> None:
        self._writable().pop(key, None)

    def exists(self, key: str) -> bool:
        return key in self.entries

    def keys(self) -> list[str]:
        return list(self.entries)

    def increment(self, key: str, by: int) -> int:
        entries = self._writable()
        try:
            total = int(self.get(key) or b"0") + by
        except ValueError as error:
            raise Fault("other", "the value is not a decimal number") from error
        entries[key] = str(total)
        return total

    def get_many(self, keys: list[str]) -> list[bytes | None]:
        return [self.get(key) for key in keys]

    def set_many(self, entries: list[tuple[str, bytes]]) -> None:
        for key, value in entries:
            self.set(key, value)

    def delete_many(self, keys: list[str]) -> None:
        for key in keys:
            self.delete(key)

    def _writable(self) -> dict[str, str | bytes]:
        if not self.is_writable:
            raise Fault("access-denied")
        return self.entries


def _content(value: bytes) -> str | bytes:
    """Return a text as a test writes it, or bytes that are not text."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value


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
    succeeded = False
    try:
        completion = package.call(task, {**(context or {}), **reserved})
        # A host takes JSON: a value that JSON does not have raises here too.
        output, passed = (json.loads(dumps(value)) for value in (completion.output, completion.context))
        succeeded = True
    except Failure as failure:
        return Outcome(None, None, failure, fake)
    finally:
        fake.end_call(succeeded=succeeded)
        host.pop()
    return Outcome(output, passed, None, fake)


def _text(time: datetime.datetime) -> str:
    return time.astimezone(datetime.timezone.utc).isoformat().replace("+00:00", "Z")
