"""HTTP in one line: `campanile.http.post(url, json={...})`.

The sidecar of the package grants the address. A reply of 5xx or 429, or no reply, is `Retryable`; any other reply that
is not 2xx is `Permanent`; a request without a grant is `Denied`. With `check=False`, every reply is returned.
"""

from __future__ import annotations

import json as _json
from dataclasses import dataclass
from typing import Any

from . import host
from .failures import Permanent, Retryable


@dataclass(frozen=True)
class Response:
    """A reply. The names of headers are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300

    @property
    def text(self) -> str:
        return self.body.decode("utf-8", "replace")

    def json(self) -> Any:
        try:
            return _json.loads(self.body)
        except ValueError as error:
            raise Retryable(f"the reply is not JSON: {error}") from error


def request(
    method: str,
    url: str,
    *,
    json: Any = None,
    body: bytes | str | None = None,
    headers: dict[str, str] | None = None,
    idempotency_key: str | None = None,
    check: bool = True,
) -> Response:
    """Send one request and wait for its reply. `json` is the body as JSON; give it or `body`."""
    content, sent = body_of(json, body, headers)
    if idempotency_key is not None:
        sent["idempotency-key"] = idempotency_key
    reply = host.current().send(host.Request(method, url, sent, content))
    response = Response(reply.status, reply.headers, reply.body)
    if check and not response.ok:
        message = f"{method} {url} responded with {response.status}"
        if response.status >= 500 or response.status == 429:
            raise Retryable(message, retry_after=_seconds(response.headers.get("retry-after")))
        raise Permanent(message)
    return response


def body_of(json: Any, body: bytes | str | None, headers: dict[str, str] | None) -> tuple[bytes, dict[str, str]]:
    """Return the body and the headers of a request. The names of headers are in lower case."""
    if json is not None and body is not None:
        raise ValueError("give `json` or `body`, not both")
    sent = {name.lower(): value for name, value in (headers or {}).items()}
    if json is not None:
        body = _json.dumps(json)
        sent.setdefault("content-type", "application/json")
    return body.encode() if isinstance(body, str) else body or b"", sent


def _seconds(header: str | None) -> float | None:
    """Return the seconds of a `retry-after`; none for a date, so that the host's backoff applies."""
    return float(header) if header is not None and header.isascii() and header.isdigit() else None


def get(url: str, **options: Any) -> Response:
    return request("GET", url, **options)


def post(url: str, **options: Any) -> Response:
    return request("POST", url, **options)


def put(url: str, **options: Any) -> Response:
    return request("PUT", url, **options)


def delete(url: str, **options: Any) -> Response:
    return request("DELETE", url, **options)
