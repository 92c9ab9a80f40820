"""The work itself. It needs no host, so its tests run anywhere."""

from dataclasses import dataclass


class BadContext(ValueError):
    """The context has the wrong shape. A retry cannot fix that."""


@dataclass(frozen=True)
class Order:
    """This task's keys of the context."""

    below: int = 1000
    rounds: int = 1
    report: str | None = None
    notify: str | None = None

    @classmethod
    def of(cls, context: dict) -> "Order":
        # Other keys are ignored: some are the host's, and a later version may add more.
        own = {name: context[name] for name in cls.__annotations__ if context.get(name) is not None}
        for name, least in (("below", 0), ("rounds", 1)):
            value = own.get(name, least)
            # A Python bool is an int; a JSON boolean is not a number.
            if type(value) is not int or value < least:
                raise BadContext(f"`{name}` must be a whole number of at least {least}, not {value!r}")
        for name in ("report", "notify"):
            if not isinstance(own.get(name, ""), str):
                raise BadContext(f"`{name}` must be a text, not {own[name]!r}")
        return cls(**own)


def count_primes(below: int) -> int:
    """The sieve of Eratosthenes: one byte of memory for each number."""
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
    """One name for each slot: a repeated run overwrites its report."""
    return f"{folder.rstrip('/')}/primes-{slot.replace(':', '-')}.json"
