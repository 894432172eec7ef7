import asyncio
import json
import socket
import time

import pytest
import typer

from tests.transport.datagrams.build_mdns import WITHIN_S
from waystation.cli.bhumi.relays import Wishes, show_relays
from waystation.core.errors import LocalError
from waystation.core.ids import encode_id52
from waystation.crypto.signing import KeyPair
from waystation.protocols.bhumi.extension_messages import Relays, RelaysRequest
from waystation.protocols.bhumi.extension_wire import encode_extension
from waystation.protocols.bhumi.messages import Feature, Hello, Options
from waystation.protocols.bhumi.signed_records import sign_advert
from waystation.protocols.bhumi.wire import encode
from waystation.sdk.bhumi.quality import RelayQuality
from waystation.sdk.bhumi.relay_book import RelayBook

HOME = "tls://relay.example:8443"
RELAY = KeyPair.from_seed(bytes([0x0E]) * 32)


def shown(home, capfd, **wishes):
    """Return what is printed as JSON."""
    show_relays(home, Wishes(**wishes), None, as_json=True)
    return [json.loads(line) for line in capfd.readouterr()[0].splitlines()]


def closed_port():
    with socket.socket() as carrier:
        carrier.bind(("127.0.0.1", 0))
        return carrier.getsockname()[1]


def test_seed_is_added_listed_and_removed(tmp_path, capfd):
    """A relay is shown with everything that is known of it, until it is removed."""
    before = int(time.time())
    (relay,) = shown(tmp_path, capfd, add=["relay.example"])

    assert before <= relay.pop("added") <= time.time()
    assert relay == {
        "relay": HOME,
        "id": None,
        "source": "seed",
        "local": False,
        "private": False,
        "score": 0.5,
        "standing": "untried",
        "expires": None,
    }
    assert shown(tmp_path, capfd, remove=[HOME]) == []


def test_looking_makes_no_folder(tmp_path, capfd):
    """Whoever only looks finds nothing, and leaves nothing behind."""
    assert shown(tmp_path / "me", capfd) == []
    show_relays(tmp_path / "me", Wishes(), None, as_json=False)

    assert "no relays yet" in capfd.readouterr()[1]
    assert not (tmp_path / "me").exists()


def test_mistakes_are_told(tmp_path):
    """A relay that is not known, an address that is none, and nobody to ask."""
    for wishes in (Wishes(remove=[HOME]), Wishes(add=["gopher://x"]), Wishes(refresh=True), Wishes([HOME], [HOME])):
        with pytest.raises(LocalError):
            show_relays(tmp_path, wishes, None, as_json=True)


def test_local_ones_come_first_then_the_best(tmp_path, capfd):
    """The order, the score and the standing are those by which a relay is chosen."""
    book, quality = RelayBook(tmp_path), RelayQuality(tmp_path)
    for address in ("tls://a.example:1", "tls://b.example:1"):
        book.add_seed(address)
    book.found_on_lan("tls://192.168.1.7:1", RELAY.public, 100)
    book.learn(sign_advert(RELAY, "tls://c.example:1", int(time.time()), 600))
    quality.failed("tls://a.example:1")
    quality.connected("tls://b.example:1", 0.01)
    book.close()
    quality.close()

    relays = shown(tmp_path, capfd)

    assert [(relay["relay"][6:7], relay["source"]) for relay in relays] == [
        ("1", "lan"), ("b", "seed"), ("c", "advert"), ("a", "seed"),
    ]  # fmt: skip
    assert relays[0]["local"] and relays[0]["id"] == encode_id52(RELAY.public)
    assert [relay["standing"] for relay in relays] == ["untried", "probation", "untried", "probation"]
    assert relays[1]["score"] > 0.5 > relays[3]["score"]


def test_table_is_for_people(tmp_path, capfd):
    """Source, score, standing, and how long each is good for, in words."""
    book = RelayBook(tmp_path)
    book.add_seed("tcp://192.168.1.7:1")
    book.found_on_lan("tcp://192.168.1.7:1", None, 100)
    book.learn(sign_advert(RELAY, HOME, int(time.time()), 3_600))
    book.close()

    show_relays(tmp_path, Wishes(), None, as_json=False)

    heading, first, second = (line.split() for line in capfd.readouterr()[0].splitlines())
    assert heading == ["relay", "known", "from", "own", "score", "standing", "kept"]
    assert first == ["tcp://192.168.1.7:1", "seed,", "lan", "0.50", "untried", "until", "removed"]
    assert second[:4] == [HOME, "advert", "0.50", "untried"]
    assert second[4:] in (["59", "min"], ["1", "h"])


def test_private_relay_stays_listed(tmp_path, capfd):
    """What was learnt with --dials-private is shown without it, and marked, for it is not used then."""
    book = RelayBook(tmp_path, allow_private=True)
    book.learn(sign_advert(RELAY, "tls://10.0.0.1:1", int(time.time()), 600))
    book.close()

    (relay,) = shown(tmp_path, capfd)
    show_relays(tmp_path, Wishes(), None, as_json=False)

    assert (relay["relay"], relay["private"]) == ("tls://10.0.0.1:1", True)
    assert "advert, private" in capfd.readouterr()[0]


def test_refresh_that_nobody_answers_is_a_failure(tmp_path, capfd):
    """The book is shown all the same, each reason is on stderr, and the exit code is 1."""
    address = f"tcp://127.0.0.1:{closed_port()}"
    with pytest.raises(typer.Exit) as caught:
        show_relays(tmp_path, Wishes(add=[address], refresh=True), None, as_json=True)

    out, err = capfd.readouterr()
    assert caught.value.exit_code == 1
    assert json.loads(out)["relay"] == address
    assert "nobody listens" in err


@pytest.mark.parametrize("allow_private", [False, True])
def test_refresh_learns_from_a_relay(tmp_path, capfd, allow_private):
    """What a relay says of others comes into the book, private addresses with permission only."""
    now_s = int(time.time())
    adverts = (
        sign_advert(RELAY, HOME, now_s, 600),
        sign_advert(KeyPair.from_seed(bytes(32)), "tls://10.0.0.1:1", now_s, 600),
    )
    options, answer = encode(Options(Feature.PRESENCE)), encode_extension(Relays(adverts))

    def serve(listener):
        with listener.accept()[0] as peer:
            peer.settimeout(WITHIN_S)
            peer.sendall(encode(Hello(1, 65_536)))
            peer.recv(len(options), socket.MSG_WAITALL)
            peer.sendall(options)
            peer.recv(len(encode_extension(RelaysRequest())), socket.MSG_WAITALL)
            peer.sendall(answer)
            while peer.recv(64):
                pass

    async def scenario(listener, address):
        serving = asyncio.get_running_loop().run_in_executor(None, serve, listener)
        wishes = Wishes(add=[address], refresh=True, allow_private=allow_private)
        await asyncio.to_thread(show_relays, tmp_path, wishes, None, as_json=True)
        await serving

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(WITHIN_S)
        address = f"tcp://127.0.0.1:{listener.getsockname()[1]}"
        asyncio.run(scenario(listener, address))

    out, err = capfd.readouterr()
    relays = {json.loads(line)["relay"] for line in out.splitlines()}
    assert ("1 left out: private addresses, see --dials-private" in err) is not allow_private
    assert relays == {address, HOME} | ({"tls://10.0.0.1:1"} if allow_private else set())
