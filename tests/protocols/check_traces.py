"""Check the spans that `otlp_receiver.py` has decoded: `check_traces.py TRACES_FILE`."""

import json
import sys
import time

STATUS_ERROR = 2


def read():
    with open(sys.argv[1], encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def trace_of(name):
    """Return the spans of the trace whose root has this name, by their names."""
    until = time.monotonic() + 30
    while time.monotonic() < until:
        spans = read()
        roots = [span for span in spans if span["name"] == name]
        if roots:
            return {span["name"]: span for span in spans if span["trace"] == roots[-1]["trace"]}
        time.sleep(0.1)
    sys.exit(f"no span is named {name}: {read()}")


for name, task, status in [("launch ok", "ok", "succeeded"), ("launch fail_permanent", "fail_permanent", "failed")]:
    trace = trace_of(name)
    root, run, call = trace[name], trace["run 1"], trace[f"call {task}"]
    assert set(trace) == {name, "decide", "claim", "run 1", f"call {task}"}, trace.keys()
    assert run["parent"] == root["span"] and call["parent"] == run["span"], trace
    for span in trace.values():
        assert len(span["trace"]) == 32 and len(span["span"]) == 16, span
        assert 0 < span["start"] <= span["end"], span
        assert span["resource"]["service.name"] == "campanile", span
        assert span["resource"]["service.version"], span
    attributes = root["attributes"]
    assert attributes["campanile.schedule"] == task, attributes
    assert attributes["campanile.status"] == status, attributes
    assert (root["status"] == STATUS_ERROR) == (status == "failed"), root
print("the published messages of OTLP decode two traces")
