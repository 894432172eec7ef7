"""Laws of server.bsp_checks: which values of ``[bsp]`` name something; tests of server.config tell the places."""

import pytest

from waystation.core.errors import LocalError
from waystation.core.ids import encode_id52
from waystation.protocols.bsp.settings import BspSettings
from waystation.server.bsp.checks import checks_of, names_itself

KEY = "ab" * 32
ID52 = encode_id52(bytes.fromhex(KEY))


def found(**settings):
    """Return the complaints about settings, by key."""
    complaints = {}
    for name, check in checks_of(BspSettings(**settings)).items():
        try:
            check()
        except LocalError as error:
            complaints[name] = str(error)
    return complaints


def test_defaults_name_nothing_wrong():
    """Empty values are all right."""
    assert found() == {}


@pytest.mark.parametrize(
    "settings",
    [
        {"plain_peer": KEY},
        {"plain_peer": ID52},
        {"owners": [KEY, ID52]},
        {"terminator_certificate": KEY.upper()},
        {"peers": [{"key": KEY}]},
        {"peers": [{"key": KEY, "url": "bsp+tls://peer.example"}]},
        {"peers": [{"key": ID52, "url": "bsp+tls://[::1]:7443/"}]},
        {"peers": [{"key": KEY, "url": "bsp+wss://peer.example/a/b?c=d"}]},
        {"peers": [{"key": KEY, "url": f"bsp+tls://{ID52}@peer.example:7443"}]},
        {"peers": [{"key": ID52, "url": f"bsp+wss://{KEY}@peer.example/a"}]},
        {"groups": [{"client_id": "00" * 32, "descriptor": ""}]},
        {"groups": [{"client_id": b"a".hex(), "descriptor": "00" * 16_384}], "profile": "briar"},
    ],
)
def test_good_value_passes(settings):
    """Keys may be written in either way, ports may be left out."""
    assert found(**settings) == {}


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"plain_peer": "peer"}, "plain_peer"),
        ({"owners": [KEY, ""]}, "owners"),
        ({"terminator_certificate": KEY[1:]}, "terminator_certificate"),
        ({"terminator_certificate": f"{KEY}:"}, "terminator_certificate"),
        ({"peers": [{"key": KEY, "url": "bsp+tcp://127.0.0.1:1"}]}, "peers"),
        ({"peers": [{"key": KEY, "url": "bsp+tls://a:1#b"}]}, "peers"),
        ({"peers": [{"key": KEY, "url": "bsp+tls://[a"}]}, "peers"),
        ({"peers": [{"key": KEY, "url": f"bsp+tls://{'cd' * 32}@a"}]}, "peers"),
        ({"peers": [{"key": KEY, "url": f"bsp+tls://{KEY}@b@a"}]}, "peers"),
        ({"peers": [{"key": KEY, "url": f"bsp+tls://{KEY}@"}]}, "peers"),
        ({"peers": [{"key": KEY, "url": "bsp+wss://ä/bsp"}]}, "peers"),
        ({"groups": [{"client_id": "00" * 31, "descriptor": ""}]}, "groups"),
        ({"groups": [{"client_id": "ff", "descriptor": ""}], "profile": "briar"}, "groups"),
        ({"groups": [{"client_id": "61" * 101, "descriptor": ""}], "profile": "briar"}, "groups"),
    ],
)
def test_bad_value_is_told_under_its_key(settings, name):
    """The text begins with the key, so that ``bsp.`` in front of it names the setting."""
    complaints = found(**settings)

    assert list(complaints) == [name]
    assert complaints[name].startswith(name)


@pytest.mark.parametrize("key", [KEY, ID52])
def test_node_is_found_where_others_belong(key):
    """In either writing; other keys are what belongs there."""
    own, other = bytes.fromhex(KEY), "cd" * 32

    assert names_itself(BspSettings(plain_peer=key), own) == "plain_peer"
    assert names_itself(BspSettings(plain_peer=other, owners=[other, key]), own) == "owners"
    assert names_itself(BspSettings(plain_peer=other, owners=[other]), own) is None
    assert names_itself(BspSettings(), own) is None
