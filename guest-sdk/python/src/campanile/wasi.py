"""The host inside WebAssembly. componentize-py generates the modules that are imported here from the world in `wit/`.

They are imported when the package is built: a component cannot import a module later.
"""

from __future__ import annotations

import dataclasses
import datetime
import re
from typing import Any
from urllib.parse import urlsplit

from componentize_py_types import Err, Ok
from wit_world.imports import run_info
from wit_world.imports.logging import Level, log

# componentize-py names an interface by its last word when the world imports no other one of that name.
try:
    from wit_world.imports import campanile_task_types as task_types
except ImportError:
    from wit_world.imports import types as task_types

try:
    from wit_world.imports import outgoing_handler, wasi_http_types
    from wit_world.imports.streams import StreamError_Closed
except ImportError:
    outgoing_handler = None
try:
    from wit_world.imports import wasi_config_store
except ImportError:
    try:
        from wit_world.imports import store as wasi_config_store
    except ImportError:
        wasi_config_store = None
    # The world may import `wasi:keyvalue/store` alone.
    if not hasattr(wasi_config_store, "get_all"):
        wasi_config_store = None

try:
    from wit_world.imports import wasi_keyvalue_store
except ImportError:
    try:
        from wit_world.imports import store as wasi_keyvalue_store
    except ImportError:
        wasi_keyvalue_store = None
    # The world may import `wasi:config/store` alone.
    if not hasattr(wasi_keyvalue_store, "open"):
        wasi_keyvalue_store = None
try:
    from wit_world.imports import atomics
except ImportError:
    atomics = None
try:
    from wit_world.imports import batch
except ImportError:
    batch = None
try:
    from wit_world.imports import session
except ImportError:
    session = None
try:
    from wit_world.imports import outbox
except ImportError:
    outbox = None

from .failures import Denied, Failure, Permanent, Retryable
from .host import Fault, Reply, Request
from .package import Completion
from .values import dumps

READ_BYTES = 64 * 1024

# A request of these methods without a body has no length either.
BODILESS = {"GET", "HEAD", "OPTIONS", "TRACE", "CONNECT"}


