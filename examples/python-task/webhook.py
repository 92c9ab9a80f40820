"""A POST through wasi:http. The host opens the connection if the address is granted."""

import json
from urllib.parse import urlsplit

from componentize_py_types import Err, Ok
from wit_world.imports import outgoing_handler
from wit_world.imports.wasi_http_types import (
    ErrorCode_HttpRequestDenied,
    Fields,
    Method_Post,
    OutgoingBody,
    OutgoingRequest,
    Scheme_Http,
    Scheme_Https,
)


class Denied(Exception):
    """The sidecar does not grant this request."""


class Failed(Exception):
    """There was no response, or an error. A retry may help."""


def post(url: str, body: dict, idempotency_key: str) -> None:
    try:
        status = send(url, json.dumps(body).encode(), idempotency_key)
    except Err as error:
        if isinstance(error.value, ErrorCode_HttpRequestDenied):
            raise Denied(f"{url}: the host denied the request") from error
        raise Failed(f"{url}: {error.value}") from error
    if not 200 <= status < 300:
        raise Failed(f"{url} responded with {status}")


def send(url: str, body: bytes, idempotency_key: str) -> int:
    address = urlsplit(url)
    path = address.path or "/"
    headers = {"content-type": "application/json", "idempotency-key": idempotency_key}
    request = OutgoingRequest(
        Fields.from_list([(name, value.encode()) for name, value in headers.items()])
    )
    request.set_method(Method_Post())
    request.set_scheme(Scheme_Http() if address.scheme == "http" else Scheme_Https())
    request.set_authority(address.netloc)
    request.set_path_with_query(f"{path}?{address.query}" if address.query else path)
    outgoing = request.body()
    pending = outgoing_handler.handle(request, None)
    try:
        # Drop the stream before finishing the body.
        with outgoing.write() as stream:
            stream.blocking_write_and_flush(body)
        OutgoingBody.finish(outgoing, None)
    except Err:
        # The receiver stopped reading the body. Its response says why.
        pass
    with pending.subscribe() as ready:
        ready.block()
    match pending.get():
        case Ok(Ok(response)):
            return response.status()
        case Ok(Err() as error):
            raise error
        case lost:
            raise Failed(f"{url}: the host lost the response: {lost}")
