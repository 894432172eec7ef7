"""Laws of manage: a peer that may invites, lists and unpairs while the device runs; others are refused."""

import json

from tests.micropython.build import Asker, ask, connected
from waystation.cli.mcu.package import device_module
from waystation.core.ids import encode_id52
from waystation.protocols.bhumi.messages import FrameType
from waystation.protocols.bhumi.payload.contents import Command, ContentType, encode_command
from waystation.protocols.bhumi.payload.invite import decode_invite


def command(relay, asker, name, arguments=None):
    """Return the answer to a command."""
    answer = ask(relay, asker, encode_command(Command(name, arguments)), ContentType.COMMAND)
    return json.loads(answer.content)


def test_invite_in_the_field(make, relay):
    """The answer is an invitation whose commit the relay has by then, and which is in the state."""
    board = make()
    asker = connected(board, relay)
    relay.say(
        FrameType.DELIVER,
        asker.delivery(1, encode_command(Command("bhumi:invite", {"alias": "eve", "hours": 0})), ContentType.COMMAND),
    )
    registered = relay.until(FrameType.UPDATE_COMMITS)
    given = json.loads(asker.opened(relay.until(FrameType.ACK))[1].content)["data"]

    invite = decode_invite(given["token"])
    state = device_module("state").State(str(board.folder / "bhumi.state"))
    assert (invite.identity, invite.relays, invite.suite, given["expires_s"]) == (state.identity, (relay.url,), 4, 0)
    assert (invite.preimage, "eve", invite.secret, 0) in state.invites
    assert registered[2:] == device_module("frames").commit_of(invite.preimage) and len(invite.authority) == 32


def test_invite_ends(make, relay):
    """With a clock that is set an invitation ends after a week, or after the hours that are asked for."""
    board = make(patches="from bhumi import manage\ndevice.unix_s = manage.unix_s")
    asker = connected(board, relay)
    answer = command(relay, asker, "bhumi:invite", {"hours": 2})

    assert decode_invite(answer["data"]["token"]).expires_s == answer["data"]["expires_s"] > 1_700_000_000
    assert "hours is a number" in command(relay, asker, "bhumi:invite", {"hours": "x"})["error"]


def test_peers_and_unpair(make, relay):
    """An unpaired peer's permissions end at once, at the relay too; who manages cannot unpair itself."""
    board = make()
    manager = Asker(board.folder)
    guest = Asker(board.folder, number=9)
    board.start()
    relay.accept()
    relay.welcome()
    board.until("listening")
    listed = command(relay, manager, "bhumi:peers")["data"]
    named = {"peer": encode_id52(guest.key_pair.public)}
    refused = command(relay, manager, "bhumi:unpair", {"peer": encode_id52(manager.key_pair.public)})
    relay.say(
        FrameType.DELIVER, manager.delivery(1, encode_command(Command("bhumi:unpair", named)), ContentType.COMMAND)
    )
    revoked = relay.until(FrameType.REVOKE_COMMITS)
    done = json.loads(manager.opened(relay.until(FrameType.ACK))[1].content)

    assert [(each["id"], each["manages"]) for each in listed] == [
        (encode_id52(manager.key_pair.public), True),
        (encode_id52(guest.key_pair.public), False),
    ]
    assert refused["error"] == "a peer cannot unpair itself"
    assert done == {"ok": True, "data": {"unpaired": "bob"}} and len(revoked) == 2 + 16 * 32
    state = device_module("state").State(str(board.folder / "bhumi.state"))
    assert [peer.key for peer in state.peers] == [manager.key_pair.public]


def test_others_may_not_manage(make, relay):
    """A peer without the right is refused with the reason, and no such command ever reaches the handler."""
    board = make()
    manager = Asker(board.folder)
    guest = Asker(board.folder, number=9)
    board.start()
    relay.accept()
    relay.welcome()
    board.until("listening")

    assert command(relay, guest, "bhumi:invite") == {"ok": False, "error": "bob may not manage this device"}
    assert "no command bhumi:reboot" in command(relay, manager, "bhumi:reboot")["error"]
    assert command(relay, guest, "led")["data"] == {"did": "led"}
    board.until("answered bob: {")
    assert sum(line.startswith("asked") for line in board.lines) == 1


def test_role_is_checked_before_the_handler(make, relay):
    """A peer with a role is refused what the role does not name, with the reason, and the handler does not get it."""
    board = make(options='roles={"guest": ("light", "text")}')
    manager = Asker(board.folder)
    guest = Asker(board.folder, number=9, alias="guest")
    board.start()
    relay.accept()
    relay.welcome()
    board.until("listening")

    assert command(relay, guest, "led") == {"ok": False, "error": "this peer may not send 'led'"}
    assert command(relay, guest, "light")["data"] == {"did": "light"}
    assert ask(relay, guest, b"hello").content == b"heard hello"
    assert ask(relay, guest, b"\x00", ContentType.BINARY).content != b"\x00"
    assert command(relay, guest, "spares", {"n": 1})["ok"]
    assert command(relay, manager, "led")["data"] == {"did": "led"}
    board.until("answered bob: {")
    assert sum(line.startswith("asked") for line in board.lines) == 3
