"""The SDK's tests: `python3 -m unittest discover tests` with `PYTHONPATH=src`. They need no host."""

import datetime
import json
import logging
import unittest
from dataclasses import dataclass, field
from typing import Any, Literal

import campanile
from campanile import testing
from campanile.context import check, read

package = campanile.Package("demo", "0.1.0", summary="A demo", schedules=[{"cron": "0 2 * * *"}])


@dataclass(frozen=True)
class Point:
    x: int
    y: float = 0.0


@dataclass(frozen=True)
class Params:
    name: str
    count: int = 1
    mode: Literal["fast", "exact"] = "fast"
    points: list[Point] = field(default_factory=list)
    labels: dict[str, str] = field(default_factory=dict)
    limit: int | None = None
    verbose: bool = False

    def __post_init__(self):
        if self.count < 1:
            raise ValueError("`count` must be at least 1")


@dataclass(frozen=True)
class Moment:
    at: datetime.datetime


@dataclass(frozen=True)
class Span:
    parts: Moment


@dataclass(frozen=True)
class Tree:
    name: str
    branches: "list[Tree]"


@dataclass(frozen=True)
class Greeted:
    message: str


@package.task
def hello(run: campanile.Run, params: Params) -> Greeted:
    run.info(f"attempt {run.attempt}")
    logging.getLogger("db").warning("slow: %s", 7)
    run.progress(50, "half")
    return Greeted(f"Hello, {params.name}!")


@package.task(id="push", depends_on=["hello"])
def push_to_hook(run, context):
    sent = campanile.http.post(context["url"], json={"slot": run.slot}, idempotency_key=run.execution_id)
    return campanile.Completion(output=sent.json(), context={"status": sent.status})


@package.task
def broken(run: campanile.Run) -> None:
    raise KeyError("url")


@package.task
def facts(run: campanile.Run) -> dict:
    return {
        "slot": run.slot,
        "year": run.original_scheduled_time.year,
        "recovery": run.is_recovery,
        "region": run.config("region"),
        "stop": run.cancel_requested,
        "last": run.last_result,
    }


class Contexts(unittest.TestCase):
    def test_a_context_has_the_declared_type(self):
        value = {
            "name": "a",
            "points": [{"x": 1, "y": 2}, {"x": 3}],
            "labels": {"k": "v"},
            "limit": None,
            "execution_id": "set by the host",
        }
        expected = Params("a", points=[Point(1, 2.0), Point(3)], labels={"k": "v"})
        self.assertEqual(read(value, Params), expected)
        self.assertEqual(read({"a": [1]}, dict[str, list[int]]), {"a": [1]})
        self.assertEqual(read([1, "a"], list[int | str]), [1, "a"])
        self.assertEqual(read({"any": [1]}, Any), {"any": [1]})

    def test_a_wrong_context_names_the_key_and_both_types(self):
        for value, message in [
            ({}, "the context has no `name`; set it in the schedule's context"),
            ({"name": 7}, "`name` must be a text, not 7"),
            ({"name": None}, "`name` must be a text, not null"),
            ({"name": "a", "count": True}, "`count` must be a whole number, not true"),
            ({"name": "a", "count": 1.5}, "`count` must be a whole number, not 1.5"),
            ({"name": "a", "count": 0}, "`count` must be at least 1"),
            ({"name": "a", "mode": "slow"}, '`mode` must be "fast" or "exact", not "slow"'),
            ({"name": "a", "points": {}}, "`points` must be a list, not {}"),
            ({"name": "a", "points": [{"x": 1}, {}]}, "the context has no `points[1].x`; set it in the schedule's context"),
            ({"name": "a", "points": [{"x": 1, "y": "2"}]}, '`points[0].y` must be a number, not "2"'),
            ({"name": "a", "labels": {"k": 1}}, "`labels.k` must be a text, not 1"),
            ({"name": "a", "limit": "x"}, '`limit` must be a whole number, not "x"'),
            ({"name": "a", "verbose": 1}, "`verbose` must be true or false, not 1"),
            ([], "the context must be an object, not []"),
        ]:
            with self.subTest(value=value), self.assertRaises(campanile.ContextError) as raised:
                read(value, Params)
            self.assertEqual(raised.exception.message, message)
            self.assertFalse(raised.exception.retryable)


