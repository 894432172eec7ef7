"""Laws of protocols.bsp.mailbox_owner."""

from typing import NamedTuple

import pytest

from tests.protocols.bsp.build_mailbox import CLIENT_ID, key_pair
from waystation.core.errors import LocalError
from waystation.protocols.bsp.graph.formats import deps_v1_body, deps_v1_content
from waystation.protocols.bsp.mailbox.commands import (
    HOSTED_DESCRIPTOR_BYTES_MAX,
    KEEP_MAX_MS,
    MEMBERS_MAX,
    Amounts,
    AnswerStatus,
    ChangeMembers,
    Done,
    Host,
    State,
    Status,
    decode,
    encode,
)
from waystation.protocols.bsp.mailbox.owner import Answered, answers, change_members, command_body, host, unanswered
from waystation.protocols.bsp.profile import BRIAR, SEED

A, B = key_pair(2).public, key_pair(3).public
GROUP = SEED.group(CLIENT_ID, b"friends", "deps_v1")
DONE = Done(AnswerStatus.DONE)
DAY_MS = 86_400_000


class Message(NamedTuple):
    """One message of the control group."""

    message_id: bytes
    timestamp: int
    dependencies: tuple[bytes, ...]
    body: bytes | None


def said(number, what, *dependencies, at=0):
    """Return a message that says something."""
    names = tuple(id_of(each) for each in dependencies)
    content = what if isinstance(what, bytes) else encode(what)
    return Message(id_of(number), at, names, deps_v1_body(names, content))


def id_of(number):
    """Return an identifier."""
    return bytes([number]) * 32


def test_host_takes_a_group_as_it_is():
    """Format, members without repeats and time stand in the command."""
    assert host(GROUP, [A, B, A], keep_ms=5_000) == Host(
        GROUP.group_id, CLIENT_ID, b"friends", (A, B), "deps_v1", 5_000
    )


def test_formats_of_applications_are_opaque_to_a_mailbox():
    """What only the application can read is hosted all the same."""
    assert host(GROUP._replace(format="chat"), []).format == "opaque"


@pytest.mark.parametrize(("over", "fits"), [(-1, True), (0, True), (1, False)])
def test_what_does_not_fit_a_command_is_the_callers_mistake(over, fits):
    """Descriptor, members and time each have a bound."""
    asked = [
        lambda: host(SEED.group(CLIENT_ID, bytes(HOSTED_DESCRIPTOR_BYTES_MAX + over), "opaque"), []),
        lambda: host(GROUP, [number.to_bytes(32, "big") for number in range(MEMBERS_MAX + over)]),
        lambda: host(GROUP, [], keep_ms=KEEP_MAX_MS + over),
        lambda: change_members(GROUP.group_id, [number.to_bytes(32, "big") for number in range(MEMBERS_MAX + over)]),
    ]
    for ask in asked:
        if fits:
            assert decode(encode(ask())) == ask()
        else:
            with pytest.raises(LocalError):
                ask()


def test_other_bounds():
    """A time below a second, and another major version, are refused."""
    with pytest.raises(LocalError, match="1 second"):
        host(GROUP, [], keep_ms=999)
    with pytest.raises(LocalError, match="major version 0"):
        host(BRIAR.group(b"x", b"", "opaque", 1), [])


def test_changes_name_both_lists():
    """Without repeats."""
    assert change_members(GROUP.group_id, [A, A], [B]) == ChangeMembers(GROUP.group_id, (A,), (B,))


def test_first_command_depends_on_nothing():
    """Nor does one behind commands that were answered, or that are gone."""
    log = [said(1, Status()), said(2, DONE, 1), Message(id_of(3), 0, (), None)]

    assert command_body(Status(), [], 0) == command_body(Status(), log, 0) == deps_v1_body((), encode(Status()))


def test_command_waits_for_the_last_that_is_not_answered():
    """So the mailbox carries them out in their order."""
    log = [said(1, Status()), said(2, DONE, 1), said(3, Status(), at=5), said(4, Status(), 3, at=6)]
    body = command_body(Status(), log, 7)

    assert body == deps_v1_body((id_of(4),), encode(Status()))
    assert deps_v1_content(body) == encode(Status())
    assert [each.message_id for each in unanswered(log)] == [id_of(3), id_of(4)]


@pytest.mark.parametrize(("age_ms", "waits"), [(DAY_MS, True), (DAY_MS + 1, False)])
def test_command_does_not_wait_for_ever(age_ms, waits):
    """What a mailbox may have lost holds nothing up after a day."""
    body = command_body(Status(), [said(1, Status(), at=100)], 100 + age_ms)

    assert body == deps_v1_body([id_of(1)] if waits else [], encode(Status()))


def test_answers_are_found_with_their_commands():
    """Whatever else stands in the group: nothing that cannot be read, and no answer to several or to none."""
    nothing = Amounts(0, 0, 0, 0)
    state = State(nothing, nothing, False, ())
    log = [said(1, Status()), said(2, b"\x01\xff"), said(3, DONE), said(4, DONE, 1, 2), said(5, state, 1)]
    log.append(Message(id_of(6), 0, (id_of(1),), b"\xff"))

    assert answers(log) == [Answered(id_of(1), id_of(5), state)]
