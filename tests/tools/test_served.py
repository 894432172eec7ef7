"""What runs server processes for tests."""

import socket

from tools.served import free_port


def test_no_port_is_given_twice():
    """A node that listens on several ports gets different ones."""
    ports = [free_port() for _ in range(2_000)]

    assert len(set(ports)) == len(ports)


def test_a_port_is_free_for_tcp_and_udp():
    """Both kinds of listener can be bound to it at once."""
    port = free_port()

    with socket.create_server(("127.0.0.1", port)), socket.socket(type=socket.SOCK_DGRAM) as datagrams:
        datagrams.bind(("127.0.0.1", port))
