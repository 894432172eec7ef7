"""Laws of what programs import."""

from waystation.sdk import bsp


def test_every_public_name_is_there():
    """What the module promises can be imported from it, sorted and once."""
    assert [name for name in bsp.__all__ if not hasattr(bsp, name)] == []
    assert len(set(bsp.__all__)) == len(bsp.__all__)
