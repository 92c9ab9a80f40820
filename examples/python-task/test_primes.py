import unittest

from primes import BadContext, Params, count_primes, report_file


class Primes(unittest.TestCase):
    def test_primes_are_counted(self):
        counts = [count_primes(below) for below in (0, 2, 3, 4, 10, 1000)]
        self.assertEqual(counts, [0, 0, 1, 2, 4, 168])

    def test_absent_keys_have_defaults(self):
        context = {"execution_id": "…", "attempt": 1, "report": None}
        self.assertEqual(Params.of(context), Params(below=1000, rounds=1))

    def test_an_invalid_context_is_an_error_that_names_the_key(self):
        for key, value in [("below", "many"), ("below", -1), ("below", True), ("rounds", 0), ("report", 7)]:
            with self.assertRaisesRegex(BadContext, f"`{key}` must be"):
                Params.of({key: value})

    def test_the_report_is_named_after_the_slot(self):
        file = report_file("/reports/", "2026-11-21T02:00:00Z")
        self.assertEqual(file, "/reports/primes-2026-11-21T02-00-00Z.json")


if __name__ == "__main__":
    unittest.main()
