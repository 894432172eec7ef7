"""Laws of server.strata.bootstrap: what a Bootstrap Document does to a relay's settings."""

import json

import pytest

from tests.protocols.strata.build import BOB, NOW, did
from tests.protocols.strata.client.test_bootstrap import KEEPERS, TAGS, document
from waystation.core.errors import ConfigError
from waystation.protocols.strata.settings import StrataSettings, read_roots
from waystation.server.strata.bootstrap import read_bootstrap, with_bootstrap

MAKER = "did:strata:maker"


@pytest.fixture
def place(tmp_path):
    """A folder with gatekeepers."""
    keepers = {
        did(each): {"public_key": each.public.hex(), "diversity_tags": [tag]}
        for each, tag in zip(KEEPERS, TAGS, strict=True)
    }
    (tmp_path / "keepers.json").write_text(json.dumps(keepers))
    return tmp_path


def settings_of(place, body, **fields):
    """Return settings that name a document."""
    (place / "bootstrap.json").write_text(body if isinstance(body, str) else json.dumps(body))
    return StrataSettings(bootstrap=str(place / "bootstrap.json"), gatekeepers=str(place / "keepers.json"), **fields)


def test_skew_and_roots_reach_the_relay(place):
    """The document's skew holds over the operator's, the operator's root over one of the same name."""
    roots = [{"id": MAKER, "public_key": BOB.public.hex()}, {"id": "did:strata:own", "public_key": BOB.public.hex()}]
    own = KEEPERS[0].public
    body = document(*KEEPERS, clock_skew_seconds=60, hardware_roots=roots)
    settings = settings_of(place, body, clock_skew_s=300, roots=[f"did:strata:own={own.hex()}"])
    changed = with_bootstrap(settings, read_bootstrap(settings, NOW))

    assert changed.clock_skew_s == 60
    assert read_roots(changed.roots) == {MAKER: BOB.public, "did:strata:own": own}


def test_document_that_says_nothing_changes_nothing(place):
    """Without skew and roots the operator's stand; without a document, too."""
    settings = settings_of(place, document(*KEEPERS), clock_skew_s=120)

    assert with_bootstrap(settings, read_bootstrap(settings, NOW)) == settings
    assert read_bootstrap(StrataSettings(), NOW) is None
    assert with_bootstrap(settings, None) is settings


@pytest.mark.parametrize("body", [document(*KEEPERS[:2]), "{", "[]"])
def test_document_that_is_not_believed_stops_the_start(place, body):
    """Too few signatures, or no document at all."""
    with pytest.raises(ConfigError, match="bootstrap"):
        read_bootstrap(settings_of(place, body), NOW)


def test_expired_document_is_left_out(place):
    """A node that is started later goes on without it."""
    settings = settings_of(place, document(*KEEPERS))

    assert read_bootstrap(settings, NOW + 101) is None


def test_files_that_cannot_be_read_stop_the_start(place):
    """Neither the document nor its gatekeepers may be absent."""
    settings = settings_of(place, document(*KEEPERS))
    (place / "keepers.json").write_text("[]")
    with pytest.raises(ConfigError, match="gatekeepers"):
        read_bootstrap(settings, NOW)
    (place / "keepers.json").unlink()
    with pytest.raises(ConfigError, match="cannot be read"):
        read_bootstrap(settings, NOW)
