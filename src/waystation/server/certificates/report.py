"""What an operator should know about the certificate of each listener, in sentences with a remedy.

``waystation doctor`` prints it and the node's status shows it. A configuration, a home and the time go in.
"""

import datetime
from typing import Final, NamedTuple

from waystation.core.errors import HostError
from waystation.server.certificates.authority import CertificateKind, LocalAuthority, is_there
from waystation.server.certificates.chosen import certificate_files, certificate_setting, tls_listeners
from waystation.server.certificates.pair import Pair, read_pair
from waystation.server.certificates.succession import Succession
from waystation.server.config.values import Config
from waystation.server.home import Home, TlsFiles
from waystation.transport.tls import KeyFileError

__all__ = ["CertificateReport", "remedy", "report_certificates"]

_NAMES_SHOWN_MAX: Final = 8


class CertificateReport(NamedTuple):
    """One certificate and the listeners that show it."""

    listeners: tuple[str, ...]
    """Settings of their addresses."""
    good: bool
    says: str


def report_certificates(config: Config, home: Home, now: datetime.datetime) -> list[CertificateReport]:
    """Return a report of each certificate that the listeners of a configuration show.

    Args:
        config: Which may be that of a node that runs or of one that does not.
        home: Of that node.
        now: Aware UTC.
    """
    shown: dict[TlsFiles, dict[str, str]] = {}
    for listener, table in tls_listeners(config).items():
        shown.setdefault(certificate_files(config, home, table), {})[listener] = table
    reports = []
    for files, listeners in shown.items():
        setting = certificate_setting(config, next(iter(listeners.values())))
        good, says = _judge(files, setting, home, now)
        reports.append(CertificateReport(tuple(listeners), good, f"{', '.join(listeners)}: {says}"))
    return reports


def remedy(pair: Pair, home: Home) -> str:
    """Return what to do about a certificate that ends soon."""
    if pair.kind is CertificateKind.GIVEN:
        return (
            "have it renewed where it was issued (certbot renew, for one) and put into these files; "
            "a running node takes it over by itself"
        )
    if pair.kind is CertificateKind.KEYLESS:
        return f"nobody renews it, because {home.ca_key_path} is not there; {_next_authority(home)}"
    if _ends_with_authority(pair, home):
        return f"its authority {home.ca_path} ends then too; {_next_authority(home)}"
    return "waystation serve renews it at its start and while it runs, and logs certificate.not_renewed if it cannot"


def _ends_with_authority(pair: Pair, home: Home) -> bool:
    try:
        return pair.facts.ends >= LocalAuthority(home).ends()
    except HostError:
        return False  # not to be read now; the node logs it when it tries to sign


def _next_authority(home: Home) -> str:
    """Return what becomes of an authority that ends."""
    try:
        succession = Succession(home)
        successor, made_at = succession.successor(), succession.made_at()
    except HostError as error:
        return f"the next authority cannot be read ({error})"
    if successor is None:
        day = "" if made_at is None else f" from {made_at:%Y-%m-%d} on"
        return f"waystation serve makes the next authority by itself{day}"
    return (
        f"the next authority {home.next_ca_path} counts from {successor.switch_at:%Y-%m-%d} on: Bhumi devices that "
        "connect before learn it by themselves, other clients need the file"
    )


def _judge(files: TlsFiles, setting: str, home: Home, now: datetime.datetime) -> tuple[bool, str]:
    if not setting and not is_there(files.cert) and not is_there(files.key):
        return True, f"{files.cert} is not made yet"
    try:
        pair = read_pair(files, LocalAuthority(home))
        says = f"{files.cert}, {_names(pair)}, {_span(pair, now)}"
        if pair.facts.begins > now:
            return False, f"{says}; look at the clock of this machine"
        if not pair.facts.names:
            return False, f"{says}; clients that check names refuse it: have one issued with a subject alternative name"
        if pair.ends_soon(now):
            return False, f"{says}; {remedy(pair, home)}"
    except KeyFileError as error:
        return False, str(error)
    except HostError as error:
        where = f"{setting} and its key" if setting else f"the files in {home.tls_path}"
        return False, f"{error}; look at {where}: both must be there, readable for the node's user, and fit together"
    return True, f"{says}; {_RENEWED[pair.kind]}" + _later(pair, home)


def _later(pair: Pair, home: Home) -> str:
    """Return what will become of a certificate that is good today, or of its authority."""
    if pair.kind is CertificateKind.GIVEN:
        return ""
    is_near = pair.kind is CertificateKind.KEYLESS or is_there(home.next_ca_path)
    return f"; {_next_authority(home)}" if is_near else ""


def _names(pair: Pair) -> str:
    names = pair.facts.names
    shown = ", ".join(names[:_NAMES_SHOWN_MAX]) + (" ..." if len(names) > _NAMES_SHOWN_MAX else "")
    return f"for {shown}" if names else "for no name at all"


def _span(pair: Pair, now: datetime.datetime) -> str:
    begins, ends = pair.facts.begins, pair.facts.ends
    if begins > now:
        return f"good only from {begins:%Y-%m-%d}"
    return f"ended on {ends:%Y-%m-%d}" if ends <= now else f"good until {ends:%Y-%m-%d}"


_RENEWED: Final = {
    CertificateKind.LOCAL: "its key fits; the node renews it 30 days ahead",
    CertificateKind.KEYLESS: "its key fits; the node cannot renew it without ca.key",
    CertificateKind.GIVEN: "its key fits; the node takes over what its issuer renews",
}
