"""Lines of other versions and of broken nodes."""

from collections import Counter

from tests.sim.workload.build import made, plan_of
from waystation.journal.contract import allowed_attributes
from waystation.journal.segment import read_rows
from waystation.sim.workload.mixture import GOOD_KINDS, REJECTIONS, Mixture


def test_good_lines_are_taken_and_bad_ones_are_not():
    """Plain reading takes exactly the lines that are called good."""
    mixture = Mixture.of(plan_of())
    good, bad = mixture.good(5, 10), mixture.bad(5, 10 + 6)

    assert Counter(row["kind"] for row in read_rows(b"".join(good))) == GOOD_KINDS
    assert not list(read_rows(b"".join(bad)))
    assert len(bad) == sum(REJECTIONS.values())
    assert [row["seq"] for row in read_rows(b"".join(good))] == list(range(10, 16))


def test_every_canary_stands_where_it_is_said_to():
    """Each canary occurs in the mixed lines, and all are different."""
    mixture = Mixture.of(plan_of())
    text = b"".join([*mixture.good(5, 1), *mixture.bad(5, 7)]).decode()

    assert all(canary in text for canary in mixture.canaries)
    assert len(set(mixture.canaries)) == len(mixture.described()) == 9


def test_canaries_are_never_in_what_may_be_kept():
    """No canary is a word in a column or a reference: reading by the contract alone can drop them all."""
    allowed = allowed_attributes()
    for row in read_rows(b"".join(Mixture.of(plan_of()).good(5, 1))):
        for key, value in {**row, **(row["attrs"] or {})}.items():
            if "CANARY" in str(value) and key != "attrs":
                assert key not in allowed[row["kind"]] or " " in value


def test_mixed_segments_are_named_and_canaries_stay_within_them():
    """Only files that the truth calls mixed hold canaries, and all canaries are listed."""
    files, truth = made("schema_mix")
    mixed = {file["path"] for file in truth["segments"] if "mixed" in file["oddities"]}

    assert mixed == {file.path for file in files if b"CANARY" in file.data}
    assert mixed
    assert len(truth["canaries"]) == 9
