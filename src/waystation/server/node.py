"""The life of a node's process: open, listen, say so, serve, drain, close.

``run`` returns the exit code of ``waystation serve``. SIGTERM and SIGINT drain: nobody new is admitted, exchanges
under way get their outcome within ``[node] drain_ms``, then every connection closes and the journal is sealed. SIGHUP
reloads certificates and the settings that can change while running. A second SIGTERM or SIGINT ends the process at once
(exit 1): the journal's last second is lost, what was acknowledged is not. When the store refuses a write the node stops
(exit 5), because it could not keep what it would acknowledge.
"""

import asyncio
import contextlib
import datetime
import gc
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import structlog

from waystation.core.dids import encode_did
from waystation.core.errors import ConfigError, HostError
from waystation.core.ids import NODE_ID_BYTES, PublicKey, encode_id52, node_id_of
from waystation.core.records import Record, Store
from waystation.engine.admission import Admission
from waystation.engine.bans import Ban, BanList
from waystation.engine.node import Node
from waystation.engine.recorder import Recorder
from waystation.protocols.bhumi.relay import BhumiRelay
from waystation.protocols.bsp.relay import BspRelay
from waystation.protocols.lprp.relay import LprpRelay
from waystation.protocols.merk.relay import MerkRelay
from waystation.protocols.strata.policy import Policy
from waystation.protocols.strata.relay import StrataRelay
from waystation.protocols.strata.settings import read_upstreams
from waystation.server.admin import AdminServer
from waystation.server.bhumi_discovery import BhumiDiscovery
from waystation.server.bhumi_links import BhumiOutlet, warn_of_private_advert
from waystation.server.box_store import BoxLimits, BoxStore
from waystation.server.bsp_box import BoxServer
from waystation.server.bsp_outlet import BspOutlet
from waystation.server.commit import GroupCommit
from waystation.server.config import Config, changes, reload_config
from waystation.server.dialler import Dialler
from waystation.server.entropy import SystemEntropy
from waystation.server.home import Home
from waystation.server.http_port import TlsFiles
from waystation.server.hub import Hub, monotonic_now
from waystation.server.listeners import MERK_PATIENCE, Listeners, merk_message_bytes
from waystation.server.logs import configure_logs, short_peer
from waystation.server.mesh_log import MeshLog
from waystation.server.policy_reader import RULES_SHOWN_MAX, PolicyReader
from waystation.server.process import loop_factory, on_loop_exception, raise_file_limit
from waystation.server.public_pages import PublicPages, StaticAnswer
from waystation.server.relays import build_relays
from waystation.server.sampler import Sampler
from waystation.server.settings import Address
from waystation.server.upstreams import Upstreams
from waystation.server.verifier import Verifier
from waystation.server.well_known import WellKnown
from waystation.server.written import Written
from waystation.store.memory import MemoryStore
from waystation.store.sqlite import SqliteStore
from waystation.transport.tls import client_context
from waystation.transport.websocket_out import Outlet
from waystation.version import __version__

__all__ = ["NodeServer", "run"]

_CLOCK_CHECK_S: Final = 30.0  # how often wall clock and reference key are looked at again
_CLOSE_S: Final = 2.0  # how long closed connections may take to go before they are cut
_DRAIN_LOOK_S: Final = 0.02
_EVERYWHERE: Final = ("0.0.0.0", "::")  # noqa: S104 - compared with, not bound
_MIB_BITS: Final = 20

_Relay = TypeVar("_Relay")
_log = structlog.get_logger("waystation.server")


def run(config: Config, home: Home, static: StaticAnswer | None = None) -> int:
    """Serve until a signal says stop; return the process's exit code.

    Args:
        config: Checked configuration.
        home: A home that ``ensure`` has filled and whose lock this process holds.
        static: Files that stand beside the relays on the public port; None for none.

    Raises:
        HostError: A port, the store or a certificate cannot be used; nothing was served.
    """
    raise_file_limit()
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(_serve(config, home, static))


