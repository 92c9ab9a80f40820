"""Tests of `campanile.wasi`, with modules in place of those that componentize-py generates from the world."""

import importlib
import sys
import types
import unittest
from dataclasses import dataclass
from typing import Any

from campanile.failures import Denied, Permanent, Retryable
from campanile.host import Request


class Err(Exception):
    __match_args__ = ("value",)

    def __init__(self, value: Any):
        self.value = value


@dataclass
class Ok:
    value: Any


def case(name: str, with_value: bool = True) -> type:
    """Return a case of a variant, as componentize-py generates it."""
    fields = {"__annotations__": {"value": Any}} if with_value else {}
    return dataclass(type(name, (), fields))


@dataclass
class DnsErrorPayload:
    rcode: str | None
    info_code: int | None


class Resource:
    """What componentize-py makes of a resource: its text is an address."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


class IoError(Resource):
    def __init__(self, code: Any = None):
        self.code = code

    def to_debug_string(self) -> str:
        return "the connection was reset"


def modules(sent: list, make_failure: Any = None, make_chunks: Any = None) -> dict[str, types.ModuleType]:
    """Return the modules. Requests go to `sent`, and are answered with a failure, or with a reply of some chunks."""
    http = types.ModuleType("wasi_http_types")
    for name in ("ConnectionRefused", "ConnectionTimeout", "HttpRequestDenied", "HttpProtocolError", "HttpResponseIncomplete"):
        setattr(http, f"ErrorCode_{name}", case(f"ErrorCode_{name}", False))
    for name in ("InternalError", "DnsError", "HttpResponseBodySize"):
        setattr(http, f"ErrorCode_{name}", case(f"ErrorCode_{name}"))
    for name in ("Scheme_Http", "Scheme_Https", "Method_Get", "Method_Post", "Method_Put", "Method_Delete"):
        setattr(http, name, case(name, False))
    http.Method_Other = case("Method_Other")
    http.http_error_code = lambda error: error.code

    class Stream(Resource):
        def blocking_write_and_flush(self, part: bytes):
            sent[-1]["body"] += part

        def blocking_read(self, _: int) -> bytes:
            part = chunks.pop(0)
            if isinstance(part, bytes):
                return part
            raise Err(part)

    class Body(Resource):
        write = stream = lambda self: Stream()

    class OutgoingBody:
        finish = staticmethod(lambda body, trailers: None)

    class Fields:
        @staticmethod
        def from_list(entries):
            return dict(entries)

        def __init__(self, entries=()):
            self.kept = entries

        def entries(self):
            return self.kept

    class OutgoingRequest:
        def __init__(self, headers):
            sent.append({"headers": headers, "has_body": False, "body": b""})

        set_method = set_scheme = set_authority = set_path_with_query = lambda self, _: None

        def body(self):
            sent[-1]["has_body"] = True
            return Body()

    class Response:
        status = staticmethod(lambda: 200)
        headers = staticmethod(lambda: Fields())
        consume = staticmethod(lambda: Body())

    class Pending:
        def subscribe(self):
            ready = Resource()
            ready.block = lambda: None
            return ready

        def get(self):
            return Ok(Err(make_failure(http))) if make_failure else Ok(Ok(Response()))

    http.OutgoingBody, http.Fields, http.OutgoingRequest = OutgoingBody, Fields, OutgoingRequest
    handler = types.ModuleType("outgoing_handler")
    handler.handle = lambda request, options: Pending()
    streams = types.ModuleType("wit_world.imports.streams")
    streams.StreamError_Closed = case("StreamError_Closed", False)
    streams.StreamError_LastOperationFailed = case("StreamError_LastOperationFailed")
    chunks = make_chunks(http, streams) if make_chunks else [streams.StreamError_Closed()]
    logging = types.ModuleType("wit_world.imports.logging")
    logging.Level = logging.log = None
    componentize = types.ModuleType("componentize_py_types")
    componentize.Err, componentize.Ok = Err, Ok
    imports = types.ModuleType("wit_world.imports")
    imports.run_info = imports.types = types.ModuleType("other")
    imports.outgoing_handler, imports.wasi_http_types = handler, http
    return {
        "componentize_py_types": componentize,
        "wit_world": types.ModuleType("wit_world"),
        "wit_world.imports": imports,
        "wit_world.imports.logging": logging,
        "wit_world.imports.streams": streams,
    }


class WasiTest(unittest.TestCase):
    def host(self, **answer: Any):
        """Return a host with an answer, and the list of the requests that it gets."""
        sent: list = []
        made = modules(sent, **answer)
        for name in [*made, "campanile.wasi"]:
            self.addCleanup(sys.modules.pop, name, None)
        sys.modules.update(made)
        sys.modules.pop("campanile.wasi", None)
        return importlib.import_module("campanile.wasi").WasiHost(), sent

    def reason(self, **answer: Any) -> str:
        host, _ = self.host(**answer)
        with self.assertRaises(Retryable) as raised:
            host.send(Request("GET", "http://a.example/", {}, b""))
        return str(raised.exception)

    def test_a_body_has_its_length(self):
        for method, body, length in [
            ("POST", b"x" * 9000, b"9000"),
            ("PUT", b"", b"0"),
            ("DELETE", b"", b"0"),
            ("GET", b"", None),
        ]:
            host, sent = self.host()
            host.send(Request(method, "http://a.example/", {}, body))
            self.assertEqual(sent[0]["headers"].get("content-length"), length, method)
            self.assertEqual((sent[0]["has_body"], sent[0]["body"]), (body != b"", body))

    def test_a_length_that_is_given_stays(self):
        host, sent = self.host()
        host.send(Request("POST", "http://a.example/", {"Content-Length": "2"}, b"ab"))
        self.assertEqual(sent[0]["headers"], {"Content-Length": b"2"})

    def test_a_failure_has_its_reason(self):
        dns = DnsErrorPayload("NXDOMAIN", None)
        for make, expected in [
            (lambda http: http.ErrorCode_ConnectionRefused(), "connection refused"),
            (lambda http: http.ErrorCode_ConnectionTimeout(), "connection timeout"),
            (lambda http: http.ErrorCode_DnsError(dns), "NXDOMAIN"),
            (lambda http: http.ErrorCode_InternalError("the limit is 1000 bytes"), "the limit is 1000 bytes"),
            (lambda http: http.ErrorCode_InternalError(None), "internal error"),
            (lambda http: http.ErrorCode_HttpResponseBodySize(123), "HTTP response body size: 123"),
        ]:
            text = self.reason(make_failure=make)
            self.assertIn(expected, text)
            self.assertNotRegex(text, r"object at|0x|ErrorCode")

    def test_a_reply_that_breaks_off_has_its_reason(self):
        for code, expected in [
            (lambda http: http.ErrorCode_HttpResponseIncomplete(), "the reply broke off: HTTP response incomplete"),
            (lambda http: None, "the reply broke off: the connection was reset"),
        ]:
            text = self.reason(
                make_chunks=lambda http, streams: [
                    b"part",
                    streams.StreamError_LastOperationFailed(IoError(code(http))),
                ]
            )
            self.assertTrue(text.endswith(expected), text)
            self.assertNotRegex(text, r"object at|0x|StreamError")

    def test_a_denied_request_is_denied(self):
        host, _ = self.host(make_failure=lambda http: http.ErrorCode_HttpRequestDenied())
        with self.assertRaises(Denied):
            host.send(Request("GET", "http://a.example/", {}, b""))
        with self.assertRaises(Permanent):
            host.send(Request("GET", "a.example", {}, b""))


if __name__ == "__main__":
    unittest.main()
