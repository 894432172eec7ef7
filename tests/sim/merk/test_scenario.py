"""MERK towns repeat themselves exactly, find nothing in what is right, and do what their plans say."""

from dataclasses import replace

import pytest

from tests.sim.merk.build import BESET, BROKEN, LIED, QUIET, ROAMING, lines_of, run_with


@pytest.mark.parametrize("topology", ["line", "ring", "star", "random"])
def test_every_topology_becomes_a_full_mesh(topology):
    """Eight nodes that know a neighbour or two each find all others, also those that tell no address."""
    lines = lines_of(replace(QUIET, nodes=8, topology=topology, hidden=(3,)), 0.005)
    found = [line for line in lines if " Meshed " in line]

    assert len(found) == 8
    assert all(line.endswith(" -") for line in found)


def test_closed_node_has_whom_it_dials():
    """A node that takes no peers is linked with its configured ones, and nobody waits for more."""
    lines = lines_of(replace(QUIET, nodes=4, topology="star", closed=(2,)), 0.02)

    assert any(" n2 dial merk ws://node-0.sim" in line for line in lines)
    assert any(" n2 close " in line and " peers_not_accepted " in line for line in lines)
    assert all(line.endswith(" -") for line in lines if " Meshed " in line)


def test_quiet_world_delivers_everything():
    """Where nothing goes wrong every frame that is due is owed in the end, and the only failures are for nobody."""
    lines = lines_of(QUIET)
    codes = {line.split()[4] for line in lines if " Reported " in line}
    dues = [line for line in lines if " Due " in line]

    assert codes == {"0", "1"}
    assert sum(line.endswith("True") for line in dues) > len(dues) / 2


def test_faults_take_place():
    """A plan with faults has crashes, parted nodes, and links that are made again."""
    lines = lines_of(BROKEN)

    assert any(" crash for " in line for line in lines)
    assert any(" unreachable merk " in line for line in lines)
    assert sum(" dial merk " in line for line in lines) > 20


def test_clients_move_and_are_found():
    """Moving clients connect at every node and are owed frames there."""
    lines = lines_of(ROAMING)
    ways = {line.split()[1] for line in lines if " connect " in line and "10.1.0.0" in line}

    assert len(ways) > 1
    assert any(" Due " in line and line.endswith("True") for line in lines)


def test_hostile_nodes_take_part():
    """Frames are stolen and replayed, and no law is broken."""
    lines = lines_of(BESET)

    assert any(" Stolen " in line for line in lines)
    assert any(" Injected " in line for line in lines)


def test_what_is_read_is_reported_to_its_writer():
    """Where nothing goes wrong a writer learns what the owner's program took, but for receipts that leave with it."""
    lines = lines_of(replace(QUIET, mailboxes=2))
    read, reported = (
        {line.split()[-1] for line in lines if f" {name} " in line} for name in ("MailRead", "ReadReported")
    )

    assert len(reported) > 20
    assert len(reported) > 0.9 * len(read)


def test_relays_lie_to_owners_and_writers():
    """Clients drop forged, redirected and unbound frames, and those who write still learn what was read."""
    result = run_with(None, 1, LIED)

    assert result.failure is None
    assert result.exchanges["read"] > 10
    assert {"bad_signature", "cannot_decrypt", "bad_content", "unasked_answer", "bad_advert"} <= {
        name.removeprefix("dropped_") for name in result.exchanges
    }


def test_outcomes_count_what_was_told_and_read():
    """The summary of a run says what senders were told and readers got."""
    outcomes = run_with(None, 1, QUIET).exchanges

    assert set(outcomes) == {"delivered", "taken", "unknown_target"}
    assert outcomes["taken"] > 100
