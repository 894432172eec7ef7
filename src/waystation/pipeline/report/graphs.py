"""Report sections on the mesh of servers and on Bramble Sync groups.

``report.page`` passes the ``Summary``; each function returns a ``Section`` with tables and figures.
"""

from collections.abc import Sequence
from typing import Final

from waystation.pipeline.plots import (
    Hold,
    Server,
    plot_convergence,
    plot_mesh,
    plot_messages,
    plot_queries,
)
from waystation.pipeline.plots.mesh import SERVERS_MAX
from waystation.pipeline.plots.units import duration_text, moment_text, share_text
from waystation.pipeline.report.markup import Figure, Markup, Section, moment, note, reference, table
from waystation.pipeline.report.summary import GroupRow, MeshHour, RootRow, ServerRow, Summary

__all__ = ["groups", "mesh"]

_SHORT: Final = 8
_NAME: Final = 4
_GROUPS_DRAWN_MAX: Final = 20


def mesh(summary: Summary) -> Section:
    """Return the section on the mesh of servers and look-ups in it."""
    parts: list[Markup | Figure] = []
    if summary.servers:
        servers = [
            Server(row.server, row.server[:_NAME], row.neighbours, row.component, row.is_articulation)
            for row in summary.servers
        ]
        parts.append(Figure(plot_mesh(servers), _servers(summary.servers)))
        parts.append(note(_drawn(summary)))
    asked = {row.hour_s: row.n_queries for row in summary.mesh_hours if row.n_queries}
    if asked:
        found = {row.hour_s: row.n_found for row in summary.mesh_hours if row.n_queries}
        parts.append(Figure(plot_queries(found, asked), _hours(summary.mesh_hours)))
    meaning = "Which servers are linked, whose loss would split them (red squares), and how many look-ups succeed."
    return Section("mesh", "Mesh", meaning, "No server had a link to another.", parts)


def _drawn(summary: Summary) -> str:
    hour = summary.servers[0].hour_s
    whole = max((row.servers for row in summary.mesh_hours if row.hour_s == hour), default=len(summary.servers))
    of = f" of {whole:,}, those with the most links" if whole > len(summary.servers) else ""
    shown = min(len(summary.servers), SERVERS_MAX)
    return f"Drawn: {shown:,} servers{of}, in the hour from {moment_text(hour)} UTC."


def _servers(servers: Sequence[ServerRow]) -> Markup:
    lines = [
        (
            reference(row.server),
            f"{row.degree:,}",
            reference(row.component[:_SHORT]),
            f"{row.component_size:,}",
            "yes" if row.is_articulation else "",
            share_text(row.n_found / row.n_queries if row.n_queries else None),
            f"{row.n_queries:,}",
            "-" if row.p95_us is None else duration_text(row.p95_us),
        )
        for row in sorted(servers, key=lambda row: (not row.is_articulation, -row.degree, row.server))
    ]
    head = ("server", ">links", "part", ">servers of it", "its loss splits", ">found", ">look-ups", ">p95")
    return table("Servers of the last hour", head, lines)


def _hours(hours: Sequence[MeshHour]) -> Markup:
    lines = [
        (
            moment(row.hour_s),
            f"{row.servers:,}",
            f"{row.links:,}",
            f"{row.components:,}",
            f"{row.articulations:,}",
            f"{row.n_queries:,}",
            share_text(row.n_found / row.n_queries if row.n_queries else None),
        )
        for row in sorted(hours, reverse=True)
    ]
    head = ("hour (UTC)", ">servers", ">links", ">parts", ">whose loss splits", ">look-ups", ">found")
    return table("The mesh by hour, the newest first", head, lines)


def groups(summary: Summary) -> Section:
    """Return the section on groups of Bramble Sync."""
    parts: list[Markup | Figure] = []
    if summary.groups:
        drawn = summary.groups[:_GROUPS_DRAWN_MAX]
        states = {
            _name(row): (row.n_delivered, row.n_waiting, row.n_invalid_root, row.n_invalid_transitive, row.n_deleted)
            for row in drawn
        }
        parts.append(Figure(plot_messages(states), _groups(summary.groups)))
        holds = [
            Hold(_name(row), row.converge_us, row.least_us or row.converge_us, row.most_us or row.converge_us)
            for row in drawn
            if row.converge_us is not None
        ]
        if holds:
            parts.append(Figure(plot_convergence(holds), Markup()))
    if summary.roots:
        parts.append(_roots(summary.roots))
    meaning = (
        "A message waits until what it depends on is there; one that breaks its group's rules takes those that depend "
        "on it with it."
    )
    return Section("groups", "Groups of Bramble Sync", meaning, "No group has messages.", parts)


def _name(row: GroupRow) -> str:
    return f"{row.group} @{row.node_id[:_NAME]}"


def _groups(rows: Sequence[GroupRow]) -> Markup:
    lines = [
        (
            reference(row.group),
            reference(row.node_id),
            *(f"{n:,}" for n in (row.n_messages, row.n_delivered, row.n_waiting, row.n_invalid_root)),
            *(f"{n:,}" for n in (row.n_invalid_transitive, row.missing_deps, row.depth, row.n_components)),
            *(f"{n:,}" for n in (row.fork_width, row.n_peers)),
            "-" if row.converge_us is None else duration_text(row.converge_us),
        )
        for row in rows
    ]
    head = ("group", "node", ">messages", ">delivered", ">waiting", ">invalid", ">because of another", ">missing",
            ">depth", ">parts", ">heads", ">peers", ">time to hold")  # fmt: skip
    return table("Groups, those with most wrong first", head, lines)


def _roots(rows: Sequence[RootRow]) -> Markup:
    lines = [
        (reference(row.root), reference(row.group), reference(row.node_id), f"{row.n_invalid:,}", f"{row.distance:,}")
        for row in rows
    ]
    head = ("invalid message", "group", "node", ">took with it", ">furthest")
    return table("Root causes of invalid messages", head, lines)
