"""The drawing of the mesh."""

from tests.pipeline.plots.build import words_of
from waystation.pipeline.plots import svg
from waystation.pipeline.plots.mesh import SERVERS_MAX, Server, plot_mesh


def test_critical_servers_are_named() -> None:
    """The sentence counts servers, links and parts, and names whose loss splits one."""
    ring = [Server(name, name, [one for one in "abc" if one != name], "a", name == "b") for name in "abc"]
    drawing = plot_mesh([*ring, Server("z", "z", [], "z", False)])

    assert drawing.alt == "Mesh of 4 servers with 3 links in 2 parts; loss of b would split a part."
    assert all(name in words_of(svg(drawing)) for name in ("a", "b", "c", "z"))


def test_large_mesh_is_bounded_and_names_what_matters() -> None:
    """Of a hundred servers sixty are drawn, and only those whose loss splits the mesh keep their names."""
    servers = [Server(f"s{n}", f"name{n}", [f"s{n - 1}", f"s{n + 1}"], "s0", n == 7) for n in range(100)]
    drawing = plot_mesh(servers)

    assert f"{SERVERS_MAX} servers with {SERVERS_MAX - 1} links" in drawing.alt
    assert "name7" in words_of(svg(drawing))
    assert "name8" not in words_of(svg(drawing))
