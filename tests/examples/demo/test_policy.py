"""The last part of the demonstration, without Spark: the relay that lies."""

from waystation.cli.loop import run
from waystation.examples.demo.policy import FALSE_POSTS, PolicyDemo
from waystation.examples.demo.run import Demo
from waystation.server.home import Home, certificate_names
from waystation.server.home.mark import prepare_home


def test_node_bans_the_relay_that_lies(tmp_path):
    """The relay serves the altered posts, the node bans it for them, and no step ends otherwise than promised."""
    home = Home(tmp_path / "node")
    prepare_home(home, certificate_names([]))
    said, failures = [], []

    def expect(holds, otherwise):
        failures.extend([] if holds else [otherwise])

    processes = Demo(tmp_path, stay=False, report=False)
    demo = PolicyDemo(tmp_path, lambda who, what: said.append(f"{who} {what}"), expect, processes)
    run(demo.run(home.key_pair().public.did, report=False))

    assert failures == []
    assert said[-1].startswith(f"node met {FALSE_POSTS} false packets at the bad relay: ")
