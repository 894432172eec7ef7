"""Laws of transport.websocket.dial: sentences for a relay that cannot be reached."""

import asyncio

import pytest

from tests.transport.build import Sink, certificates, run
from waystation.core.answers import HttpAnswer
from waystation.core.errors import HostError
from waystation.transport.listen import Listener
from waystation.transport.tls import server_context
from waystation.transport.websocket.dial import WebSocketDialler


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Certificates for localhost."""
    return certificates(tmp_path_factory.mktemp("tls"))


async def dialled(url, **options):
    """Return a sink whose pipe goes to ``url``."""
    sink = Sink()
    await WebSocketDialler(message_bytes_max=1_000_000).dial(url, sink, **options)
    return sink


def test_untrusted_certificate(folder):
    """A certificate that no known authority has signed is refused with its reason."""
    context = server_context(folder / "cert", folder / "key")

    async def story(site):
        with pytest.raises(HostError, match=r"not trusted \(.*\); name its authority with --ca FILE$"):
            await dialled(site.url())
        site.troubles.clear()

    run(story, context=context)


def test_refusal_names_its_status():
    """A path that does not exist is reported with its HTTP status."""

    async def story(site):
        with pytest.raises(HostError, match=r"/nowhere refused the handshake with HTTP status 404; is the path"):
            await dialled(site.url("/nowhere"))

    run(story, answer=lambda *_asked: HttpAnswer(404))


def test_address_that_is_not_admitted():
    """Status 429 is about the address of whoever dials, as behind a proxy, and not about the path."""

    async def story(site):
        why = "HTTP status 429; the relay does not admit this address: not on its list, banned, or too many conn"
        with pytest.raises(HostError, match=why):
            await dialled(site.url("/nowhere"))

    run(story, answer=lambda *_asked: HttpAnswer(429))


@pytest.mark.parametrize(
    ("url", "why"),
    [("ws://127.0.0.1:1", "nobody listens"), ("ws://a..b:1", "cannot find the host"), ("wss://127.0.0.1:1", "nobody")],
)
def test_unreachable(url, why):
    """A host that cannot be reached is named with the reason."""
    with pytest.raises(HostError, match=why):
        asyncio.run(dialled(url))


def test_name_with_several_addresses_is_tried_on_each():
    """A host whose first address does not answer is reached at its second, as localhost is without IPv6."""

    async def story(site):
        sink = await dialled(site.url("/binary").replace("127.0.0.1", "localhost"))
        sink.pipe.abort()
        return sink.reports[0]

    assert run(story) == "connected"


def test_wrong_scheme_is_hinted_at(folder):
    """TLS to a plain listener and plain to a TLS listener name the other scheme."""

    async def story(site):
        there = site.url()
        other = there.replace("wss:", "ws:") if there.startswith("wss:") else there.replace("ws:", "wss:")
        with pytest.raises(HostError) as caught:
            await dialled(other, timeout_s=60)  # an answer, not silence: nobody waits for so long
        site.troubles.clear()
        return str(caught.value)

    assert run(story).endswith("if it is a plain listener, try ws://")
    assert "if it is a TLS listener, try wss://" in run(story, context=server_context(folder / "cert", folder / "key"))


def test_connection_that_is_closed_at_once_names_the_other_reason():
    """A banned or full address is closed before anything is said; the sentence names that too."""

    async def story():
        listener = Listener(Sink(), lambda _: False, lambda _: None, None)
        await listener.open("127.0.0.1", 0)
        try:
            for url in (f"ws://127.0.0.1:{listener.port}/", f"wss://127.0.0.1:{listener.port}/"):
                with pytest.raises(HostError, match="refuse this address: not on its list, banned, or too"):
                    await dialled(url, timeout_s=5)
        finally:
            listener.close()

    asyncio.run(story())
