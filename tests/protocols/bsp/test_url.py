"""Laws of how BSP peers and keys are written."""

import pytest

from waystation.core.errors import LocalError
from waystation.core.ids import encode_id52
from waystation.crypto.signing import KeyPair
from waystation.protocols.bsp.url import BspUrl

KEY = KeyPair.from_seed(bytes(32)).public
ID52, HEX = encode_id52(KEY), KEY.hex()


@pytest.mark.parametrize(
    ("text", "place", "key"),
    [
        (f"bsp+tls://{ID52}@peer.example:7444", "bsp+tls://peer.example:7444", KEY),
        (f"bsp+tls://{HEX}@peer.example", "bsp+tls://peer.example:7443", KEY),
        (" peer.example:1 ", "bsp+tls://peer.example:1", None),
        (f"{ID52}@[::1]:2", "bsp+tls://[::1]:2", KEY),
        ("bsp+wss://peer.example/bsp", "bsp+wss://peer.example:443/bsp", None),
        ("bsp+wss://peer.example:8/", "bsp+wss://peer.example:8/", None),
        ("tls://peer.example:1", "bsp+tls://peer.example:1", None),
        ("wss://peer.example/bsp", "bsp+wss://peer.example:443/bsp", None),
        ("bsp+tcp://127.0.0.1:3/", "bsp+tcp://127.0.0.1:3", None),
    ],
)
def test_address_is_read_and_written_back(text, place, key):
    """Scheme, key, host, port and path are found in every spelling, and the text form means the same."""
    url = BspUrl.parse(text)

    assert (url.place, url.key) == (place, key)
    assert BspUrl.parse(str(url)) == url


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("https://peer.example", "not the address of a BSP peer"),
        ("bsp+tls://", "not the address of a BSP peer"),
        ("bsp+tls://peer.example:1/path", "not the address of a BSP peer"),
        ("bsp+tls://peer.example:99999", "out of range"),
        ("bsp+tls://peer.example:1#x", "not the address of a BSP peer"),
        ("bsp+tls://a:b@peer.example:1", "not the address of a BSP peer"),
        ("bsp+tls://short@peer.example:1", "a key has 64 hexadecimal digits"),
        ("bsp+tcp://peer.example:1", "leads to this machine only"),
    ],
)
def test_what_is_no_address_is_told(text, why):
    """Anything else is refused with a sentence that says what is wrong."""
    with pytest.raises(LocalError, match=why):
        BspUrl.parse(text)
