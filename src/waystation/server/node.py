"""Runs a node's process: opens the store and the listeners, serves, drains, closes.

``run`` returns the exit code of ``waystation serve``. SIGTERM and SIGINT start draining: new connections are refused,
and open exchanges may end within ``[node] drain_ms``. Then all connections close and the journal is sealed. SIGHUP
reloads certificates and the settings that can change at run time. A second SIGTERM or SIGINT ends the process at once
(exit 1): the journal's last second is lost, acknowledged records are not. So does an end that the disk holds up for
longer than ``_END_S`` (exit 5, NODE-HUNG). While the store refuses writes the node goes
on: what needs the disk is refused with each protocol's own word, and taken again when the store is (NODE-REFUSED).
"""

import asyncio
import contextlib
import datetime
import gc
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from enum import Enum
from typing import Any, Final

import structlog

from waystation.core.dids import encode_did
from waystation.core.errors import STORE_EXIT_CODE, ConfigError, HostError, StoreFaultKind
from waystation.core.ids import NODE_ID_BYTES, PublicKey, encode_id52, node_id_of
from waystation.engine.access import Access
from waystation.engine.admission import Admission, AdmissionLimits, address_key
from waystation.engine.bans import BanList
from waystation.engine.node import Node
from waystation.engine.recorder import Recorder
from waystation.server.certificates.in_force import Certificates
from waystation.server.certificates.named_files import check_named_files
from waystation.server.commit import GroupCommit
from waystation.server.config.access_checks import access_rules
from waystation.server.config.load import changes, reload_config
from waystation.server.config.values import Config
from waystation.server.connection_log import ConnectionLog
from waystation.server.damaged_rows import open_store
from waystation.server.dialling.dialler import Dialler
from waystation.server.entropy import SystemEntropy
from waystation.server.failures.log import FailureLog
from waystation.server.home import Home
from waystation.server.home.keeper import MarkKeeper
from waystation.server.hosted import HostContext, build_hosts
from waystation.server.http.admin_port import AdminPort
from waystation.server.http.public_pages import PublicPages, StaticAnswer
from waystation.server.http.running import Running, forget_running, write_running
from waystation.server.http.well_known import WellKnown
from waystation.server.hub import Hub, monotonic_now
from waystation.server.listeners import Listeners
from waystation.server.logs import configure_logs
from waystation.server.operations import Operations
from waystation.server.policy_reader import PolicyReader
from waystation.server.process import loop_factory, raise_file_limit
from waystation.server.proxies.faults import ProxyFaults
from waystation.server.proxies.rules import ProxyRules
from waystation.server.refusal_log import RefusalLog
from waystation.server.registry import protocol_table
from waystation.server.sampler import Sampler
from waystation.server.status.clock_watch import ClockWatch
from waystation.server.status.disk import free_bytes
from waystation.server.status.twin_watch import TwinWatch
from waystation.server.store_health import StoreHealth
from waystation.server.verifier import Verifier
from waystation.server.written import Written
from waystation.store.sqlite import SqliteStore
from waystation.store.writer_thread import HUNG_S
from waystation.transport.silence import SilencePolicy
from waystation.version import __version__

__all__ = ["NodeServer", "run"]

_KEY_CHECK_S: Final = 30.0  # how often the reference key is looked at again
_CLOSE_S: Final = 2.0  # how long closed connections may take to go before they are cut
_DRAIN_LOOK_S: Final = 0.02
_END_S: Final = 30.0  # how long the disk may take for the last writes: a fold of 32 MiB, the seal of a segment
_HUNG_END_S: Final = 3.0  # ... when it has returned nothing for long

_log = structlog.get_logger("waystation.server")


