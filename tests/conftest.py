"""Says in the report what was not tried because the machine lacks it."""

from waystation.cli.mcu_package import micropython
from waystation.cli.mcu_run import MICROPYTHON_MISSING


def pytest_collection_modifyitems(config, items):
    """Leave out what needs MicroPython where there is none."""
    if micropython() is not None:
        return
    lacking = [item for item in items if item.get_closest_marker("micropython")]
    items[:] = [item for item in items if not item.get_closest_marker("micropython")]
    config.hook.pytest_deselected(items=lacking)


def pytest_terminal_summary(terminalreporter):
    """Say so plainly."""
    if micropython() is None:
        terminalreporter.write_line(
            f"LEFT OUT: the tests in MicroPython (marked micropython); what runs in both ran in CPython only: "
            f"{MICROPYTHON_MISSING}",
            yellow=True,
        )
