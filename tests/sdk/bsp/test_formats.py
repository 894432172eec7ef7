"""Laws of what a device may ask the format of an application."""

import asyncio
from typing import ClassVar

import pytest

from tests.sdk.bsp.build import acquaint, bodies, devices, next_event
from waystation.core.errors import LocalError
from waystation.sdk.bsp import (
    FORMATS,
    BspPeer,
    DepsV1,
    FormatFailed,
    InvalidMessageError,
    PeerHolds,
    State,
    deps_v1_body,
)


class Even:
    """An application's messages: one digit, valid when it is even; some make it stumble."""

    judges = True

    def parse(self, body):
        if body == b"parse":
            raise KeyError("unheard of")
        if body == b"none":
            raise InvalidMessageError("no digit")
        return ()

    def validate(self, context):
        if context.body == b"validate":
            raise KeyError("unheard of")
        return int(context.body) % 2 == 0


class After(DepsV1):
    """Messages that are later than all that they depend on."""

    judges: ClassVar[bool] = True

    def validate(self, context):
        return all(context.look(each)[0] < context.timestamp for each in context.dependencies)


class Lacking:
    """A format whose author read the first half of the documentation."""

    judges = True

    def parse(self, body):
        return ()


class Silent(Lacking):
    """A format that does not say whether it judges."""

    judges = None


FORMATS_HERE = {**FORMATS, "even": Even(), "after": After()}


@pytest.mark.parametrize(
    ("form", "what"), [(Lacking(), "no method 'validate'"), (Silent(), "`judges`"), (7, "`judges`")]
)
def test_format_that_lacks_something_is_refused_at_once(tmp_path, form, what):
    """Not the first message of a peer finds out, but whoever hands the format over."""
    with pytest.raises(LocalError, match=what):
        BspPeer(tmp_path, formats={"mine": form})


@pytest.mark.parametrize("fault", [b"parse", b"validate"])
def test_format_that_stumbles_over_a_message_finds_it_invalid(tmp_path, fault):
    """What a format raises by mistake makes that message invalid, is told once, and holds up nothing else."""

    async def main():
        async with devices(tmp_path, 1) as (alice,), BspPeer(tmp_path / "bob", formats=FORMATS_HERE) as bob:
            group = await alice.create_group("talk")
            await acquaint(alice, bob, group)
            await bob.leave(group)
            await bob.join(group._replace(format="even"))
            await bob.share(group, alice.key)
            for timestamp, body in ((1, fault), (2, fault), (3, b"4")):
                await alice.send(group, body, timestamp=timestamp)
            news, alices = bob.news(), alice.news()
            bob.connect(alice.key, await alice.listen())
            told = await next_event(news, lambda event: isinstance(event, FormatFailed))
            for _ in range(3):
                await next_event(alices, lambda event: isinstance(event, PeerHolds))
            return told, [(each.state, each.body) for each in bob.history(group, every=True)]

    told, messages = asyncio.run(main())

    assert (told.format, f"{fault.decode()} raised KeyError" in told.reason) == ("even", True)
    assert messages == [(State.DELIVERED, b"4"), *[(State.INVALID, None)] * 2]


def test_own_message_that_others_would_refuse_is_not_added(tmp_path):
    """What the format finds invalid is refused before it is written, and so is what it cannot read."""

    async def main():
        async with BspPeer(tmp_path, formats=FORMATS_HERE) as alice:
            even = await alice.create_group("even", format="even")
            for body, what in ((b"3", "finds this message invalid"), (b"none", "no digit")):
                with pytest.raises(LocalError, match=what):
                    await alice.send(even, body)
            await alice.send(even, b"2")
            return bodies(alice, even)

    assert asyncio.run(main()) == [b"2"]


def test_own_message_is_judged_in_its_context(tmp_path):
    """A format sees what the message depends on, deleted bodies included; what is not there the device refuses."""

    async def main():
        async with BspPeer(tmp_path, formats=FORMATS_HERE) as alice:
            group = await alice.create_group("talk", format="after")
            root = (await alice.send(group, deps_v1_body([], b"root"), timestamp=5)).message
            await alice.delete(group, root.message_id)
            with pytest.raises(LocalError, match="finds this message invalid"):
                await alice.send(group, deps_v1_body([root.message_id], b"early"), timestamp=5)
            with pytest.raises(LocalError, match="depends on"):
                await alice.send(group, deps_v1_body([bytes(32)], b"orphan"), timestamp=6)
            return ((await alice.send(group, deps_v1_body([root.message_id], b"late"), timestamp=6)).message).order

    assert asyncio.run(main()) == 2
