"""Receive OTLP over HTTP in the JSON form: `otlp_receiver.py PORT_FILE TRACES_FILE`.

Each request is read into the published message `ExportTraceServiceRequest`, strictly: a key that the message does not have is
refused with 400. Each span is then one line of TRACES_FILE.
"""

import base64
import json
import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

port_file, traces_file = sys.argv[1:]
# OTLP writes these bytes in hexadecimal digits, and not as the JSON form of Protobuf does.
IDS = {"traceId", "spanId", "parentSpanId"}


def with_bytes(value):
    """Return JSON of OTLP as JSON of Protobuf."""
    if isinstance(value, list):
        return [with_bytes(item) for item in value]
    if isinstance(value, dict):
        return {key: id_bytes(item) if key in IDS else with_bytes(item) for key, item in value.items()}
    return value


def id_bytes(digits):
    return base64.b64encode(bytes.fromhex(digits)).decode()


def attributes(of):
    def value(attribute):
        kind = attribute.value.WhichOneof("value")
        return getattr(attribute.value, kind)

    return {attribute.key: value(attribute) for attribute in of.attributes}


def lines(request):
    for resource in request.resource_spans:
        for scope in resource.scope_spans:
            for span in scope.spans:
                yield {
                    "resource": attributes(resource.resource),
                    "scope": scope.scope.name,
                    "trace": span.trace_id.hex(),
                    "span": span.span_id.hex(),
                    "parent": span.parent_span_id.hex(),
                    "name": span.name,
                    "kind": span.kind,
                    "start": span.start_time_unix_nano,
                    "end": span.end_time_unix_nano,
                    "status": span.status.code,
                    "attributes": attributes(span),
                }


class Receiver(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        try:
            assert self.path == "/v1/traces", self.path
            assert self.headers["Content-Type"] == "application/json", self.headers["Content-Type"]
            request = ExportTraceServiceRequest()
            json_format.ParseDict(with_bytes(json.loads(body)), request, ignore_unknown_fields=False)
            # The binary form has the same meaning.
            again = ExportTraceServiceRequest.FromString(request.SerializeToString())
            with open(traces_file, "a", encoding="utf-8") as file:
                for line in lines(again):
                    file.write(json.dumps(line) + "\n")
        except Exception as error:
            print(f"a request is refused: {error!r}", file=sys.stderr)
            self.answer(400, json.dumps({"message": str(error)}))
            return
        self.answer(200, json_format.MessageToJson(ExportTraceServiceResponse()))

    def answer(self, status, body):
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_):
        pass


open(traces_file, "w", encoding="utf-8").close()
server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
with open(port_file + ".new", "w", encoding="utf-8") as file:
    file.write(f"{server.server_address[1]}\n")
os.rename(port_file + ".new", port_file)
server.serve_forever()
