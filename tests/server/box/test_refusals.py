"""Laws of server.box_refusals."""

from waystation.server.box.refusals import BoxRefusal, BoxRefusedError
from waystation.server.box.store import FILE_BYTES_MAX


def test_every_reason_has_a_status_and_a_sentence():
    """No reason is left without an answer, and none is an answer of success."""
    assert {refusal.status for refusal in BoxRefusal} == {400, 401, 403, 404, 408, 413, 422, 429, 503, 507}
    assert all(len(refusal.sentence) > 10 for refusal in BoxRefusal)
    assert str(FILE_BYTES_MAX) in BoxRefusal.FILE_TOO_LARGE.sentence


def test_error_carries_its_reason():
    """What people read is the reason's sentence."""
    error = BoxRefusedError(BoxRefusal.BOX_FULL)

    assert (error.refusal, str(error)) == (BoxRefusal.BOX_FULL, "the box is full")
