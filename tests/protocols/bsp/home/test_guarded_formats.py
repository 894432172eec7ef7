"""Laws of what a format of an application may do to a device."""

import pytest

from waystation.core.errors import LocalError
from waystation.core.instant import Instant
from waystation.protocols.bsp.device.sync import BspDevice
from waystation.protocols.bsp.graph.formats import FORMATS, Context, InvalidMessageError
from waystation.protocols.bsp.home.guarded_formats import check_own, guarded
from waystation.protocols.bsp.profile import SEED
from waystation.store.memory import MemoryStore


class Even:
    """One digit, valid when it is even; some make it stumble."""

    judges = True

    def parse(self, body):
        if body == b"none":
            raise InvalidMessageError("no digit")
        int(body)
        return ()

    def validate(self, context):
        return int(context.body) % 2 == 0


class Unready(Even):
    """Does not say whether it judges."""

    judges = None


def test_fault_of_a_format_is_an_invalid_message_and_reported_once():
    """What it raises by mistake ends nothing; the first time is told with its reason."""
    told = []
    form = guarded({"even": Even()}, told.append)["even"]
    context = Context(bytes(32), bytes(32), 1, b"x", (), lambda _: None)
    for _ in range(2):
        with pytest.raises(InvalidMessageError, match="parse raised ValueError"):
            form.parse(b"x")

    assert not form.validate(context)
    assert [(each.format, each.reason.partition(":")[0]) for each in told] == [("even", "parse raised ValueError")]


def test_own_formats_stay_as_they_are_and_others_are_complete():
    """The built-in ones need no guard; one that lacks something is refused before a message comes."""
    assert guarded(FORMATS, lambda _: None) == FORMATS
    for form in (Unready(), 7):
        with pytest.raises(LocalError, match="judges"):
            guarded({"mine": form}, lambda _: None)


def test_message_that_every_other_device_would_refuse_is_not_ours_to_send():
    """What the format finds invalid is refused; what it cannot read, the device refuses itself."""
    formats = guarded({"even": Even()}, lambda _: None)
    device = BspDevice(SEED, MemoryStore(), formats=formats)
    group = SEED.group(bytes(32), b"", "even")
    device.join(group, Instant(0))

    check_own(device, formats["even"], group, 1, b"2")
    check_own(device, formats["even"], group, 1, b"none")
    with pytest.raises(LocalError, match="finds this message invalid"):
        check_own(device, formats["even"], group, 1, b"3")
