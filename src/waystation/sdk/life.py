"""The states of every SDK client (new, open, closed), and the error for a call in the wrong one.

A client class inherits ``Client`` and supplies ``_life``, ``_open`` and ``aclose``; its methods call ``Life.check`` or
``part`` first, and return ``Life.read`` for what arrives. A ``Reading`` lets one task wait at a time; when that task is
cancelled, the next one goes on where it was.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeVar

from waystation.sdk.errors import ClosedError, InUseError, NotOpenError

__all__ = ["Client", "Life", "Opening", "Reading"]

_Item = TypeVar("_Item")
_Client = TypeVar("_Client")


class Life:
    """The state of one client: new, then open, then closed for good."""

    def __init__(self, name: str) -> None:
        """Begin; ``name`` is how sentences call the client, such as ``the MERK client``."""
        self._name = name
        self._is_open = False
        self._is_closed = False
        self._busy: set[str] = set()

    def open(self) -> None:
        """Note that the client opens.

        Raises:
            InUseError: It is open already.
            ClosedError: It was closed.
        """
        if self._is_open:
            raise InUseError(f"{self._name} is open already: open it once, and share the object between tasks")
        self._check_closed()
        self._is_open = True

    def close(self) -> None:
        """Note that the client is closed."""
        self._is_open, self._is_closed = False, True

    def check(self) -> None:
        """Return when the client is open.

        Raises:
            NotOpenError: It was never opened.
            ClosedError: It was closed.
        """
        if not self._is_open:
            self._check_closed()
            raise NotOpenError(f"{self._name} is not open yet: use it inside `async with`")

    def part(self, part: "_Item | None") -> "_Item":
        """Return a part that the client has while it is open.

        Raises:
            NotOpenError: The client was never opened.
            ClosedError: The client was closed.
        """
        if part is None:
            self.check()
            raise NotOpenError(f"{self._name} is still opening: wait until `async with` has begun")
        return part

    def read(self, what: str, source: "Callable[[], AsyncGenerator[_Item, None]]") -> "Reading[_Item]":
        """Return an iterator over ``source``, which one task at a time may wait for.

        Args:
            what: How sentences call it, such as ``messages()``.
            source: Makes the generator; called again when a task that waited was cancelled.

        Raises:
            NotOpenError: The client was never opened.
            ClosedError: The client was closed.
        """
        self.check()
        return Reading(self._busy, f"{what} of {self._name}", source)

    def _check_closed(self) -> None:
        if self._is_closed:
            raise ClosedError(f"{self._name} is closed: open another one")


class Client(ABC):
    """A client that is used in ``async with``, once; what keeps it from opening closes it as well."""

    _life: Life

    @abstractmethod
    async def _open(self) -> None:
        """Open all parts; raises whatever keeps the client from opening."""

    @abstractmethod
    async def aclose(self) -> None:
        """Close all parts, those of a client that is half open too; safe to call twice."""

    async def __aenter__(self) -> Self:
        self._life.open()
        try:
            await self._open()
        except BaseException:
            await self.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class Opening(AbstractAsyncContextManager[_Client], Generic[_Client]):
    """What ``open`` returns where several parts make a client: a client in ``async with``, and a sentence before."""

    def __init__(self, name: str, parts: AbstractAsyncContextManager[_Client]) -> None:
        """Wrap ``parts``, which opens the client; ``name`` is as for ``Life``."""
        self._life: Final = Life(name)
        self._parts: Final = parts
        self._client: _Client | None = None

    async def __aenter__(self) -> _Client:
        """Return the open client.

        Raises:
            InUseError: It is open already.
            ClosedError: It was closed.
        """
        self._life.open()
        try:
            self._client = await self._parts.__aenter__()
        except BaseException:
            self._life.close()
            raise
        return self._client

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        self._life.close()
        return await self._parts.__aexit__(kind, error, trace)

    if not TYPE_CHECKING:  # a type checker shall go on to see that a call without ``async with`` is a mistake

        def __getattr__(self, name: str) -> Any:
            """Return what the open client has; raises NotOpenError before, and ClosedError after."""
            if name.startswith("_"):
                raise AttributeError(name)
            self._life.check()
            return getattr(self._life.part(self._client), name)


class Reading(AsyncIterator[_Item], Generic[_Item]):
    """An iterator over what arrives at a client. A task that is cancelled while it waits takes nothing with it."""

    def __init__(
        self, busy: set[str], what: str, source: Callable[[], AsyncGenerator[_Item, None]], *, resumes: bool = True
    ) -> None:
        """Read from what ``source`` returns.

        Args:
            busy: What tasks wait for now, over all iterators of a client that share their items.
            what: How sentences call it.
            source: Makes the generator.
            resumes: Whether another one goes on where a generator was that was cancelled.
        """
        self._busy: Final = busy
        self._what: Final = what
        self._source: Final = source
        self._resumes: Final = resumes
        self._items: AsyncGenerator[_Item, None] | None = source()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> _Item:
        """Return the next item.

        Raises:
            InUseError: Another task waits already.
            ClosedError: A task that waited was cancelled, and this iterator cannot go on where it was.
        """
        if self._what in self._busy:
            raise InUseError(f"another task reads {self._what} already: let one task read, and hand out what it gets")
        if self._items is None:
            if not self._resumes:
                raise ClosedError(f"{self._what} ended when a task that waited was cancelled: call it again")
            self._items = self._source()
        self._busy.add(self._what)
        try:
            return await anext(self._items)
        except asyncio.CancelledError:
            self._items = None
            raise
        finally:
            self._busy.discard(self._what)

    async def aclose(self) -> None:
        """End the reading; another one may begin."""
        if self._items is not None:
            await self._items.aclose()
