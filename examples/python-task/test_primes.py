import unittest

from primes import BadContext, Order, count_primes, report_file


class Primes(unittest.TestCase):
    def test_primes_are_counted(self):
        counts = [count_primes(below) for below in (0, 2, 3, 4, 10, 1000)]
        self.assertEqual(counts, [0, 0, 1, 2, 4, 168])

    def test_what_the_context_does_not_say_has_a_default(self):
        hosts_own = {"execution_id": "…", "attempt": 1, "report": None}
        self.assertEqual(Order.of(hosts_own), Order(below=1000, rounds=1))

    def test_a_context_of_the_wrong_shape_is_refused_by_name(self):
        for key, value in [("below", "many"), ("below", -1), ("below", True), ("rounds", 0), ("report", 7)]:
            with self.assertRaisesRegex(BadContext, f"`{key}` must be"):
                Order.of({key: value})

    def test_a_slot_has_one_report_whatever_its_run(self):
        file = report_file("/reports/", "2026-11-21T02:00:00Z")
        self.assertEqual(file, "/reports/primes-2026-11-21T02-00-00Z.json")


if __name__ == "__main__":
    unittest.main()
