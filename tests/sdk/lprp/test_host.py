"""Laws of how hosts and keys are written."""

import pytest

from tests.sdk.lprp.build import HOST
from waystation.core.errors import LocalError
from waystation.core.ids import encode_id52
from waystation.sdk.lprp import ClientSettings
from waystation.sdk.lprp.host import HostUrl
from waystation.transport.dial import RelayUrl

ID52, HEX = encode_id52(HOST.public), HOST.public.hex()


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        (f"lprp://{ID52}@relay.example:4811", "relay.example", 4811),
        (f"lprp://{HEX}@relay.example", "relay.example", 4810),
        (f"udp://{ID52}@127.0.0.1:1/", "127.0.0.1", 1),
        (f" {HEX}@relay.example:2 ", "relay.example", 2),
        (f"lprp://{ID52}@[::1]:3", "::1", 3),
    ],
)
def test_address_is_read_and_written_back(text, host, port):
    """Key, host and port are found in every spelling, and the text form means the same."""
    url = HostUrl.parse(text)

    assert (url.key, url.host, url.port) == (HOST.public, host, port)
    assert url.address == RelayUrl("udp", host, port)
    assert HostUrl.parse(str(url)) == url


def test_address_says_what_no_answer_does():
    """The lease and the byte order of a host come with its address, go before other settings, and are written back."""
    url = HostUrl.parse(f"lprp://{ID52}@relay.example:1?byte_order=little&lease_ms=3600000")
    plain = HostUrl.parse(f"lprp://{ID52}@relay.example:1")
    others = ClientSettings(lease_ms=5_000, retry_ms=77)

    assert (url.lease_ms, url.byte_order) == (3_600_000, "little")
    assert str(url) == f"lprp://{ID52}@relay.example:1?lease_ms=3600000&byte_order=little"
    assert HostUrl.parse(str(url)) == url
    assert url.settings(others) == ClientSettings(lease_ms=3_600_000, byte_order="little", retry_ms=77)
    assert plain.settings(others) == others


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("lease_ms=999", "lease_ms=999; it is"),
        ("lease_ms=abc", "lease_ms=abc; it is"),
        ("lease_ms=-5", "lease_ms=-5; it is"),
        ("lease_ms=", "lease_ms=; it is"),
        ("lease_ms=34359738369", "it is"),
        ("byte_order=middle", '"big", "little"'),
        ("lease=5", "lease_ms and byte_order"),
        ("lease_ms=5000&lease_ms=6000", "each once"),
    ],
)
def test_what_an_address_may_not_say(query, said):
    """Unknown names and values that no host has are refused, with what there may be."""
    with pytest.raises(LocalError) as refused:
        HostUrl.parse(f"lprp://{ID52}@relay.example:1?{query}")

    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("lprp://relay.example:4810", "does not say which key"),
        ("relay.example", "waystation id"),
        ("tcp://x@y", "expected lprp://KEY@host:port"),
        (f"lprp://{ID52}@", "expected lprp://"),
        (f"lprp://{ID52}@host:99999", "not the address"),
        (f"lprp://{ID52}@host/path", "expected lprp://"),
        (f"lprp://{ID52}:secret@host", "expected lprp://"),
        ("lprp://abc@host", "64 hexadecimal digits"),
    ],
)
def test_other_text_is_refused_with_what_is_missing(text, said):
    """A person who mistypes an address learns what belongs there."""
    with pytest.raises(LocalError) as refused:
        HostUrl.parse(text)

    assert said in str(refused.value)
