"""``waystation pipeline reference`` names people as the node's journal does."""

import datetime
import json
import random

import pytest
from typer.testing import CliRunner

from waystation.cli.pipeline.commands import app
from waystation.core import facts
from waystation.core.dids import encode_did
from waystation.core.errors import HostError, LocalError
from waystation.core.ids import encode_id52
from waystation.core.instant import Instant
from waystation.crypto.signing import KeyPair
from waystation.engine.admission import AdmissionRefusal
from waystation.engine.recorder import Recorder
from waystation.server.home import Home

NOW = datetime.datetime(2026, 5, 29, 12, tzinfo=datetime.UTC)
ALICE = KeyPair.from_seed(bytes(32)).public
ADDRESS = "203.0.113.7"


@pytest.fixture
def home(tmp_path):
    """Give a home whose node has begun its week."""
    place = Home(tmp_path)
    place.ensure(NOW, ["localhost"])
    place.reference_key(NOW)
    return place


def told(home, subject: str) -> dict[str, str]:
    """Return what the command says, by kind."""
    done = CliRunner().invoke(app, ["reference", subject, "--home", str(home.path), "--json"], catch_exceptions=False)
    return json.loads(done.stdout)["references"]


def test_references_are_those_of_the_journal(home) -> None:
    """A key in each of its spellings and an address have the references that the recorder writes."""
    written = []
    recorder = Recorder(written.append, random.Random(1))
    recorder.use_key(home.reference_key(NOW).key)
    recorder.note(facts.DeliveryFinished("bhumi", 1, ALICE, facts.Outcome.OFFLINE, None, 0, 1), Instant(9))
    recorder.refused_by_admission("bhumi", AdmissionRefusal.ADDRESS_FULL, Instant(9), ADDRESS)
    recorder.wake(Instant(10_000_000))
    peer, source = written[0].peer_ref.hex(), written[-1].source_ref.hex()

    assert told(home, ALICE.hex()) == told(home, encode_id52(ALICE)) == {"peer": peer}
    assert told(home, encode_did(ALICE))["peer"] == peer
    assert told(home, ADDRESS) == {"source": source}
    assert set(told(home, "did:web:example.org")) == {"author"}


def test_week_of_the_key_is_named_and_nothing_is_written(home) -> None:
    """The week that the key is for is said, also when it is over, and the key stays."""
    before = home.references_path.read_bytes()
    done = CliRunner().invoke(app, ["reference", ADDRESS, "--home", str(home.path)], catch_exceptions=False)

    assert done.stdout.startswith("from 2026-05-28 to 2026-06-04 (UTC)\nsource  ")
    assert home.references_path.read_bytes() == before


def test_home_without_a_key_says_so(tmp_path) -> None:
    """Where no node has run there is nothing to tell, and no key is made."""
    with pytest.raises(HostError, match="start the node first"):
        CliRunner().invoke(app, ["reference", ADDRESS, "--home", str(tmp_path)], catch_exceptions=False)
    assert list(tmp_path.iterdir()) == []


def test_other_text_is_a_usage_error(home) -> None:
    """What is neither key nor DID nor address is refused with what was expected."""
    with pytest.raises(LocalError, match="'alice' is no key, id52, DID or IP address"):
        CliRunner().invoke(app, ["reference", "alice", "--home", str(home.path)], catch_exceptions=False)
