"""The functions of the host, as the SDK calls them. `campanile.testing` has another implementation, for tests."""

from __future__ import annotations

import datetime
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True)
class Request:
    """A request to another system."""

    method: str
    url: str
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


@dataclass(frozen=True)
class Reply:
    """The reply to a request. The names of headers are in lower case."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


class OpenBucket(Protocol):
    """A bucket of the host. Each function raises a `Fault`."""

    def get(self, key: str) -> bytes | None: ...

    def set(self, key: str, value: bytes) -> None: ...

    def delete(self, key: str) -> None: ...

    def exists(self, key: str) -> bool: ...

    def keys(self) -> list[str]: ...

    def increment(self, key: str, by: int) -> int: ...

    def get_many(self, keys: list[str]) -> list[bytes | None]: ...

    def set_many(self, entries: list[tuple[str, bytes]]) -> None: ...

    def delete_many(self, keys: list[str]) -> None: ...


class Fault(Exception):
    """The reason why a bucket operation failed in the host: `no-such-store`, `access-denied` or `other`."""

    def __init__(self, kind: str, message: str = ""):
        super().__init__(message)
        self.kind = kind
        self.message = message


class Host(Protocol):
    """What a task can ask its host. The facts are those of the current run."""

    execution_id: str
    run_id: str
    task_name: str
    attempt: int
    is_recovery: bool
    scheduled_time: datetime.datetime
    original_scheduled_time: datetime.datetime
    deadline: datetime.datetime | None

    def cancel_requested(self) -> bool: ...

    def report_progress(self, percent: int | None, message: str) -> None: ...

    def log(self, level: str, context: str, message: str) -> None: ...

    def config(self, name: str) -> str | None: ...

    def send(self, request: Request) -> Reply:
        """Raises: `Denied`, `Retryable`."""
        ...

    def open_bucket(self, name: str) -> OpenBucket:
        """Raises: `Fault`."""
        ...

    def open_session_bucket(self, name: str) -> OpenBucket:
        """Raises: `Fault`."""
        ...

    def send_message(self, message: Request) -> str:
        """Return the id of the message. Raises: `Denied`, `Permanent`."""
        ...


_current: list[Host] = []


def connect() -> Any:
    """Return the module for the host inside WebAssembly, or none outside. Call this while the package is built."""
    try:
        from . import wasi
    except ModuleNotFoundError as error:
        if error.name not in ("componentize_py_types", "wit_world"):
            raise
        return None
    if not _current:
        _current.append(wasi.WasiHost())
    return wasi


def current() -> Host:
    """Return the host of the current call: a fake one in a test, and the real one inside WebAssembly."""
    if not _current:
        raise RuntimeError("no host is here: call the task with `campanile.testing.call`, or build it with componentize-py")
    return _current[-1]


def push(host: Host) -> None:
    _current.append(host)


def pop() -> None:
    _current.pop()
