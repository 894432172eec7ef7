"""Laws of strata.descriptor: what a relay says about itself, and when it says it anew."""

import pytest

from tests.protocols.strata.build import NOW, RELAY, did, packet_of
from tests.protocols.strata.drive import Drive
from waystation.crypto.signing import verify_any
from waystation.protocols.strata.relay.descriptor import (
    DESCRIPTOR,
    LIFE_S,
    RENEW_BEFORE_S,
    make_descriptor,
    relay_policy,
)
from waystation.protocols.strata.settings import StrataSettings

URL = "wss://relay.example:444/strata"
DAY = 86_400


def described(url=URL, **settings):
    """Return the descriptor of a relay at this address."""
    return make_descriptor(StrataSettings(public_url=url, **settings), RELAY, did(RELAY), NOW)


def shown(drive):
    """Return what the relay answers when asked for its descriptor."""
    return drive.get("/strata/descriptor")


def test_the_packet_is_the_relays_own():
    """It names the relay it is signed by, and any reader can check both."""
    packet = packet_of(described().body)

    assert packet.id_matches
    assert verify_any((RELAY.public,), packet.preimage, packet.signature) == 0
    assert (packet.author_id, packet.content_type) == (did(RELAY), DESCRIPTOR)
    assert packet.body["content"]["relay_id"] == did(RELAY)


@pytest.mark.parametrize(
    ("url", "http"),
    [
        (URL, "https://relay.example:444"),
        ("ws://127.0.0.1:8080/strata", "http://127.0.0.1:8080"),
        ("wss://[2001:db8::1]/a/b", "https://[2001:db8::1]"),
        ("ws://host", "http://host"),
    ],
)
def test_addresses_belong_together(url, http):
    """The base of plain HTTP is the host of the WebSocket, with TLS when that has it."""
    content = described(url).body["content"]

    assert (content["ws_endpoint"], content["http_base_url"]) == (url, http)


def test_it_lives_for_thirty_days():
    """From its own timestamp."""
    packet = described()

    assert (packet.timestamp, packet.expires_at) == (NOW, NOW + LIFE_S)
    assert LIFE_S == 30 * DAY


def test_policy_follows_the_settings():
    """Retention, backfill and who may publish are what the operator chose."""
    closed = relay_policy(StrataSettings(anonymous=[], auth_grants=["subscribe"], retention_days=9, max_backfill_s=DAY))

    assert closed["accepts_public_packets"] is False
    assert (closed["default_retention_days"], closed["max_backfill_seconds"]) == (9, DAY)
    assert closed["protected_accounts"] == "none"
    assert relay_policy(StrataSettings(anonymous=["publish"]))["accepts_public_packets"] is True
    assert relay_policy(StrataSettings(anonymous=[]))["accepts_public_packets"] is True


def test_nothing_is_announced_without_an_address():
    """A relay that does not know how it is reached publishes nothing about itself."""
    drive = Drive()
    drive.pass_time(0)

    assert shown(drive)[0] == 404
    assert drive.rows() == []


def test_it_is_renewed_before_it_expires():
    """A week before the end a new one comes, not sooner, and the newest is shown."""
    drive = Drive(public_url=URL)
    drive.pass_time(0)
    first = shown(drive)[1]["packet"]
    drive.pass_time(LIFE_S - RENEW_BEFORE_S - 3_600)
    same = shown(drive)[1]["packet"]
    drive.pass_time(3_600)
    drive.pass_time(3_600)
    renewed = shown(drive)[1]["packet"]

    assert same == first
    assert renewed["packet_id"] != first["packet_id"]
    assert renewed["expires_at"] > first["expires_at"]
    assert [row.content_type for row in drive.rows()] == [DESCRIPTOR] * 2


def test_a_restart_does_not_announce_again():
    """What is stored and lives long enough is enough."""
    drive = Drive(public_url=URL)
    drive.pass_time(0)
    again = drive.restarted(public_url=URL)
    again.pass_time(0)

    assert len(again.rows()) == 1
