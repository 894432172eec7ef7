"""Wraps the message formats of applications, so that an exception in one ends no connection.

``BspPeer`` wraps every format that a program gives it. A format checks bytes of unknown senders while a device runs. If
it raises an unexpected exception, the message counts as invalid. The failure is reported once per format.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from waystation.core.errors import LocalError
from waystation.protocols.bsp.device.groups import Group
from waystation.protocols.bsp.device.sync import BspDevice
from waystation.protocols.bsp.graph.formats import FORMATS, ClientFormat, Context, InvalidMessageError
from waystation.protocols.bsp.graph.order import State

__all__ = ["FormatFailed", "check_own", "guarded"]


class FormatFailed(NamedTuple):
    """A format raised what it must not; the message counts as invalid. Reported once for each format."""

    format: str
    reason: str


class _Guarded:
    """Implements ``ClientFormat`` with that of an application."""

    def __init__(self, name: str, form: ClientFormat, report: Callable[[FormatFailed], None]) -> None:
        self.judges = form.judges
        self._name = name
        self._form = form
        self._report = report
        self._has_failed = False

    def parse(self, body: bytes) -> Sequence[bytes]:
        try:
            return self._form.parse(body)
        except InvalidMessageError:
            raise
        except Exception as error:
            raise InvalidMessageError(self._fail("parse", error)) from error

    def validate(self, context: Context) -> bool:
        try:
            return self._form.validate(context)
        except Exception as error:  # noqa: BLE001 - an application's fault; it is reported
            # Seed 5: every device must find the same; raising is taken for "invalid" on all.
            self._fail("validate", error)
            return False

    def _fail(self, method: str, error: Exception) -> str:
        reason = f"{method} raised {type(error).__name__}: {error}"
        # Once: a peer could send such messages without end.
        if not self._has_failed:
            self._has_failed = True
            self._report(FormatFailed(self._name, reason))
        return reason


def guarded(formats: Mapping[str, ClientFormat], report: Callable[[FormatFailed], None]) -> dict[str, ClientFormat]:
    """Return formats that raise nothing but what the device expects.

    Args:
        formats: By name.
        report: Called with the first fault of each.

    Raises:
        LocalError: One of them lacks something that the device asks for.
    """
    return {
        # The built-in formats need no guard; it would cost a call for each message.
        name: form if form is FORMATS.get(name) else _Guarded(name, _checked(name, form), report)
        for name, form in formats.items()
    }


def _checked(name: str, form: Any) -> ClientFormat:
    if not isinstance(getattr(form, "judges", None), bool):
        raise LocalError(f"format {name!r} must say in `judges` whether its `validate` is to be asked: True or False")
    for method in ("parse", "validate"):
        if not callable(getattr(form, method, None)):
            raise LocalError(f"format {name!r} has no method {method!r}")
    checked: ClientFormat = form
    return checked


def check_own(device: BspDevice, form: ClientFormat, group: Group, timestamp: int, body: bytes) -> None:
    """Refuse a message of our own that every other device would find invalid.

    A device takes its own messages as they are (bsp 4), so this must be asked before.

    Raises:
        LocalError: The format says no. What is wrong besides, the device says.
    """
    if not form.judges:
        return

    def look(message_id: bytes) -> tuple[int, bytes | None] | None:
        vertex = device.vertex(group.group_id, message_id)
        if vertex is None or vertex.state is not State.DELIVERED:
            return None
        return vertex.timestamp, device.body(group.group_id, message_id)

    try:
        dependencies = tuple(dict.fromkeys(form.parse(body)))
    except InvalidMessageError:
        return
    # Seed 5: judged once all dependencies are delivered; until then nobody can say.
    if any(look(each) is None for each in dependencies):
        return
    message_id = device.profile.message_id(group.group_id, timestamp, body)
    if not form.validate(Context(group.group_id, message_id, timestamp, body, dependencies, look)):
        raise LocalError(f"format {group.format!r} finds this message invalid, as every other device would")