class NodeServer:
    """One node in this process."""

    def __init__(self, config: Config, home: Home, static: StaticAnswer | None = None) -> None:
        """Prepare a node; ``serve`` runs it. Arguments as for ``run``."""
        self._config = self._started_with = config
        self._home = home
        self._stop = asyncio.Event()
        self._signalled = False
        self._failure: HostError | None = None
        self._key_pair = home.key_pair()
        self._store: Store = (
            MemoryStore() if config.store.url == "memory" else SqliteStore(home.store_path, ids_in_memory=True)
        )
        self._written = Written(config.journal, home, self._key_pair.public[:NODE_ID_BYTES])
        rng = SystemEntropy()
        self._recorder = Recorder(self._written.note, rng, self._written.keep)
        self._bans = BanList(self._store)
        self._commits = GroupCommit(self._store, self._on_committed, self._on_store_failure)
        node_id = node_id_of(self._key_pair.public)
        self._published = PolicyReader(config.policy, home, node_id, self._store, self._keep_soon)
        self._policy = self._published.policy
        relays = build_relays(config, self._key_pair, self._store, rng, self._admits_identity, self._policy)
        self._bsp, self._lprp = _relay_of(relays, BspRelay), _relay_of(relays, LprpRelay)
        self._bhumi = _relay_of(relays, BhumiRelay)
        self._merk, self._strata = _relay_of(relays, MerkRelay), _relay_of(relays, StrataRelay)
        self._keep_time()
        admission = Admission(per_address=config.limits.enabled)
        self._node = Node(relays, admission, self._bans, self._recorder, self._policy)
        self._verifier = Verifier()
        self._mesh_log = MeshLog(self._merk.sizes, self._mesh_view) if self._merk is not None else None
        bsp_outlet = BspOutlet() if self._bsp is not None else None
        bhumi_outlet = BhumiOutlet(config.bhumi.peers_ca) if self._bhumi is not None else None
        self._dialler = Dialler(_outlet(config), self._mesh_log, bsp_outlet, bhumi_outlet)
        self._hub = Hub(self._node, self._commits, verifier=self._verifier, dialler=self._dialler)
        self._pages = self._public_pages(static)
        self._listeners = Listeners(config, home, self._hub, self._pages)
        self._discovery = BhumiDiscovery(self._bhumi, self._key_pair, config.bhumi_listen, self._hub.plan_turn)
        self._upstreams: Upstreams | None = None
        if self._strata is not None:
            upstreams = read_upstreams(config.strata.upstreams)
            self._upstreams = Upstreams(self._hub, self._strata, upstreams, rng, self._policy)
        self._admin: AdminServer | None = None
        self._box: BoxServer | None = None
        self._box_sizes: Callable[[], dict[str, int]] = dict
        self.started_at = time.time()
        self.draining = False

    async def serve(self) -> int:
        """Run from bound ports to the last closed file; return the exit code."""
        asyncio.get_running_loop().set_exception_handler(on_loop_exception)
        try:
            self._show_certificates(self._config)
            await self._listeners.open()
            await self._open_box()
            await self._open_admin()
            self._on_signals()
            if self._bhumi is not None:
                warn_of_private_advert(self._config.bhumi)
            self._discovery.start(self._listeners.urls())
            if self._upstreams is not None:
                self._upstreams.start()
            self._recorder.node_started(monotonic_now(), __version__)
            self._hub.plan_turn()  # relays may want something before anybody comes
            self._say_ready()
            watching = [asyncio.create_task(self._watch_clock()), asyncio.create_task(self._published.watch())]
            sampler = Sampler(self._node, self._recorder, self._written, self._home)
            watching.append(asyncio.create_task(sampler.watch()))
            if self._mesh_log is not None:
                watching.append(asyncio.create_task(self._mesh_log.watch()))
            await self._stop.wait()
            for task in watching:
                task.cancel()
            await self._drain()
        finally:
            await self._close()
        if self._failure is not None:
            _log.error("node.failed", error=str(self._failure))
            return self._failure.exit_code
        _log.info("node.stopped")
        return 0

    def stop(self) -> None:
        """Begin to drain; ``serve`` returns when that is done."""
        self._stop.set()

    # What the admin server asks

    def status(self) -> dict[str, Any]:
        """Return what an operator looks at first."""
        return {
            "version": __version__,
            "name": self._started_with.node.name,
            "uptime_s": round(time.time() - self.started_at, 1),
            "draining": self.draining,
            "node": self._identity(),
            "listeners": self._urls(),
            "sizes": self._node.sizes() | ({"bsp_box": self._box_sizes()} if self._box is not None else {}),
            "traffic": self._node.traffic(),
            "datagrams": {name: counts._asdict() for name, counts in self._listeners.datagrams().items()},
            "totals": self._recorder.totals(),
            "written": self._written.counts(),
            "upstreams": self._upstream_views(),
            "mesh": self._mesh_view(),
            "policy": self._published.status(),
            "relays": self._published.relays(),
            "turned_away": self._turned_away(),
        }

    def _upstream_views(self) -> dict[str, dict[str, Any]]:
        views = self._strata.upstreams(monotonic_now()) if self._strata is not None else {}
        return {relay_id: view._asdict() for relay_id, view in views.items()}

    def _mesh_view(self) -> dict[str, Any]:
        return self._merk.mesh(monotonic_now()) if self._merk is not None else {}

    def _turned_away(self) -> list[dict[str, Any]]:
        return [entry._asdict() for entry in self._strata.gate.turned_away] if self._strata is not None else []

    def tenants(self, count_max: int) -> tuple[list[dict[str, Any]], int]:
        """Return the LPRP host's tenants, oldest lease first, at most so many, and how many there are."""
        if self._lprp is None:
            return [], 0
        sizes = self._lprp.sizes()
        return self._lprp.tenants(monotonic_now(), count_max), sizes["tenants"] + sizes["leases_kept"]

    def bsp(self) -> dict[str, Any] | None:
        """Return groups and peers of the BSP device, None when there is none."""
        return self._bsp.view() if self._bsp is not None else None

    def bhumi(self) -> dict[str, Any] | None:
        """Return what the Bhumi relay knows of other relays, None when there is none."""
        return self._bhumi.view(monotonic_now()) if self._bhumi is not None else None

    def policy(self) -> dict[str, Any]:
        """Return the snapshot in force and its rules with how often each was met."""
        return self._published.status() | self._policy.view(RULES_SHOWN_MAX)

    def published(self, name: str) -> bytes | None:
        """Return a published table as it was signed, None when there is none."""
        return self._published.document(name)

    def ready(self) -> bool:
        """Return whether peers are served: listeners bound, store writable, not draining."""
        return not self.draining and self._failure is None

    def bans(self) -> list[Ban]:
        """Return the operator's list, oldest first."""
        return list(self._bans)

    async def ban(self, ban: Ban) -> None:
        """Keep a ban and act on it; returns once it is on disk.

        Raises:
            LocalError: The ban is not well formed, or the list is full.
            HostError: The store refused.
        """
        await self._commits.wait_for(self._commits.append(self._bans.add(ban)))
        kind, _, rest = ban.subject.partition(":")
        if kind == "id":
            self._node.expel(PublicKey(bytes.fromhex(rest)), monotonic_now())
            self._hub.plan_turn()
        _log.info("ban.added", **_shown(ban.subject), reason=ban.reason)

    async def lift_ban(self, subject: str) -> bool:
        """Forget a ban; False when there was none. Returns once that is on disk."""
        record = self._bans.lift(subject)
        if record is None:
            return False
        await self._commits.wait_for(self._commits.append(record))
        _log.info("ban.lifted", **_shown(subject))
        return True

    # Opening

    async def _open_admin(self) -> None:
        if self._config.admin.listen is not None:
            self._admin = AdminServer(self, self._home)
            await self._admin.open(self._config.admin.listen)

    async def _open_box(self) -> None:
        listen = self._config.bsp_listen
        if listen.enabled and listen.box is not None:
            store = BoxStore(self._home.path / "box", BoxLimits(bytes_max=listen.box_mib_max << _MIB_BITS))
            limited = self._config.limits.enabled
            self._box, self._box_sizes = BoxServer(store, monotonic_now, limited=limited), store.sizes
            await self._box.open(listen.box, TlsFiles(*self._listeners.certificate_paths(self._config, "bsp")))

    def _public_pages(self, static: StaticAnswer | None) -> PublicPages:
        return PublicPages(
            WellKnown(
                self._config,
                self._identity(),
                lambda: self._listeners.ports(),  # noqa: PLW0108 - there are none yet
                self._mesh_view if self._merk is not None else None,
                self._lprp.info if self._lprp is not None else None,
            ),
            monotonic_now,
            static=static,
            strata=self._strata.answer if self._strata is not None else None,
            limited=self._config.limits.enabled,
        )

    def _say_ready(self) -> None:
        line = {
            "event": "ready",
            "pid": os.getpid(),
            "version": __version__,
            "node": self._identity(),
            "listeners": self._urls(),
            "home": str(self._home.path.resolve()),
        }
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()
        _log.info("node.ready", **self._urls(), **self._page())

    def _identity(self) -> dict[str, str]:
        public = self._key_pair.public
        return {"public_key": public.hex(), "id52": encode_id52(public), "did": encode_did(public)}

    def _urls(self) -> dict[str, str]:
        urls = self._listeners.urls()
        if self._box is not None:
            urls["bsp_box"] = self._box.url
        if self._admin is not None:
            urls["admin"] = f"http://{self._admin.address}"
        return urls

    def _page(self) -> dict[str, str]:
        """Return where a browser on this machine finds the page, if there is one."""
        ports, merk = self._listeners.ports(), self._config.merk_listen
        if "merk" not in ports or not self._pages.knows("/"):
            return {}
        host = "127.0.0.1" if merk.ws is None or merk.ws.host in _EVERYWHERE else merk.ws.host
        return {"page": f"{'https' if merk.tls else 'http'}://{Address(host, ports['merk'])}/"}

    # While serving

    def _admits_identity(self, identity: PublicKey) -> bool:
        if len(self._bans) and self._bans.refuses(f"id:{identity.hex()}", time.time_ns() // 1_000):
            return False
        return not self._policy.is_active or self._policy.admits(identity, monotonic_now())

    def _keep_soon(self, record: Record) -> None:
        self._commits.append(record)
        self._commits.flush()

    def _on_committed(self) -> None:
        self._hub.release_committed()

    def _on_store_failure(self, error: HostError) -> None:
        self._failure = error
        self._stop.set()

    def _on_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_stop_signal)
        loop.add_signal_handler(signal.SIGHUP, self.reload)

    def _on_stop_signal(self) -> None:
        if self._signalled:
            _log.error("node.cut", why="a second signal to stop")
            os._exit(1)
        self._signalled = True
        self.stop()

    def reload(self) -> None:
        """Read configuration and certificates again; on any fault everything stays as it was."""
        try:
            new = reload_config(self._config)
            self._listeners.reload_certificates(new)
            self._show_certificates(new)
            if self._box is not None:
                self._box.reload_certificate(TlsFiles(*self._listeners.certificate_paths(new, "bsp")))
        except (ConfigError, HostError) as error:
            _log.error("reload.refused", error=str(error))
            return
        configure_logs(new.node.log_format, new.node.log_level)
        self._written.use(new.journal)
        self._published.use(new.policy)
        if self._strata is not None:
            lists = new.strata
            self._strata.use_policy(Policy(lists.blocked_authors, lists.blocked_packets, lists.blocked_media))
        later = [change.name for change in changes(self._started_with, new) if not change.reloads]
        self._config = new
        _log.info("reload.done", needs_restart=later)

    def _show_certificates(self, config: Config) -> None:
        """Tell the BSP device what its peers are shown.

        Raises:
            HostError: A certificate cannot be read.
        """
        if self._bsp is not None:
            for door, sha256 in self._listeners.bsp_certificates(config).items():
                self._bsp.use_certificate(sha256, door)

    async def _watch_clock(self) -> None:
        in_trouble = False
        while True:
            await asyncio.sleep(_CLOCK_CHECK_S)
            try:
                self._keep_time()
            except HostError as error:
                if not in_trouble:
                    _log.error("reference_key.failed", error=str(error))
                in_trouble = True
            else:
                in_trouble = False

    def _keep_time(self) -> None:
        """Tell the recorder what the wall clock says and which reference key is this week's."""
        now, wall_us = monotonic_now(), time.time_ns() // 1_000
        for part in (self._recorder, self._policy, self._strata, self._merk, self._lprp, self._bsp, self._bhumi):
            if part is not None:
                part.set_wall(now, wall_us)
        key = self._home.reference_key(datetime.datetime.now(datetime.UTC)).key
        self._recorder.use_key(key)
        self._policy.use_key(key)

    # Closing

    async def _drain(self) -> None:
        self.draining = True
        self._listeners.close()
        self._dialler.close()
        if self._upstreams is not None:
            self._upstreams.close()
        self._node.retire()
        _log.info("node.draining", limit_ms=self._config.node.drain_ms)
        await _until(self._node.settled, self._config.node.drain_ms / 1_000)
        self._node.shut(monotonic_now())
        self._hub.plan_turn()
        await asyncio.sleep(0)  # that turn: answers to datagrams have no pipe that would be waited for
        if not await _until(self._hub.idle, _CLOSE_S):
            self._hub.abort_all()
            await _until(self._hub.idle, _CLOSE_S)

    async def _close(self) -> None:
        async with contextlib.AsyncExitStack() as steps:  # from the last to the first, whatever one of them raises
            steps.callback(self._store.close)
            steps.push_async_callback(self._close_journal)
            steps.push_async_callback(self._commits.close)
            steps.callback(self._verifier.close)
            steps.callback(self._hub.close)
            for port in (self._admin, self._box):
                if port is not None:
                    steps.push_async_callback(port.close)
            steps.callback(self._dialler.close)
            for listener in self._listeners:
                steps.callback(listener.close)
            steps.push_async_callback(self._discovery.close)

    async def _close_journal(self) -> None:
        self._recorder.node_stopped(monotonic_now())
        await self._written.close()


