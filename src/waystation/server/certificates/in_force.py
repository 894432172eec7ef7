"""The certificates that a running node shows, and taking over files that have changed.

``NodeServer`` keeps one; listeners get their TLS context from it. Nobody has to send SIGHUP: every ``LOOK_S`` the files
are looked at, and a pair that has changed is taken over once certificate and key fit together. A pair that does not fit
is read again at the next look, because whoever renews it may be between its two files; one that is still the same then
is logged once, and the old one stays in force (NODE-TAKEOVER).
"""

import asyncio
import datetime
import ssl
from collections.abc import Awaitable, Callable
from typing import Any, Final

import structlog

from waystation.core.errors import HostError
from waystation.server.certificates.authority import CertificateKind, LocalAuthority
from waystation.server.certificates.chosen import certificate_files, tls_listeners
from waystation.server.certificates.pair import FileMark, Pair, mark_of, read_pair
from waystation.server.certificates.report import remedy
from waystation.server.certificates.succession import Step, Succession
from waystation.server.config.values import Config
from waystation.server.home import Home, TlsFiles
from waystation.server.hosted import TlsRules
from waystation.transport.tls import context_of, reload_certificate

__all__ = ["LOOK_S", "Certificates"]

LOOK_S: Final = 20.0

_log = structlog.get_logger("waystation.server")


