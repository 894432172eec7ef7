"""The base classes for the result of one message: what happened, whether to retry, and two sentences for users.

Each protocol declares its outcomes in a subclass of ``Outcome`` without further methods. Its ``send`` returns a
``Sent`` or a subclass with more fields. If ``send`` raises instead, nothing was attempted.
"""

from dataclasses import dataclass, field
from enum import Enum
from typing import Generic, Self, TypeVar

from waystation.sdk.errors import NotTakenError, WaystationError

__all__ = ["Outcome", "Sent"]


class Outcome(Enum):
    """How a message ended; the value is its name in JSON."""

    _value_: str
    ok: bool
    """Whether what the protocol promises has happened: it was delivered, answered or stored."""
    retry_safe: bool
    """Whether sending again cannot make the message arrive twice."""
    sentence: str
    """What happened, for people."""
    advice: str
    """What to do now, for people; empty when there is nothing to do."""

    def __new__(cls, value: str, ok: bool, retry_safe: bool, sentence: str, advice: str = "") -> Self:
        """Return a member whose value is its name in JSON."""
        member = object.__new__(cls)
        member._value_ = value
        member.ok = ok
        member.retry_safe = retry_safe
        member.sentence = sentence
        member.advice = advice
        return member


Kind_co = TypeVar("Kind_co", bound=Outcome, covariant=True)


@dataclass(frozen=True, slots=True)
class Sent(Generic[Kind_co]):
    """The end of one ``send``."""

    outcome: Kind_co
    failure: WaystationError | None = field(default=None, kw_only=True)
    """What ``check`` raises; None where the outcome's own sentence says it all."""

    @property
    def ok(self) -> bool:
        """Whether what the protocol promises has happened."""
        return self.outcome.ok

    @property
    def retry_safe(self) -> bool:
        """Whether sending again cannot make the message arrive twice."""
        return self.outcome.retry_safe

    @property
    def sentence(self) -> str:
        """What happened, for people, with names and numbers where they are known."""
        return self.outcome.sentence if self.failure is None else str(self.failure)

    @property
    def advice(self) -> str:
        """What to do now, for people; empty when there is nothing to do."""
        return self.outcome.advice

    def check(self) -> Self:
        """Return this when it is ``ok``.

        Raises:
            WaystationError: It is not; ``failure`` where there is one.
        """
        if self.ok:
            return self
        raise self.failure or NotTakenError(f"{self.sentence}; {self.advice}" if self.advice else self.sentence)

    async def settled(self) -> Kind_co:
        """Return the last outcome that this message will have; most protocols know it when ``send`` returns."""
        return self.outcome