def _time(instant: Any) -> datetime.datetime:
    time = datetime.datetime.fromtimestamp(instant.seconds, datetime.timezone.utc)
    return time.replace(microsecond=instant.nanoseconds // 1000)


class WasiHost:
    @property
    def execution_id(self) -> str:
        return run_info.execution_id()

    @property
    def run_id(self) -> str:
        return run_info.run_id()

    @property
    def task_name(self) -> str:
        return run_info.task_name()

    @property
    def attempt(self) -> int:
        return run_info.attempt()

    @property
    def is_recovery(self) -> bool:
        return run_info.is_recovery()

    @property
    def scheduled_time(self) -> datetime.datetime:
        return _time(run_info.scheduled_for())

    @property
    def original_scheduled_time(self) -> datetime.datetime:
        return _time(run_info.original_scheduled_time())

    @property
    def deadline(self) -> datetime.datetime | None:
        deadline = run_info.deadline()
        return None if deadline is None else _time(deadline)

    def cancel_requested(self) -> bool:
        return run_info.cancel_requested()

    def report_progress(self, percent: int | None, message: str) -> None:
        run_info.report_progress(percent, message)

    def log(self, level: str, context: str, message: str) -> None:
        log(Level[level.upper()], context, message)

    def config(self, name: str) -> str | None:
        if wasi_config_store is None:
            raise Permanent("the world in wit/ does not import `wasi:config/store`")
        try:
            return wasi_config_store.get(name)
        except Err as error:
            raise Retryable(f"the configuration {name!r} cannot be read: {_reason(error.value)}") from error

    def send(self, request: Request) -> Reply:
        if outgoing_handler is None:
            raise Permanent("the world in wit/ does not import `wasi:http/outgoing-handler`")
        outgoing = _outgoing(request)
        try:
            return _send(outgoing, request)
        except Err as error:
            if isinstance(error.value, wasi_http_types.ErrorCode_HttpRequestDenied):
                raise Denied(f"{request.method} {request.url}: the host denied the request") from error
            raise Retryable(f"{request.method} {request.url}: {_reason(error.value)}") from error

    def open_bucket(self, name: str) -> WasiBucket:
        return WasiBucket(_faulty(_imported(wasi_keyvalue_store, "wasi:keyvalue/store").open, name))

    def open_session_bucket(self, name: str) -> WasiBucket:
        return WasiBucket(_faulty(_imported(session, "campanile:task/session").open, name))

    def send_message(self, message: Request) -> str:
        functions = _imported(outbox, "campanile:task/outbox")
        headers = list(message.headers.items())
        sent = functions.Message(method=message.method, url=message.url, headers=headers, body=message.body)
        what = f"sending the message {message.method} {message.url}"
        try:
            return functions.send(sent)
        except Err as error:
            if isinstance(error.value, functions.Error_AccessDenied):
                why = "it is not granted; the operator grants its host with `[[grants.http]]` in the package's sidecar file"
                raise Denied(f"{what}: {why}") from error
            raise Permanent(f"{what}: {_reason(error.value)}") from error


def _imported(functions: Any, interface: str) -> Any:
    if functions is None:
        raise Permanent(f"the world in wit/ does not import `{interface}`")
    return functions


class WasiBucket:
    def __init__(self, bucket: Any):
        self._bucket = bucket

    def get(self, key: str) -> bytes | None:
        return _faulty(self._bucket.get, key)

    def set(self, key: str, value: bytes) -> None:
        _faulty(self._bucket.set, key, value)

    def delete(self, key: str) -> None:
        _faulty(self._bucket.delete, key)

    def exists(self, key: str) -> bool:
        return _faulty(self._bucket.exists, key)

    def keys(self) -> list[str]:
        keys, cursor = [], None
        while True:
            page = _faulty(self._bucket.list_keys, cursor)
            keys.extend(page.keys)
            cursor = page.cursor
            if cursor is None:
                return keys

    def increment(self, key: str, by: int) -> int:
        return _faulty(_imported(atomics, "wasi:keyvalue/atomics").increment, self._bucket, key, by)

    def get_many(self, keys: list[str]) -> list[bytes | None]:
        found = _faulty(_imported(batch, "wasi:keyvalue/batch").get_many, self._bucket, keys)
        return [None if entry is None else entry[1] for entry in found]

    def set_many(self, entries: list[tuple[str, bytes]]) -> None:
        _faulty(_imported(batch, "wasi:keyvalue/batch").set_many, self._bucket, entries)

    def delete_many(self, keys: list[str]) -> None:
        _faulty(_imported(batch, "wasi:keyvalue/batch").delete_many, self._bucket, keys)


FAULTS = {"Error_NoSuchStore": "no-such-store", "Error_AccessDenied": "access-denied"}


def _faulty(call: Any, *arguments: Any) -> Any:
    """Return the result of a function of `wasi:keyvalue`. Raises: `Fault`."""
    try:
        return call(*arguments)
    except Err as error:
        kind = FAULTS.get(type(error.value).__name__, "other")
        raise Fault(kind, _reason(getattr(error.value, "value", ""))) from error


def _reason(value: Any) -> str:
    """Return why a function of the host failed, in words: a case such as `ErrorCode_ConnectionTimeout`, and its details."""
    if value is None or isinstance(value, (str, int, float)):
        return "" if value is None else str(value)
    case = type(value).__name__.rpartition("_")[2]
    if case == "LastOperationFailed":
        return _reason_of_stream(value.value)
    if case == "Closed":
        return "the stream ended before its end"
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", case).lower().replace("http ", "HTTP ").replace("dns ", "DNS ")
    details = [_reason(part) for part in _parts(value)]
    details = [detail for detail in details if detail]
    if case in ("InternalError", "Other", "Upstream", "Io", "Invalid") and details:
        return ": ".join(details)
    return ": ".join([words, *details])


def _parts(value: Any) -> list[Any]:
    """Return the fields of a case or a record; none of a resource, whose text would be the address of an object."""
    return list(vars(value).values()) if dataclasses.is_dataclass(value) else []


def _reason_of_stream(error: Any) -> str:
    code = None
    if outgoing_handler is not None:
        code = wasi_http_types.http_error_code(error)
    if code is not None:
        return f"the reply broke off: {_reason(code)}"
    text = getattr(error, "to_debug_string", lambda: "")()
    return f"the reply broke off: {text}" if text else "the reply broke off"


def _length(request: Request) -> dict[str, str]:
    """Return the header with the length of the body. Without it the body would be sent in chunks, which some servers refuse."""
    known = {name.lower() for name in request.headers}
    if "content-length" in known or (not request.body and request.method.upper() in BODILESS):
        return {}
    return {"content-length": str(len(request.body))}


def _outgoing(request: Request) -> Any:
    """Return the request as the host takes it. Raises: `Permanent` for one that is not valid HTTP."""
    http = wasi_http_types
    invalid = f"{request.method} {request.url} is not a valid request"
    try:
        address = urlsplit(request.url)
    except ValueError as error:
        raise Permanent(f"{invalid}: {error}") from error
    schemes = {"http": http.Scheme_Http, "https": http.Scheme_Https}
    if address.scheme not in schemes or not address.netloc:
        raise Permanent(f"{invalid}: the URL must begin with http:// or https:// and name a host")
    path = address.path or "/"
    method = getattr(http, f"Method_{request.method.capitalize()}", None)
    try:
        headers = {**request.headers, **_length(request)}
        fields = http.Fields.from_list([(name, value.encode()) for name, value in headers.items()])
        outgoing = http.OutgoingRequest(fields)
        outgoing.set_method(method() if method else http.Method_Other(request.method))
        outgoing.set_scheme(schemes[address.scheme]())
        outgoing.set_authority(address.netloc)
        outgoing.set_path_with_query(f"{path}?{address.query}" if address.query else path)
    except Err as error:
        why = "its method, its URL or a header has a character that HTTP does not allow, or the host sets the header itself"
        raise Permanent(f"{invalid}: {why}") from error
    return outgoing


def _send(outgoing: Any, request: Request) -> Reply:
    http = wasi_http_types
    if not request.body:
        return _answer(outgoing_handler.handle(outgoing, None), request)
    body = outgoing.body()
    pending = outgoing_handler.handle(outgoing, None)
    try:
        # Drop the stream before finishing the body.
        with body.write() as stream:
            for at in range(0, len(request.body), 4096):
                stream.blocking_write_and_flush(request.body[at : at + 4096])
        http.OutgoingBody.finish(body, None)
    except Err:
        # The receiver stopped reading the body. Its response says why.
        pass
    return _answer(pending, request)


def _answer(pending: Any, request: Request) -> Reply:
    with pending.subscribe() as ready:
        ready.block()
    match pending.get():
        case Ok(Ok(response)):
            return _reply(response)
        case Ok(Err() as error):
            raise error
        case _:
            raise Retryable(f"{request.method} {request.url}: the host lost the response")


def _reply(response: Any) -> Reply:
    headers = {name.lower(): value.decode("latin-1") for name, value in response.headers().entries()}
    parts = []
    with response.consume() as incoming, incoming.stream() as stream:
        while True:
            try:
                parts.append(stream.blocking_read(READ_BYTES))
            except Err as error:
                if isinstance(error.value, StreamError_Closed):
                    break
                raise
    return Reply(response.status(), headers, b"".join(parts))


def completion(completion: Completion) -> Any:
    def text(value: Any) -> str | None:
        return None if value is None else dumps(value)

    return task_types.Completion(output=text(completion.output), context=text(completion.context))


def failure(failure: Failure) -> Err[Any]:
    after = failure.retry_after
    return Err(
        task_types.Failure(
            message=failure.message,
            retryable=failure.retryable,
            retry_after_ms=None if after is None else max(0, int(after * 1000)),
            details=failure.details_json(),
        )
    )