def run(config: Config, home: Home, static: StaticAnswer | None = None) -> int:
    """Serve until a signal says stop; return the process's exit code.

    Args:
        config: Checked configuration.
        home: A home that ``ensure`` has filled and whose lock this process holds.
        static: Files that the web ports serve beside the relays; None for none.

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
        self._key_pair = home.key_pair()
        self._store = open_store(config, home)
        self._written = Written(config.journal, home, self._key_pair.public[:NODE_ID_BYTES])
        rng = SystemEntropy()
        self._recorder = Recorder(self._written.note, rng, self._written.keep)
        self._connection_log = ConnectionLog(config.node.connection_log, self._recorder)
        self._bans = BanList(self._store)
        self._access = Access(self._bans, access_rules(config.access))
        self.failures = FailureLog(monotonic_now)
        self._commits = GroupCommit(self._store, self.failures, self._health())
        self._mark = MarkKeeper(home, self._commits.fold) if isinstance(self._store, SqliteStore) else None
        node_id = node_id_of(self._key_pair.public)
        self._published = PolicyReader(config.policy, home, node_id, self._store, self._commits.owe)
        self._policy = self._published.policy
        self._proxy_faults = ProxyFaults(self._recorder)
        self._proxies = ProxyRules(config.node, self._proxy_faults)
        context = HostContext(
            config,
            home,
            self._key_pair,
            self._store,
            rng,
            self._admits_identity,
            self._access,
            self._published.policy,
            self._proxies,
            self._silence,
            RefusalLog(self._access).note,
            self._note_met,
        )
        self._hosts = build_hosts(context)
        relays = {name: host.relay for name, host in self._hosts.items()}
        self._keep_key()
        timed = (self._recorder, self._policy, *relays.values())
        self._clock = ClockWatch(timed, monotonic_now)
        admission = Admission(config.of(AdmissionLimits), per_address=config.limits.enabled)
        self._node = Node(relays, admission, self._bans, self._recorder, self._policy, self._access)
        self._verifier = Verifier()
        outlets = {name: outlet for name, host in self._hosts.items() if (outlet := host.outlet()) is not None}
        self._dialler = Dialler(outlets)
        self._hub = Hub(
            self._node,
            self._commits,
            verifier=self._verifier,
            dialler=self._dialler,
            failures=self.failures,
            wall_us=self._clock.wall_us,
        )
        self._twins = TwinWatch(self._key_pair.public, self._hosts, self._recorder.connections, monotonic_now)
        self._clock.on_step = self._hub.plan_turn  # deadlines that are times of day have moved
        self._certificates = Certificates(config, home, self._on_certificates)
        self._pages = self._public_pages(static)
        contexts = self._certificates.context
        self._listeners = Listeners(config, contexts, self._hosts, self._hub, self._pages, self._proxies, self._silence)
        self._admin: AdminPort | None = None
        self.operations = self._operations()

    async def serve(self) -> int:
        """Run from bound ports to the last closed file; return the exit code."""
        asyncio.get_running_loop().set_exception_handler(self.failures.on_loop_exception)
        try:
            if self._mark is not None and (fault := await self._mark.begin()) is not None:
                self._commits.health.begin(fault)
            self._certificates.use(self._config)
            self._on_certificates()
            await self._listeners.open()
            for host in self._hosts.values():
                await host.open(self._certificates.context)
            self._admin = AdminPort(self.operations, self._home, self._config.admin, self._proxies)
            await self._admin.open()
            self._on_signals()
            for host in self._hosts.values():
                host.start(self._hub, self._listeners.urls())
            self._recorder.node_started(monotonic_now(), __version__)
            self._hub.plan_turn()  # relays may have effects before the first connection
            socket = self._admin.socket
            write_running(self._home, Running(os.getpid(), __version__, self._urls(), socket))
            self._print_ready()
            watching = [asyncio.create_task(self.failures.watched(watch)) for watch in self._watches()]
            await self._stop.wait()
            for task in watching:
                task.cancel()
            await self._drain()
        finally:
            with self._cut_when_held_up():
                await self._close()
            if (why := self._why_left_open()) is not None:
                _cut(why)
        _log.info("node.stopped")
        return 0

    def stop(self) -> None:
        """Begin to drain; ``serve`` returns when that is done."""
        self._stop.set()

    # Opening

    def _operations(self) -> Operations:
        return Operations(
            config=lambda: self._config,
            name=self._config.node.name,
            home=self._home,
            identity=self._identity(),
            hosts=self._hosts,
            node=self._node,
            hub=self._hub,
            listeners=self._listeners,
            certificates=self._certificates.view,
            recorder=self._recorder,
            written=self._written,
            policy_reader=self._published,
            ban_list=self._bans,
            damage=self._store.damage,
            commits=self._commits,
            clock=self._clock,
            twins=self._twins,
            urls=self._urls,
            proxy_troubles=self._proxy_faults.troubles,
        )

    def _public_pages(self, static: StaticAnswer | None) -> PublicPages:
        def ports() -> dict[str, int]:
            return self._listeners.ports()  # these pages are made before the listeners

        return PublicPages(
            WellKnown(self._config.node.name, self._identity(), ports, self._hosts),
            monotonic_now,
            static=static,
            fallback=next((pages for host in self._hosts.values() if (pages := host.pages()) is not None), None),
            limited=self._config.limits.enabled,
            limits=self._config.limits,
            on_refused=self._recorder.refused_get,
        )

    def _print_ready(self) -> None:
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
        if not self._listeners.urls():
            _log.warning("node.serves_nothing", why="every protocol is off, or none has an address")
        page = self._listeners.page_url()
        _log.info("node.ready", **self._urls(), **({"page": page} if page else {}))

    def _identity(self) -> dict[str, str]:
        public = self._key_pair.public
        return {"public_key": public.hex(), "id52": encode_id52(public), "did": encode_did(public)}

    def _urls(self) -> dict[str, str]:
        urls = self._listeners.urls()
        for host in self._hosts.values():
            urls |= host.urls()
        if self._admin is not None and self._admin.url:
            urls["admin"] = self._admin.url
        return urls

    # While serving

    def _admits_identity(self, identity: PublicKey) -> bool:
        if self._access.refuses_identity(identity, time.time_ns() // 1_000):
            return False
        return not self._policy.is_active or self._policy.admits(identity, monotonic_now())

    def _health(self) -> StoreHealth:
        if isinstance(self._store, SqliteStore):
            return StoreHealth(lambda: free_bytes(self._home.path)[0], self._config.store.free_mib_least)
        return StoreHealth()

    def _silence(self) -> SilencePolicy:
        return SilencePolicy(self._config.node.silence_ms)

    def _note_met(self, table: str, refusal: Enum, address: str) -> None:
        self._recorder.refused_in_memory(table, refusal, monotonic_now(), address_key(address))

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
            check_named_files(new)
            token = self._home.admin_token()
            self._certificates.use(new)
        except (ConfigError, HostError) as error:
            _log.error("reload.refused", error=str(error))
            self.operations.reload_refused = str(error)
            return
        self.operations.reload_refused = ""
        self._on_certificates()
        configure_logs(new.node.log_format, new.node.log_level)
        self._node.use_limits(new.of(AdmissionLimits))
        self._commits.health.free_mib_least = new.store.free_mib_least
        self._pages.use_limits(new.limits)
        self._connection_log.use(new.node.connection_log)
        self._proxies.use(new.node)
        if self._admin is not None:
            self._admin.use(new.admin, token)
        self._written.use(new.journal)
        self._published.use(new.policy)
        for name, host in self._hosts.items():
            host.reload(new)
            if (limits := protocol_table(name).limits) is not None:
                host.relay.use_limits(new.of(limits))
        self._access.use(access_rules(new.access))
        self.operations.review()
        later = [change.name for change in changes(self._started_with, new) if not change.reloads]
        self._config = new
        _log.info("reload.done", needs_restart=later)

    def _watches(self) -> list[Callable[[], Coroutine[Any, Any, None]]]:
        """Return what runs beside the listeners, each until it is cancelled."""
        sampler = Sampler(self._node, self._recorder, self._written, self._home, self.operations.stored_beside)
        watches = [self._watch_key, self._published.watch, self._clock.watch, self._twins.watch, sampler.watch]
        watches += [self._commits.watch, self._certificates.watch]
        if self._mark is not None:
            watches.append(self._mark.watch)
        return watches

    def _on_certificates(self) -> None:
        """Hand the certificates that are shown now to the protocols."""
        for host in self._hosts.values():
            host.use_certificates(self._certificates.leaf_sha256)
            host.use_authorities(self._certificates.authorities)

    async def _watch_key(self) -> None:
        has_failed = False
        while True:
            await asyncio.sleep(_KEY_CHECK_S)
            try:
                self._keep_key()
            except HostError as error:
                if not has_failed:
                    _log.error("reference_key.failed", error=str(error))
                has_failed = True
            else:
                has_failed = False

    def _keep_key(self) -> None:
        """Hand this week's reference key to the parts that record."""
        key = self._home.reference_key(datetime.datetime.now(datetime.UTC)).key
        self._recorder.use_key(key)
        self._policy.use_key(key)

    # Closing

    async def _drain(self) -> None:
        self.operations.draining = True
        self._listeners.close()
        self._dialler.close()
        for host in self._hosts.values():
            host.drain()
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
            steps.callback(forget_running, self._home)
            steps.callback(self._close_store)
            steps.push_async_callback(self._close_journal)
            steps.push_async_callback(self._commits.close)
            steps.callback(self._verifier.close)
            steps.callback(self._hub.close)
            if self._admin is not None:
                steps.push_async_callback(self._admin.close)
            steps.callback(self._dialler.close)
            for listener in self._listeners:
                steps.callback(listener.close)
            for host in self._hosts.values():
                steps.push_async_callback(host.close)

    @contextlib.contextmanager
    def _cut_when_held_up(self) -> Iterator[None]:
        """End the process when what stands inside does not end: a thread that the disk holds cannot be waited for."""
        limit_s = _HUNG_END_S if self._commits.is_stuck else _END_S
        timer = threading.Timer(limit_s, _cut, (self._held_up(limit_s),))
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _why_left_open(self) -> str | None:
        """Return why the store must not be closed, nor by the end of the interpreter; None when it may."""
        if self._commits.is_stuck:  # to close it would wait for the write that is under way
            return self._held_up(HUNG_S)
        fault = self._commits.health.fault
        if fault is None or fault.kind is not StoreFaultKind.OVERWRITTEN:
            return None
        return f"{fault}; the file and its log are left as they are: waystation restore BACKUP --home NEW_HOME"

    def _held_up(self, waited_s: float) -> str:
        way_out = "what was acknowledged is there; look at the disk, then start the node again"
        return f"the disk of {self._home.path} did not take the last writes within {waited_s:g} s; {way_out}"

    def _close_store(self) -> None:
        if self._why_left_open() is not None:
            return
        try:
            if self._mark is not None:
                self._mark.end(self._store.state())
        finally:
            self._store.close()

    async def _close_journal(self) -> None:
        self._recorder.node_stopped(monotonic_now())
        await self._written.close()


def _cut(why: str) -> None:
    """End the process at once, without closing anything."""
    _log.error("node.cut", why=why)
    os._exit(STORE_EXIT_CODE)


async def _serve(config: Config, home: Home, static: StaticAnswer | None) -> int:
    server = NodeServer(config, home, static)  # needs the running loop
    gc.freeze()  # what exists now stays
    with server.failures.hooked():
        return await server.serve()


async def _until(holds: Callable[[], bool], limit_s: float) -> bool:
    """Wait until ``holds`` is true, at most ``limit_s``; return whether it is."""
    ends_at = time.monotonic() + limit_s
    while not holds():
        if time.monotonic() >= ends_at:
            return False
        await asyncio.sleep(_DRAIN_LOOK_S)
    return True
