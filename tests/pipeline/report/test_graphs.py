"""Sections on the mesh and on groups."""

from tests.pipeline.report.build import NODE, full_summary, group_row
from waystation.pipeline.report import MeshHour, RootRow, Summary
from waystation.pipeline.report.graphs import groups, mesh
from waystation.pipeline.report.markup import section_html


def test_mesh_is_drawn_with_its_numbers() -> None:
    """The section says which hour is drawn and of how many servers, and lists those whose loss splits it first."""
    made = section_html(mesh(full_summary()))

    assert "Drawn: 14 servers of 16, those with the most links, in the hour from 2026-05-29 12:00 UTC." in made
    assert made.index("<td>yes</td>") < made.index("<td></td>")
    assert "95 %" in made


def test_look_ups_alone_are_drawn() -> None:
    """Hours without a server that is shown still have their look-ups; hours without look-ups are no plot."""
    hour = MeshHour(7_200, 3, 0, 3, 0, 5, 4)

    assert [figure.drawing.name for figure in mesh(Summary(mesh_hours=[hour])).figures()] == ["queries"]
    assert list(mesh(Summary(mesh_hours=[hour._replace(n_queries=0, n_found=0)])).figures()) == []


def test_groups_show_what_is_wrong_and_why() -> None:
    """A group has its counts, its time to hold, and the messages that are the causes."""
    summary = Summary(groups=[group_row(2, n_invalid_root=1)], roots=[RootRow(NODE, "a0b0c0d2", "bad0bad0", 9, 4)])
    made = section_html(groups(summary))

    assert all(word in made for word in ("a0b0c0d2", "bad0bad0", "3 min", "Root causes"))


def test_group_that_never_held_has_no_time() -> None:
    """Without a peer's word there is no convergence plot."""
    section = groups(Summary(groups=[group_row(1, converge_us=None, least_us=None, most_us=None)]))

    assert [figure.drawing.name for figure in section.figures()] == ["messages"]
    assert "<td class='n'>-</td>" in section_html(section)
