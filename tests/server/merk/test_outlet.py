"""Laws of server.merk.outlet: what the log tells of connections that became no link."""

import pytest

from tests.server.build import eventually
from tests.server.dialling.test_dialler import run
from waystation.core.effects import Close
from waystation.protocols.bhumi import messages


async def dial_and_close(stage, status, number):
    """Let the site close a dialled connection, and wait until that was noticed."""
    stage.dial(stage.site.url("/binary"))
    await stage.site.binary.until(lambda: len(stage.site.binary.pipes) == number)
    stage.site.binary.pipes[-1].close(status)
    await eventually(lambda: len(stage.relay.calls) == number and not len(stage.dialler))


@pytest.mark.parametrize(
    ("status", "told", "says", "level"),
    [
        (1013, 1013, "it takes no more peers", "warning"),
        (4401, 4401, "our key is banned there", "warning"),
        (4408, 4408, "not there in time", "warning"),
        (4409, 4409, "linked with it already", "debug"),
        (0, 1000, "it gave no reason", "warning"),
    ],
)
def test_end_before_a_link_is_a_refusal_in_words(status, told, says, level):
    """What the other side closed with is told; a second connection of two nodes is no trouble."""
    _, lines = run(lambda stage: dial_and_close(stage, status, 1))
    (line,) = [line for line in lines if line["event"] == "peer.refused"]

    assert (line["status"], line["log_level"]) == (told, level)
    assert says in line["error"]
    assert line["url"].startswith("ws://127.0.0.1:")


def test_same_refusal_is_told_once():
    """Connections that stand in between, of which each is refused alike, are no change; another status is."""

    async def story(stage):
        for number, status in enumerate((1013, 1013, 4401, 4401, 1013), 1):
            await dial_and_close(stage, status, number)

    _, lines = run(story)

    assert [line["status"] for line in lines if line["event"] == "peer.refused"] == [1013, 4401, 1013]


def test_connection_that_our_relay_closes_is_no_refusal():
    """Why it did so stands in the line of the close."""

    async def story(stage):
        stage.dial(stage.site.url("/binary"))
        await stage.settled()
        stage.relay.outbox.append(Close(stage.relay.stands["other"], messages.Status.GONE))
        stage.rig.hub.plan_turn()
        await eventually(stage.rig.hub.idle)

    _, lines = run(story)

    assert [line["event"] for line in lines] == ["peer.connected"]
