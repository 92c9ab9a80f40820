import json
import tempfile
import unittest
from pathlib import Path

from campanile import testing

from app import package
from primes import count_primes, report_file

HOOK = "https://hooks.example/primes"


class Primes(unittest.TestCase):
    def test_primes_are_counted(self):
        counts = [count_primes(below) for below in (0, 2, 3, 4, 10, 1000)]
        self.assertEqual(counts, [0, 0, 1, 2, 4, 168])

    def test_the_report_is_named_after_the_slot(self):
        file = report_file("/reports/", "2026-11-21T02:00:00Z")
        self.assertEqual(file, "/reports/primes-2026-11-21T02-00-00Z.json")


class Task(unittest.TestCase):
    def test_absent_keys_have_defaults(self):
        outcome = testing.call(package, "count", {"report": None})
        self.assertEqual((outcome.output["below"], outcome.output["primes"]), (1000, 168))
        self.assertEqual(outcome.host.progress, [(100, "1 of 1 rounds")])

    def test_an_invalid_context_is_a_permanent_failure_that_names_the_key(self):
        for key, value in [("below", "many"), ("below", -1), ("below", True), ("rounds", 0), ("report", 7)]:
            failure = testing.call(package, "count", {key: value}).failure
            self.assertRegex(str(failure), f"`{key}` must be")
            self.assertFalse(failure.retryable)

    def test_a_repeated_run_leaves_the_same_report(self):
        with tempfile.TemporaryDirectory() as folder:
            for attempt in (1, 2):
                testing.call(package, "count", {"report": folder}, attempt=attempt)
            [report] = Path(folder).iterdir()
            expected = {"below": 1000, "primes": 168, "slot": "2026-01-01T00:00:00Z"}
            self.assertEqual(json.loads(report.read_text()), expected)

    def test_the_result_is_sent_once_for_each_launch(self):
        replies = {f"POST {HOOK}": testing.reply(204)}
        outcome = testing.call(package, "count", {"notify": HOOK}, replies=replies)
        [sent] = outcome.host.requests
        self.assertEqual(json.loads(sent.body)["primes"], 168)
        self.assertEqual(sent.headers["idempotency-key"], outcome.host.execution_id)

    def test_a_missing_grant_is_a_denial(self):
        for context in ({"notify": HOOK}, {"report": "/no/such/folder"}):
            failure = testing.call(package, "count", context).failure
            self.assertEqual(failure.kind, "denied")


if __name__ == "__main__":
    unittest.main()
