"""The fuzz target of the mailbox finds mistakes, and knows the ways that an input can go."""

import pytest

from fuzz.bsp.mailbox import BspMailboxTarget
from fuzz.run import fuzz
from waystation.protocols.bsp.limits import BspLimits
from waystation.protocols.bsp.mailbox import host
from waystation.protocols.bsp.mailbox.commands import AnswerStatus
from waystation.protocols.bsp.mailbox.groups import HostedGroups
from waystation.protocols.bsp.mailbox.host import Mailbox


def test_inputs_get_somewhere():
    """Inputs get as far as every answer that one owner can get."""
    outcomes, found = fuzz(BspMailboxTarget(), 150, 7)
    words = {word for outcome in outcomes for word in outcome.split()}

    assert found is None
    assert words == {
        *("done", "groups_full", "ignored", "not_hosted", "other_format", "served", "state", "unreadable"),
        *("weak_key", "wrong_group_id"),
    }


def believes_identifiers(monkeypatch):
    """Any client identifier will do."""
    monkeypatch.setattr(Mailbox, "_is_right", lambda mailbox, wanted: True)


def shares_too_little(monkeypatch):
    """Members are written down, and nothing is shared with them."""
    monkeypatch.setattr(HostedGroups, "_share", lambda groups, hosting, now: None)


def hosts_control_groups(monkeypatch):
    """A control group is one like others."""
    monkeypatch.setattr(HostedGroups, "hosted_for", lambda groups, owner, group_id: groups.hostings.get(group_id))


def drops_nothing(monkeypatch):
    """Says that it has dropped a group, and has not."""
    monkeypatch.setattr(Mailbox, "_drop", lambda mailbox, owner, group_id, now: AnswerStatus.DONE)


def serves_nobody(monkeypatch):
    """Any 32 bytes are a member."""
    monkeypatch.setattr(Mailbox, "_has_weak", lambda mailbox, keys: False)


def answers_too_late(monkeypatch):
    """Lets every other command wait."""
    monkeypatch.setattr(host, "DEFAULT_LIMITS", BspLimits(commands_burst=1))


@pytest.mark.parametrize(
    "plant",
    [
        believes_identifiers,
        shares_too_little,
        hosts_control_groups,
        drops_nothing,
        serves_nobody,
        answers_too_late,
    ],
)
def test_planted_mistake_is_found(monkeypatch, plant):
    """Each mistake is found within a few hundred inputs."""
    plant(monkeypatch)
    _, found = fuzz(BspMailboxTarget(), 300, 7)

    assert found is not None