class Tasks(unittest.TestCase):
    def test_a_task_is_called_with_its_context_and_its_output_is_json(self):
        package.exports()
        outcome = testing.call(package, "hello", {"name": "world"}, attempt=3)
        self.assertEqual(outcome.output, {"message": "Hello, world!"})
        self.assertIsNone(outcome.failure)
        self.assertEqual(outcome.host.logs, [("info", "attempt 3"), ("warn", "db: slow: 7")])
        self.assertEqual(outcome.host.progress, [(50, "half")])

    def test_a_task_reads_the_facts_of_its_run(self):
        slot = datetime.datetime(2026, 11, 21, 2, tzinfo=datetime.timezone.utc)
        outcome = testing.call(
            package,
            "facts",
            {"last_result": 7},
            original_scheduled_time=slot,
            is_recovery=True,
            values={"region": "north"},
            cancelled=True,
        )
        self.assertEqual(
            outcome.output,
            {
                "slot": "2026-11-21T02:00:00Z",
                "year": 2026,
                "recovery": True,
                "region": "north",
                "stop": True,
                "last": 7,
            },
        )

    def test_an_expected_failure_is_returned_and_a_bug_raises(self):
        outcome = testing.call(package, "hello", {"name": 7})
        self.assertEqual(str(outcome.failure), "`name` must be a text, not 7")
        with self.assertRaises(KeyError):
            testing.call(package, "broken")
        outcome = testing.call(package, "nope")
        self.assertIn("it has hello, push, broken, facts", outcome.failure.message)

    def test_without_a_host_the_error_says_what_to_do(self):
        with self.assertRaisesRegex(RuntimeError, "campanile.testing.call"):
            campanile.Run({}).info("lost")


class Manifests(unittest.TestCase):
    def test_the_manifest_has_the_tasks_in_order(self):
        Describe, _ = package.exports()
        manifest = json.loads(Describe().describe())
        self.assertEqual(manifest["name"], "demo")
        self.assertEqual(manifest["summary"], "A demo")
        self.assertEqual(manifest["schedules"], [{"cron": "0 2 * * *"}])
        self.assertEqual(manifest["tasks"][:2], [{"id": "hello"}, {"id": "push", "depends_on": ["hello"]}])

    def test_a_package_that_cannot_work_is_refused(self):
        empty = campanile.Package("empty", "0.1.0")
        with self.assertRaisesRegex(ValueError, "has no task"):
            empty.manifest()
        empty.task(lambda run: None, id="a")
        with self.assertRaisesRegex(ValueError, "two tasks named 'a'"):
            empty.task(lambda run: None, id="a")
        with self.assertRaisesRegex(TypeError, "must take the run"):
            empty.task(lambda: None, id="b")

    def test_a_context_that_json_does_not_have_is_refused_where_it_is_declared(self):
        package = campanile.Package("types", "0.1.0")
        for kind, part in [
            (Span, "`parts.at` of the context cannot be read as datetime"),
            (set, "the context cannot be read as set"),
            (dict[int, str], r"the context cannot be read as dict\[int, str\]"),
            (list[tuple[int, int] | None], r"`\[\]` of the context cannot be read as tuple"),
        ]:

            def task(run, context):
                pass

            task.__annotations__["context"] = kind
            with self.assertRaisesRegex(TypeError, f"the task task: {part}"):
                package.task(task)
        self.assertEqual(package.tasks, {})
        for kind in [Tree, Any, dict, list[Tree | None], dict[str, list[float]], Literal["a", 1]]:
            check(kind)


class Http(unittest.TestCase):
    URL = "https://hooks.example/primes"

    def push(self, reply):
        replies = {} if reply is None else {f"POST {self.URL}": reply}
        return testing.call(package, "push", {"url": self.URL}, replies=replies)

    def test_a_request_is_one_line(self):
        outcome = self.push(testing.reply(json={"ok": True}))
        self.assertEqual((outcome.output, outcome.context), ({"ok": True}, {"status": 200}))
        [sent] = outcome.host.requests
        self.assertEqual(json.loads(sent.body), {"slot": "2026-01-01T00:00:00Z"})
        self.assertEqual(sent.headers["content-type"], "application/json")
        self.assertEqual(sent.headers["idempotency-key"], outcome.host.execution_id)

    def test_the_reply_decides_whether_a_retry_can_help(self):
        for reply, kind, after in [
            (testing.reply(503, headers={"Retry-After": "7"}), campanile.Retryable, 7.0),
            (testing.reply(429, headers={"Retry-After": "Mon, 23 Nov 2026 00:00:00 GMT"}), campanile.Retryable, None),
            (testing.reply(404), campanile.Permanent, None),
            (testing.reply(200, body=b"<html>"), campanile.Retryable, None),
            (campanile.Retryable("the connection was closed"), campanile.Retryable, None),
            (None, campanile.Denied, None),
        ]:
            failure = self.push(reply).failure
            self.assertIs(type(failure), kind, reply)
            self.assertEqual(failure.retry_after, after)

    def test_any_reply_is_returned_without_the_check(self):
        plain = campanile.Package("plain", "0.1.0")
        plain.task(lambda run: campanile.http.get("http://a.example", check=False).status, id="get")
        outcome = testing.call(plain, "get", replies={"GET http://a.example": testing.reply(404)})
        self.assertEqual(outcome.output, 404)