def _relay_of(relays: Mapping[str, object], kind: type[_Relay]) -> _Relay | None:
    return next((relay for relay in relays.values() if isinstance(relay, kind)), None)


async def _serve(config: Config, home: Home, static: StaticAnswer | None) -> int:
    server = NodeServer(config, home, static)  # needs the running loop
    gc.freeze()  # what stands now stays
    return await server.serve()


def _outlet(config: Config) -> Outlet:
    """Return what dials for the mesh.

    Raises:
        HostError: The authority's file cannot be read.
    """
    context = client_context(Path(config.merk.peers_ca)) if config.merk.peers_ca else None
    return Outlet(
        message_bytes_max=merk_message_bytes(config),
        patience=MERK_PATIENCE,
        context=context,
        authority="merk.peers_ca",
    )


def _shown(subject: str) -> dict[str, str]:
    """Return what logs say of a ban's subject: an identity short and as its whole id52, an address as it is."""
    kind, _, rest = subject.partition(":")
    if kind != "id":
        return {"subject": subject}
    public = bytes.fromhex(rest)
    return {"subject": f"id:{short_peer(public)}", "id52": encode_id52(public)}


async def _until(holds: Callable[[], bool], limit_s: float) -> bool:
    """Wait until ``holds`` is true, at most ``limit_s``; return whether it is."""
    ends_at = time.monotonic() + limit_s
    while not holds():
        if time.monotonic() >= ends_at:
            return False
        await asyncio.sleep(_DRAIN_LOOK_S)
    return True
