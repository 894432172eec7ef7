"""Laws of sdk.bhumi_events: what a handler is given can be read as text and as a command."""

import pytest

from tests.sdk.build import BOB
from waystation.protocols.bhumi.payload.contents import Command, ContentType, MalformedPayloadError, encode_command
from waystation.sdk.bhumi import events
from waystation.sdk.bhumi.events import DeviceEvent, Request, SenderEvent


def test_text_replaces_what_is_no_utf8():
    """A handler that wants text always gets some."""
    assert Request(BOB.public, "bob", ContentType.BINARY, b"a\xffb").text == "a\ufffdb"


def test_command_is_read():
    """A command comes as what it says; anything else is refused."""
    content = encode_command(Command("led", 1))

    assert Request(BOB.public, "bob", ContentType.COMMAND, content).command() == Command("led", 1)
    with pytest.raises(MalformedPayloadError):
        Request(BOB.public, "bob", ContentType.TEXT, b"hi").command()


def test_every_event_is_one():
    """What the module names as an event is part of the union, and the other way round."""
    others = {"DeviceEvent", "Handler", "Request", "SenderEvent"}

    assert {kind.__name__ for kind in DeviceEvent.__args__} == set(events.__all__) - others
    assert set(SenderEvent.__args__) < set(DeviceEvent.__args__)
