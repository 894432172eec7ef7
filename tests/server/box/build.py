"""A box on a loopback port, served as a node serves it."""

import asyncio
import contextlib
import http.client
import json
import threading
from urllib.parse import urlsplit

from waystation.core.instant import Instant
from waystation.server.box.limits import BoxLimits
from waystation.server.box.server import box_port
from waystation.server.box.store import BoxStore, add_owner
from waystation.server.config.settings import Address


class BoxOnPort:
    """An open box; ``now`` is its clock."""

    def __init__(self, server, path, owner):
        self.server, self.path, self.owner = server, path, owner
        self.now = Instant(0)

    @property
    def url(self):
        """Where it is."""
        return self.server.url

    def ask(self, method, target, body=None, token=None, headers=()):
        """Ask; return status, body and headers."""
        place = urlsplit(self.url)
        connection = http.client.HTTPConnection(place.hostname, place.port, timeout=5)
        try:
            given = {"Authorization": f"Bearer {token}"} if token else {}
            connection.request(method, target, body, given | dict(headers))
            with connection.getresponse() as response:
                data = response.read()
                is_json = response.headers.get("content-type", "").startswith("application/json")
                return response.status, json.loads(data) if is_json else data, response.headers
        finally:
            connection.close()


@contextlib.contextmanager
def box_on_port(
    path,
    limits=BoxLimits(),  # noqa: B008 - immutable
    host="127.0.0.1",
    tls=None,
    *,
    limited=True,
    refuses=lambda _host: False,
):
    """Serve a box in a thread of its own."""
    ready, stop, loops = threading.Event(), asyncio.Event(), []
    owner = add_owner(path, "alice")
    store = BoxStore(path, limits)
    box = BoxOnPort(None, path, owner)
    box.server = box_port(store, lambda: box.now, limited=limited, refuses=refuses)
    errors = []

    async def serve():
        loops.append(asyncio.get_running_loop())
        try:
            await box.server.open(Address(host, 0), tls)
        except BaseException as error:  # noqa: BLE001 - raised again in the test's own thread
            errors.append(error)
        ready.set()
        if not errors:
            await stop.wait()
        await box.server.close()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))  # which ends whatever is under way
    thread.start()
    ready.wait(20)
    try:
        if errors:
            raise errors[0]
        yield box
    finally:
        if not errors:
            loops[0].call_soon_threadsafe(stop.set)
        thread.join(20)
