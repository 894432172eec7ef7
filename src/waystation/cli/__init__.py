"""The ``waystation`` command line: one command group whose commands are imported only when they are used.

``COMMANDS`` names every command with its line in the listing. Each is a Typer ``app`` in ``waystation.cli.<module>``.
So ``waystation --version`` and ``--help`` stay fast even if a command imports much.
"""

import gc
import importlib
import sys
from collections.abc import Sequence
from typing import Annotated, Any, Final, NamedTuple

import typer
import typer.core
import typer.main

from waystation.cli.output import EXIT_INTERRUPTED, WANTS_JSON, exit_code_of, report_error
from waystation.core.errors import WaystationError
from waystation.version import __version__

__all__ = ["COMMANDS", "app", "main", "tune_interpreter"]


class _Listed(NamedTuple):
    module: str
    help: str


COMMANDS: Final = {
    "init": _Listed("init", "Make the node's key and certificates."),
    "serve": _Listed("serve", "Run the node."),
    "status": _Listed("status", "Show who is connected, how much, and what needs attention."),
    "id": _Listed("identity", "Show the node's public key in its three spellings."),
    "bans": _Listed("bans", "Show who is banned from the running node, ban and lift."),
    "doctor": _Listed("doctor", "Check this machine and the node's home."),
    "backup": _Listed("home.backup", "Copy the node's home, also while it runs."),
    "restore": _Listed("home.restore", "Make a home from a backup."),
    "check": _Listed("home.check", "Look whether a home has all that it remembers."),
    "upgrade": _Listed("home.upgrade", "Bring a home to the layout of this version."),
    "admin": _Listed("admin", "Show and replace the token of the admin port."),
    "config": _Listed("config", "Show settings, where they come from, and the sample file."),
    "demo": _Listed("demo", "Watch a node, two devices and the report at work."),
    "bhumi": _Listed("bhumi.commands", "Listen and send as a Bhumi device."),
    "mcu": _Listed("mcu.commands", "Make a device for a microcontroller, and run it on this computer."),
    "lprp": _Listed("lprp.commands", "Leave messages at an LPRP host, and get those left for you."),
    "strata": _Listed("strata.commands", "Publish and read Strata packets."),
    "bsp": _Listed("bsp.commands", "Keep groups of messages the same on several devices."),
    "merk": _Listed("merk.commands", "Send and receive encrypted messages over MERK relays."),
    "pipeline": _Listed("pipeline.commands", "Turn the journal into tables and a report with Spark."),
    "sim": _Listed("sim", "Run whole nodes on a virtual clock with faults."),
}


class _LazyCommand(typer.core.TyperCommand):
    """Stands in the listing for a command and becomes the real one when it is called."""

    def __init__(self, name: str, listed: _Listed) -> None:
        super().__init__(name, help=listed.help)
        self._module = f"waystation.cli.{listed.module}"

    # Typer carries its own copy of click, whose types have no public name.
    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Return a context of the real command."""
        module = importlib.import_module(self._module)
        return typer.main.get_command(module.app).make_context(info_name, args, parent=parent, **extra)


class _Commands(typer.core.TyperGroup):
    """Lists ``COMMANDS`` and turns what they raise into one sentence and an exit code."""

    def __init__(self, **attrs: Any) -> None:
        super().__init__(**attrs)
        for name, listed in COMMANDS.items():  # in the group's own table, where it looks for what a typo may mean
            self.add_command(_LazyCommand(name, listed))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.meta[WANTS_JSON] = "--json" in args
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except WaystationError as error:
            report_error(error, as_json=ctx.meta[WANTS_JSON])
            raise typer.Exit(exit_code_of(error)) from error
        except KeyboardInterrupt as error:
            raise typer.Exit(EXIT_INTERRUPTED) from error


GC_THRESHOLDS: Final = (20_000, 20, 20)
"""A busy program makes few cycles; to look for them every 700 objects costs a tenth of it."""
SWITCH_INTERVAL_S: Final = 0.000_5
"""Peers wait this long, not 5 ms, while a thread encodes the journal, and the store's thread while the loop is busy."""

app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def tune_interpreter() -> None:
    """Set this process's interpreter for loops that serve peers while threads write."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    gc.set_threshold(*GC_THRESHOLDS)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit.

    Args:
        arguments: What follows the program's name; the process's own arguments when None.
    """
    tune_interpreter()
    app(args=None if arguments is None else list(arguments), prog_name="waystation")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"waystation {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    _version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """One relay node for five relay protocols, with clients and reports.

    Start here: waystation init, then waystation serve.
    """
