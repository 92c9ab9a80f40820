"""The task's logic: plain Python."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Params:
    """The task's keys of the context. The SDK checks their types."""

    below: int = 1000
    rounds: int = 1
    report: str | None = None
    notify: str | None = None

    def __post_init__(self):
        for name, minimum in (("below", 0), ("rounds", 1)):
            if getattr(self, name) < minimum:
                raise ValueError(f"`{name}` must be at least {minimum}, not {getattr(self, name)}")


def count_primes(below: int) -> int:
    """Count the primes with the sieve of Eratosthenes. It needs one byte of memory for each number."""
    if below < 3:
        return 0
    prime = bytearray(b"\x01") * below
    prime[0:2] = b"\x00\x00"
    for number in range(2, int(below**0.5) + 1):
        if prime[number]:
            multiples = range(number * number, below, number)
            prime[multiples.start :: number] = bytes(len(multiples))
    return prime.count(1)


def report_file(folder: str, slot: str) -> str:
    """Return the file name of a slot's report. A repeated run overwrites the report."""
    return f"{folder.rstrip('/')}/primes-{slot.replace(':', '-')}.json"
