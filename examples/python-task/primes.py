"""The work itself: knows no host, and so is tested anywhere."""

from dataclasses import dataclass


class BadContext(ValueError):
    """The context is not what this task takes. Trying again will not mend it."""


@dataclass(frozen=True)
class Order:
    """The keys of the context that are this task's own."""

    below: int = 1000
    rounds: int = 1
    report: str | None = None
    notify: str | None = None

    @classmethod
    def of(cls, context: dict) -> "Order":
        # Other keys are left alone: the host has its own there, and a later version may have more.
        own = {name: context[name] for name in cls.__annotations__ if context.get(name) is not None}
        for name, least in (("below", 0), ("rounds", 1)):
            value = own.get(name, least)
            # In Python a bool is an int; in the context it is not.
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
    """One name for each slot, so that a second run of it overwrites its report and adds none."""
    return f"{folder.rstrip('/')}/primes-{slot.replace(':', '-')}.json"
