"""Laws of protocols.bsp.graph.validation: what an application is shown when it judges a message."""

import pytest

from tests.protocols.bsp.build_device import Bench
from waystation.protocols.bsp.graph.formats import deps_v1_body
from waystation.protocols.bsp.graph.order import State


def judging_bench():
    return Bench(format="judging")


@pytest.mark.parametrize(("ending", "state"), [(b"good", State.DELIVERED), (b"bad", State.INVALID)])
def test_application_decides(ending, state):
    """What it says of a message is what becomes of it."""
    bench = judging_bench()
    message = bench.message(deps_v1_body((), ending))

    bench.hear(message)

    assert bench.device.vertex(bench.group_id, bench.id_of(message)).state is state


def test_application_sees_time_and_body_of_delivered_dependencies_only():
    """A dependency is shown as it stands, one whose body was deleted without it, and a stranger not at all."""
    bench = judging_bench()
    kept, emptied = (
        bench.message(deps_v1_body((), body), timestamp=time) for time, body in ((3, b"kept"), (4, b"gone"))
    )
    bench.hear(kept, emptied)
    bench.commit()
    bench.device.delete(bench.group_id, bench.id_of(emptied))
    child = bench.message(deps_v1_body((bench.id_of(kept), bench.id_of(emptied)), b"child"), timestamp=5)

    bench.hear(child)

    assert bench.judging.looked[-1] == [(3, kept.body), (4, None), None]


def test_waiting_message_is_judged_from_the_disk_when_its_time_comes():
    """Its body is read back: it came long before what it waited for."""
    bench = judging_bench()
    root = bench.message(deps_v1_body((), b"root"), timestamp=1)
    child = bench.message(deps_v1_body((bench.id_of(root),), b"is bad"), timestamp=2)
    bench.hear(child)
    bench.commit()
    bench.hear(bench.message(deps_v1_body((), b"something else"), timestamp=9))
    bench.commit()
    before = len(bench.judging.looked)

    bench.hear(root)

    assert [len(looked) for looked in bench.judging.looked[before:]] == [1, 2]
    assert bench.device.vertex(bench.group_id, bench.id_of(child)).state is State.INVALID


def test_format_that_does_not_judge_is_not_asked():
    """Opaque messages and deps_v1 are valid wherever they stand."""
    bench = Bench(format="deps_v1")

    bench.hear(bench.message(deps_v1_body((), b"bad"), timestamp=1))

    assert bench.judging.looked == []
