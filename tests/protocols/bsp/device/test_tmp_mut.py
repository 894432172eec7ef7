"""x"""
import pytest
from tests.protocols.bsp.device.test_sync_target import MISTAKES
from tests.protocols.bsp.device import test_repository_random as rr
from tests.protocols.bsp.device import test_sync_model as sm
@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda m: m.__name__)
def test_life(monkeypatch, mistake):
    mistake(monkeypatch)
    fails=0
    for seed in range(100,140):
        try:
            rr.test_books_agree_through_long_random_lives(seed)
        except BaseException as e:
            fails+=1; first=repr(e)[:100]; break
    assert fails==0, (seed, first)
@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda m: m.__name__)
def test_world(monkeypatch, mistake):
    mistake(monkeypatch)
    fails=0
    for seed in range(8):
        try:
            for lasting in (False, True): rr and sm.test_devices_agree_with_their_models(seed, 3, lasting)
        except BaseException as e:
            fails+=1; first=repr(e)[:100]; break
    assert fails==0, (seed, first)
