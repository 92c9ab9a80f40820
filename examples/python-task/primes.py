"""The task's logic. It needs no host, so its tests run natively."""

from dataclasses import dataclass


class BadContext(ValueError):
    """The context is invalid. A retry cannot fix that."""


@dataclass(frozen=True)
class Params:
    """The task's keys of the context."""

    below: int = 1000
    rounds: int = 1
    report: str | None = None
    notify: str | None = None

    @classmethod
    def of(cls, context: dict) -> "Params":
        # Other keys are ignored, because the host sets some, and a later version may add more.
        values = {name: context[name] for name in cls.__annotations__ if context.get(name) is not None}
        for name, minimum in (("below", 0), ("rounds", 1)):
            value = values.get(name, minimum)
            # A Python bool is an int; a JSON boolean is not a number.
            if type(value) is not int or value < minimum:
                raise BadContext(f"`{name}` must be a whole number of at least {minimum}, not {value!r}")
        for name in ("report", "notify"):
            if not isinstance(values.get(name, ""), str):
                raise BadContext(f"`{name}` must be a text, not {values[name]!r}")
        return cls(**values)


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