class Certificates:
    """What each listener of one node shows; ``use`` reads it first, ``watch`` keeps it up to date."""

    def __init__(self, config: Config, home: Home, on_change: Callable[[], None]) -> None:
        """Prepare.

        Args:
            config: Says which listeners speak TLS; they stay until the node ends.
            home: Has the certificate for listeners that no setting names one for.
            on_change: Called after certificates have been replaced by ``look``.
        """
        self._home = home
        self._on_change = on_change
        self._authority = LocalAuthority(home)
        self._succession = Succession(home)
        self._shown: tuple[bytes, ...] = ()
        """Authorities of the home that devices are shown, in DER."""
        self._listeners = tls_listeners(config)
        self._in_force: dict[str, Pair] = {}
        """By table."""
        self._contexts: dict[tuple[str, TlsRules], ssl.SSLContext] = {}
        self._failed: dict[TlsFiles, FileMark] = {}
        """What could not be used at the last look."""
        self._logged: dict[TlsFiles, FileMark] = {}
        """What could not be used and is logged."""
        self._warned: dict[TlsFiles, datetime.date] = {}
        self._renewal_failed = False
        self._renewal_state: tuple[datetime.date, FileMark] | None = None
        """Day and files at which nothing was left to do."""

    def use(self, config: Config, now: datetime.datetime | None = None) -> None:
        """Read the certificates that ``config`` names and show them from the next handshake on.

        Args:
            config: What the operator has set.
            now: Aware UTC; the host's clock when None.

        Raises:
            HostError: One of them cannot be used; all stay as they were.
        """
        now = now or datetime.datetime.now(datetime.UTC)
        self._renew(now)
        files = {table: certificate_files(config, self._home, table) for table in self._listeners.values()}
        read = {each: read_pair(each, self._authority) for each in dict.fromkeys(files.values())}
        for table, each in files.items():
            self._show(table, read[each])
        self._read_authorities()
        self._failed.clear()
        self._logged.clear()
        self._warn_of_missing_key()
        self._warn_of_ends(now)

    def context(self, table: str, rules: TlsRules) -> ssl.SSLContext:
        """Return the TLS context of a table's listeners that have the same rules; ``use`` comes first."""
        place = (table, rules)
        if place not in self._contexts:
            pems = self._in_force[table].pems
            self._contexts[place] = context_of(pems, only_tls13=rules.only_tls13, protocols=rules.protocols)
        return self._contexts[place]

    def leaf_sha256(self, table: str) -> bytes:
        """Return the SHA-256, 32 bytes, of the certificate that a table's listeners show."""
        return self._in_force[table].sha256

    def authorities(self, table: str) -> tuple[bytes, ...]:
        """Return the authorities in DER that the certificate of a table comes from, and will come from: two at most.

        None for a certificate that others have issued.
        """
        pair = self._in_force.get(table)
        return self._shown if pair is not None and pair.kind is not CertificateKind.GIVEN else ()

    def view(self) -> list[dict[str, Any]]:
        """Return what each TLS listener shows, by the setting of its address."""
        now = datetime.datetime.now(datetime.UTC)
        follows = self._next_view()
        return [
            {
                "listener": listener,
                "cert": str(pair.files.cert),
                "ends": pair.facts.ends.isoformat(),
                "ends_s": int(pair.facts.ends.timestamp()),
                "ends_soon": pair.ends_soon(now),
                "names": list(pair.facts.names),
                "kind": pair.kind.value,
                **(follows if pair.kind is not CertificateKind.GIVEN else _NO_NEXT),
            }
            for listener, table in sorted(self._listeners.items())
            if (pair := self._in_force.get(table)) is not None
        ]

    async def watch(self, pause: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        """Look until cancelled; an unexpected error of one look is logged once, and does not end the next ones.

        Args:
            pause: Waits for so many seconds.
        """
        logged = ""
        while True:
            await pause(LOOK_S)
            try:
                self.look(datetime.datetime.now(datetime.UTC))
            except Exception as error:  # noqa: BLE001 - a mistake of ours must not end renewals for good
                if logged != repr(error):
                    _log.exception("certificate.look_failed")
                logged = repr(error)

    def look(self, now: datetime.datetime) -> None:
        """Renew the local certificate where that is due, and take over every pair that has changed.

        Args:
            now: Aware UTC.
        """
        self._renew(now)
        before, shown_before = dict(self._in_force), self._shown
        self._read_authorities()
        for files in dict.fromkeys(pair.files for pair in before.values()):
            tables = [table for table, pair in before.items() if pair.files == files]
            self._look_at(files, tables)
        if self._in_force != before or self._shown != shown_before:
            self._on_change()
        self._warn_of_ends(now)

    def _look_at(self, files: TlsFiles, tables: list[str]) -> None:
        mark, old = mark_of(files), self._in_force[tables[0]]
        if mark == old.mark:
            self._forget(files)
            return
        try:
            fresh = read_pair(files, self._authority)
            for table in tables:
                self._show(table, fresh)
        except HostError as error:
            if self._failed.get(files) == mark != self._logged.get(files):
                _log.error("certificate.broken", cert=str(files.cert), error=str(error), old_ends=_day(old))
                self._logged[files] = mark
            self._failed[files] = mark
            return
        if fresh.sha256 != old.sha256:
            names = list(fresh.facts.names)
            _log.info("certificate.renewed", cert=str(files.cert), ends=_day(fresh), names=names)
        self._forget(files)

    def _forget(self, files: TlsFiles) -> None:
        self._failed.pop(files, None)
        self._logged.pop(files, None)

    def _show(self, table: str, pair: Pair) -> None:
        for (owner, _), context in self._contexts.items():
            if owner == table:
                reload_certificate(context, pair.pems)
        self._in_force[table] = pair

    def _renew(self, now: datetime.datetime) -> None:
        """Sign the home's leaf anew and follow up its authority where that is due; a failure is logged once.

        That is looked at daily, and when the leaf's files change.
        """
        state = (now.date(), mark_of(self._home.tls_files()))
        if state == self._renewal_state:
            return
        try:
            self._follow_up(now)
            self._authority.renew(now)
        except HostError as error:
            if not self._renewal_failed:
                _log.error("certificate.not_renewed", error=str(error))
            self._renewal_failed = True
        else:
            self._renewal_failed = False
            self._renewal_state = state

    def _follow_up(self, now: datetime.datetime) -> None:
        while (step := self._succession.advance(now)) is not None:
            if step is Step.SWITCHED:
                ends = f"{self._authority.ends():%Y-%m-%d}"
                _log.info("certificate.authority_switched", ca=str(self._home.ca_path), ends=ends)
            elif (successor := self._succession.successor()) is not None:
                switch_on = f"{successor.switch_at:%Y-%m-%d}"
                _log.info("certificate.authority_made", ca=str(self._home.next_ca_path), switch_on=switch_on)

    def _read_authorities(self) -> None:
        """Read which authorities devices may be shown; what cannot be read is no news here, ``_renew`` logs it."""
        try:
            self._shown = tuple(self._succession.shown())
        except HostError:
            self._shown = ()

    def _next_view(self) -> dict[str, Any]:
        try:
            successor = self._succession.successor()
        except HostError:
            return _NO_NEXT
        if successor is None:
            return _NO_NEXT
        return {"next_ca": str(self._home.next_ca_path), "next_from": successor.switch_at.isoformat()}

    def _warn_of_missing_key(self) -> None:
        for pair in dict.fromkeys(self._in_force.values()):
            if pair.kind is CertificateKind.KEYLESS and pair.files not in self._warned:
                self._warned[pair.files] = datetime.date.min
                way_out = remedy(pair, self._home)
                _log.warning("certificate.keyless", cert=str(pair.files.cert), ends=_day(pair), way_out=way_out)

    def _warn_of_ends(self, now: datetime.datetime) -> None:
        """Log what ends soon, once a day at most."""
        for pair in dict.fromkeys(self._in_force.values()):
            if pair.ends_soon(now) and self._warned.get(pair.files) != now.date():
                self._warned[pair.files] = now.date()
                way_out = remedy(pair, self._home)
                _log.warning("certificate.ends_soon", cert=str(pair.files.cert), ends=_day(pair), way_out=way_out)


_NO_NEXT: Final = {"next_ca": None, "next_from": None}


def _day(pair: Pair) -> str:
    return f"{pair.facts.ends:%Y-%m-%d}"
