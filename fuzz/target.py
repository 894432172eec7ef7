"""The interface of a fuzz target, and ``expect``, which reports a violated check as a ``FindingError``."""

import random
from typing import Protocol


class FindingError(Exception):
    """An input led somewhere it must not."""


def expect(holds: object, what: str) -> None:
    """Check a law of a target; raises FindingError when it does not hold."""
    if not holds:
        raise FindingError(what)


class Target(Protocol):
    """One parser or machine under fire."""

    name: str

    def make(self, rng: random.Random) -> bytes:
        """Return an input, most of the time an almost valid one."""

    def run(self, data: bytes) -> str:
        """Feed an input and return one word for the outcome; any exception is a find."""
