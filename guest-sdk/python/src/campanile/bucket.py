"""Buckets: keys and values that a package keeps from one run to the next, in the host's database."""

from __future__ import annotations

import json
from typing import Any, Callable, Iterable, TypeVar

from . import host
from .failures import Denied, Failure, Permanent, Retryable
from .values import dumps

Value = TypeVar("Value")


class Bucket:
    """An open bucket: `run.bucket(name)`, or `run.session_bucket(name)`.

    Raises: `Denied` if the grant does not allow a call, and `Retryable` if the host could not do it.
    """

    def __init__(self, name: str, open: Callable[[str], host.OpenBucket]):
        self.name = name
        self._open = self._explained("opening a bucket", lambda: open(name))

    def get(self, key: str) -> bytes | None:
        """Return the bytes under `key`; none for an absent key."""
        return self._in(f"reading `{key}`", lambda: self._open.get(key))

    def set(self, key: str, value: str | bytes) -> None:
        """Store a text or bytes under `key`, and replace an earlier value."""
        self._in(f"writing `{key}`", lambda: self._open.set(key, _bytes(value)))

    def get_json(self, key: str, default: Any = None) -> Any:
        """Return the value under `key`, read from JSON; `default` for an absent key. Raises: `Permanent` if it is not JSON."""
        value = self.get(key)
        if value is None:
            return default
        try:
            return json.loads(value)
        except ValueError as error:
            message = f"the value under `{key}` in the bucket `{self.name}` cannot be read: {error}"
            raise Permanent(message) from error

    def set_json(self, key: str, value: Any) -> None:
        """Store `value` as JSON; dataclasses become objects."""
        self.set(key, dumps(value))

    def delete(self, key: str) -> None:
        """Delete `key`. An absent key is ignored."""
        self._in(f"deleting `{key}`", lambda: self._open.delete(key))

    def exists(self, key: str) -> bool:
        return self._in(f"checking for `{key}`", lambda: self._open.exists(key))

    def keys(self) -> list[str]:
        """Return all keys, in the order in which they were first set."""
        return self._in("listing the keys", lambda: self._open.keys())

    def increment(self, key: str, by: int = 1) -> int:
        """Add to the number under `key`, and return the sum. An absent key counts as 0."""
        return self._in(f"incrementing `{key}`", lambda: self._open.increment(key, by))

    def get_many(self, keys: list[str]) -> list[bytes | None]:
        """Return the bytes under each key, in their order. One call takes 1000 keys."""
        return self._in(f"reading {len(keys)} keys", lambda: self._open.get_many(keys))

    def set_many(self, entries: dict[str, str | bytes] | Iterable[tuple[str, str | bytes]]) -> None:
        """Store all entries, or none of them if there is an error. One call takes 1000 entries."""
        pairs = entries.items() if isinstance(entries, dict) else entries
        written = [(key, _bytes(value)) for key, value in pairs]
        self._in(f"writing {len(written)} keys", lambda: self._open.set_many(written))

    def delete_many(self, keys: list[str]) -> None:
        """Delete all keys, or none of them if there is an error. One call takes 1000 keys."""
        self._in(f"deleting {len(keys)} keys", lambda: self._open.delete_many(keys))

    def _in(self, operation: str, call: Callable[[], Value]) -> Value:
        return self._explained(f"{operation} in the bucket `{self.name}`", call)

    def _explained(self, operation: str, call: Callable[[], Value]) -> Value:
        try:
            return call()
        except host.Fault as fault:
            raise _failure(fault, self.name, operation) from fault


def _failure(fault: host.Fault, name: str, operation: str) -> Failure:
    if fault.kind == "no-such-store":
        return Denied(
            f"{operation}: the bucket `{name}` is not granted; the operator grants it with "
            f'`[[grants.keyvalue]] bucket = "{name}"` in the package\'s sidecar file'
        )
    if fault.kind == "access-denied":
        return Denied(
            f"{operation}: the bucket's grant does not allow writing; the operator allows it with "
            "`access = \"write\"` in the bucket's `[[grants.keyvalue]]` in the package's sidecar file"
        )
    return Retryable(f"{operation}: {fault.message}")


def _bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)
