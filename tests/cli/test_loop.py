"""Laws of cli.loop: what the loop of a command tells, and what it leaves to the command."""

import asyncio
import socket
import threading

import pytest

from waystation.cli.loop import run
from waystation.core.errors import HostError
from waystation.transport.dial import dial
from waystation.transport.tls import client_context


class _Sink:
    def connected(self, _pipe):
        raise AssertionError("nobody speaks TLS here")


def test_handshake_that_is_cut_is_told_once(caplog, capfd):
    """A listener without TLS that hangs up is one error for who dialled, and nothing in any log."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def hang_up():
            with listener.accept()[0] as peer:
                peer.recv(1_000)
                peer.sendall(b"\x16\x03\x03")

        serving = threading.Thread(target=hang_up)
        serving.start()
        with pytest.raises(HostError, match="did not complete the TLS handshake; is it a plain tcp:// listener"):
            run(dial(f"tls://127.0.0.1:{listener.getsockname()[1]}", _Sink(), client_context(verify=False), 10))
        serving.join()

    assert caplog.records == []
    assert capfd.readouterr() == ("", "")


def test_other_troubles_are_told(caplog):
    """What fails in a callback is no secret."""

    async def work():
        asyncio.get_running_loop().call_soon(lambda: 1 // 0)
        await asyncio.to_thread(int)
        return 7

    assert run(work()) == 7
    assert "ZeroDivisionError" in caplog.text
