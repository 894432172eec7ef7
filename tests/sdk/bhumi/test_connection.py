"""Laws of sdk.bhumi.connection: one connection says of itself why it is over."""

from waystation.sdk.bhumi.connection import no_hello
from waystation.transport.dial import RelayUrl


def test_silent_tcp_port_may_be_a_tls_one():
    """Only for a plain address the sentence suggests tls."""
    plain, tls = RelayUrl("tcp", "r", 1), RelayUrl("tls", "r", 1)

    assert no_hello(plain, "x") == "tcp://r:1 did not greet us: x; is this a TLS port? try tls://r:1"
    assert no_hello(tls, "x") == "tls://r:1 did not greet us: x"
