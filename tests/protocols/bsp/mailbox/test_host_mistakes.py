"""Random towns find mistakes of a mailbox."""

import pytest

from tests.protocols.bsp.build_mailbox import MailboxParty
from tests.protocols.bsp.mailbox.test_host_random import Town
from waystation.protocols.bsp.limits import BspLimits
from waystation.protocols.bsp.mailbox.commands import AnswerStatus
from waystation.protocols.bsp.mailbox.groups import HostedGroups
from waystation.protocols.bsp.mailbox.host import Mailbox

TOWNS = 30


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
    monkeypatch.setitem(MailboxParty.__init__.__kwdefaults__, "limits", BspLimits(commands_burst=1))


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
    """Each mistake is found within a few towns."""
    plant(monkeypatch)

    with pytest.raises((AssertionError, LookupError)):
        live(*range(TOWNS))


def live(*seeds):
    """Live through random towns."""
    for seed in seeds:
        town = Town(seed)
        for _ in range(60):
            town.step()
            town.check()