class Buckets(unittest.TestCase):
    def of(self, task):
        package = campanile.Package("buckets", "0.1.0")
        package.task(task, id="do")
        return package

    def test_a_bucket_keeps_keys_and_values(self):
        def count(run):
            bucket = run.bucket("own")
            last = bucket.get_json("last")
            bucket.set_json("last", {"slot": run.slot})
            bucket.set_many({"a": "xyz", "b": b"\xff"})
            bucket.delete("old")
            bucket.delete_many(["b", "none"])
            lengths = [value and len(value) for value in bucket.get_many(["a", "none"])]
            return [last, bucket.increment("calls"), bucket.keys(), bucket.exists("old"), lengths]

        given = {"own": {"calls": "41", "old": "x", "last": "7"}}
        outcome = testing.call(self.of(count), "do", buckets=given)
        self.assertEqual(outcome.output, [7, 42, ["calls", "last", "a"], False, [3, None]])
        expected = {"calls": "42", "last": '{"slot": "2026-01-01T00:00:00Z"}', "a": "xyz"}
        self.assertEqual(outcome.host.buckets["own"], expected)
        self.assertEqual(given["own"]["calls"], "41", "a call does not change what the test gave")

    def test_what_is_not_granted_is_denied(self):
        facts = {"read_only_buckets": {"facts": {"limit": "1.5"}}, "buckets": {"own": {"text": "seven"}}}
        for task, kind, words in [
            (lambda run: run.bucket("other"), campanile.Denied, '`other` is not granted; .* bucket = "other"'),
            (lambda run: run.session_bucket("other"), campanile.Denied, "`other` is not granted"),
            (lambda run: run.bucket("facts").set("limit", "3"), campanile.Denied, 'access = "write"'),
            (lambda run: run.session_bucket("facts").increment("n"), campanile.Denied, 'access = "write"'),
            (lambda run: run.bucket("own").increment("text"), campanile.Retryable, "^incrementing `text` in the bucket `own`: "),
            (lambda run: run.bucket("own").get_json("text"), campanile.Permanent, "`text` in the bucket `own` cannot be read"),
        ]:
            failure = testing.call(self.of(task), "do", **facts).failure
            self.assertIs(type(failure), kind, failure)
            self.assertRegex(failure.message, words)
        read = testing.call(self.of(lambda run: run.bucket("facts").get_json("limit")), "do", **facts)
        self.assertEqual(read.output, 1.5)

    def test_a_session_and_messages_are_kept_if_the_call_succeeds_and_dropped_if_it_fails(self):
        def bill(run):
            state = run.session_bucket("state")
            position = state.get_json("position", 0)
            state.set_json("position", position + 1)
            again = run.session_bucket("state").get_json("position")
            seen = run.bucket("state").get_json("position", 0)
            first = run.send("https://a.example/1", json={"cents": 42}, headers={"X-Kind": "invoice"})
            second = run.send("https://a.example/2", method="PUT", body="text")
            if run.attempt == 1:
                raise campanile.Retryable("later")
            if run.attempt == 2:
                raise KeyError("a bug")
            return [again, seen, first, second]

        package = self.of(bill)
        buckets = {"state": {"position": "7"}}
        failed = testing.call(package, "do", buckets=buckets)
        self.assertEqual((failed.host.buckets, failed.host.messages), (buckets, []))
        with self.assertRaises(KeyError):
            testing.call(package, "do", buckets=buckets, attempt=2)
        outcome = testing.call(package, "do", buckets=buckets, attempt=3)
        again, seen, first, second = outcome.output
        self.assertEqual((again, seen), (8, 7), "only the session sees its writes")
        self.assertEqual(outcome.host.buckets, {"state": {"position": "8"}})
        self.assertNotEqual(first, second)
        one, two = outcome.host.messages
        self.assertEqual((one.method, one.url, one.body), ("POST", "https://a.example/1", b'{"cents": 42}'))
        self.assertEqual(one.headers, {"x-kind": "invoice", "content-type": "application/json"})
        self.assertEqual((two.method, two.body), ("PUT", b"text"))
        later = testing.call(package, "do", buckets=outcome.host.buckets, attempt=4)
        self.assertEqual(later.output[2:], [first, second], "a repetition sends the same ids")

    def test_a_message_without_an_address_is_refused(self):
        failure = testing.call(self.of(lambda run: run.send("a.example/1")), "do").failure
        self.assertIs(type(failure), campanile.Permanent)
        with self.assertRaisesRegex(ValueError, "not both"):
            testing.call(self.of(lambda run: run.send("https://a.example/", json=1, body="1")), "do")


class Results(unittest.TestCase):
    def test_a_value_that_json_does_not_have_is_refused_as_by_a_host(self):
        def giving(value):
            package = campanile.Package("plain", "0.1.0")
            package.task(lambda run: value, id="give")
            return package

        for value in [{1, 2}, float("nan"), campanile.Completion(context={"ids": {1, 2}})]:
            with self.assertRaises((TypeError, ValueError)):
                testing.call(giving(value), "give")
        self.assertEqual(testing.call(giving([1, 2]), "give").output, [1, 2])


class Failures(unittest.TestCase):
    def test_the_details_carry_the_kind(self):
        self.assertEqual(json.loads(campanile.Denied("no").details_json()), {"kind": "denied"})
        denied = campanile.Denied("no", details={"host": "a"})
        self.assertEqual(json.loads(denied.details_json()), {"kind": "denied", "host": "a"})
        self.assertIsNone(campanile.Retryable("later").details_json())
        self.assertEqual(campanile.Permanent("no", details=[1]).details_json(), "[1]")


if __name__ == "__main__":
    unittest.main()
