"""Laws of the command line as a whole."""

import gc
import importlib
import importlib.util
import json
import subprocess
import sys
import time

import pytest
import typer
from typer.testing import CliRunner

from waystation import __version__
from waystation.cli import COMMANDS, app, main
from waystation.core.errors import ConfigError, HostError, LocalError, RemoteError

RUNNER = CliRunner()


@pytest.fixture
def failing(monkeypatch):
    """Put a command that raises into the listing's place of ``doctor``."""

    def put(error):
        module = importlib.import_module("waystation.cli.doctor")
        raising = typer.Typer()

        @raising.command()
        def doctor(as_json: bool = typer.Option(False, "--json")) -> None:
            raise error

        monkeypatch.setattr(module, "app", raising)

    return put


def _run(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "waystation", *arguments], capture_output=True, text=True, timeout=60, check=False
    )


def test_version_is_printed_on_stdout():
    """``--version`` names the program and its version, and nothing else."""
    result = RUNNER.invoke(app, ["--version"])

    assert (result.exit_code, result.stdout) == (0, f"waystation {__version__}\n")


def test_version_needs_no_heavy_import():
    """The quick commands load neither the server's libraries nor any command's."""
    heavy = [
        "structlog",
        "rich",
        "nacl",
        "cryptography",
        "uvloop",
        "asyncio",
        "sqlite3",
        "pyspark",
        "prometheus_client",
    ]
    program = (
        "import sys\nfrom waystation.cli import main\n"
        "try:\n    main(['--version'])\nexcept SystemExit:\n    pass\n"
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)

    assert result.stdout == f"waystation {__version__}\n[]\n"


@pytest.mark.slow
def test_version_is_quick():
    """The best of five cold starts stays under 0.2 s."""
    took = []
    for _ in range(5):
        begin = time.perf_counter()
        _run("--version")
        took.append(time.perf_counter() - begin)

    assert min(took) < 0.2


def test_listing_names_every_command_with_its_line():
    """``--help`` shows all commands without importing them."""
    result = RUNNER.invoke(app, ["--help"])

    assert result.exit_code == 0
    assert all(f"  {name} " in result.stdout and listed.help in result.stdout for name, listed in COMMANDS.items())


@pytest.mark.parametrize("name", COMMANDS)
def test_every_listed_command_exists(name):
    """Each name in the listing has a module to become."""
    assert importlib.util.find_spec(f"waystation.cli.{COMMANDS[name].module}") is not None


@pytest.mark.parametrize("name", ["init", "id", "doctor", "serve"])
def test_every_command_has_help_with_an_example(name):
    """``-h`` of a command shows a line that can be typed."""
    result = RUNNER.invoke(app, [name, "-h"])

    assert result.exit_code == 0
    assert f"Example: waystation {name} " in result.stdout


@pytest.mark.parametrize("arguments", [["nonsense"], ["init", "--nonsense"], ["id", "extra"]])
def test_usage_errors_exit_2(arguments):
    """What cannot be understood is explained on stderr; exit code 2."""
    result = RUNNER.invoke(app, arguments)

    assert result.exit_code == 2
    assert result.stdout == ""
    assert "Usage: " in result.stderr


def test_no_command_shows_the_listing():
    """A bare ``waystation`` tells what there is."""
    assert "Commands:" in RUNNER.invoke(app, []).output


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("bad", origin="f", line=1), 3),
        (HostError("taken", exit_code=4), 4),
        (HostError("store", exit_code=5), 5),
        (HostError("other"), 1),
        (LocalError("wrong"), 2),
        (RemoteError("broken"), 1),
    ],
)
def test_errors_become_one_sentence_and_their_exit_code(failing, error, code):
    """Nobody sees a traceback for something that went wrong on purpose."""
    failing(error)
    result = RUNNER.invoke(app, ["doctor"])

    assert (result.exit_code, result.stdout, result.stderr) == (code, "", f"waystation: {error}\n")


def test_errors_are_json_for_programs(failing):
    """With --json the error is an object on stdout, with the same exit code."""
    failing(HostError("taken", exit_code=4))
    result = RUNNER.invoke(app, ["doctor", "--json"])

    assert (result.exit_code, result.stderr) == (4, "")
    assert json.loads(result.stdout) == {"error": "taken", "kind": "HostError", "exit_code": 4}


def test_interrupt_exits_130(failing):
    """Ctrl-C is told apart from failure, without a traceback."""
    failing(KeyboardInterrupt())
    result = RUNNER.invoke(app, ["doctor"])

    assert (result.exit_code, result.output) == (130, "")


def test_bugs_are_not_hidden(failing):
    """What was not raised on purpose keeps its traceback."""
    failing(ZeroDivisionError("bug"))
    result = RUNNER.invoke(app, ["doctor"])

    assert isinstance(result.exception, ZeroDivisionError)


def test_main_takes_arguments(capsys):
    """The console script's function can be called with arguments of one's own."""
    with pytest.raises(SystemExit) as caught:
        main(["--version"])

    assert caught.value.code == 0
    assert capsys.readouterr().out == f"waystation {__version__}\n"


def test_module_is_the_command(tmp_path):
    """``python -m waystation`` refuses a bad file with file, line and exit code 3."""
    path = tmp_path / "node.toml"
    path.write_text("[node]\nnmae = 'x'\n")
    result = _run("config", "show", "--config", str(path))

    assert (result.returncode, result.stdout) == (3, "")
    assert result.stderr.startswith(f"waystation: {path}:2: unknown key in [node]: nmae; did you mean name?")


def test_interpreter_is_tuned_before_a_command_runs(capsys):
    """Threads hand over within half a millisecond, and few objects start no hunt for cycles."""
    before = sys.getswitchinterval(), gc.get_threshold()
    try:
        sys.setswitchinterval(0.005)
        gc.set_threshold(700, 10, 10)
        with pytest.raises(SystemExit):
            main(["--version"])
        tuned = sys.getswitchinterval(), gc.get_threshold()
    finally:
        sys.setswitchinterval(before[0])
        gc.set_threshold(*before[1])

    assert capsys.readouterr().out.startswith("waystation ")
    assert tuned == (pytest.approx(0.0005), (20_000, 20, 20))


def test_mistyped_command_gets_a_suggestion():
    """As in every group below."""
    result = RUNNER.invoke(app, ["serv"])

    assert result.exit_code == 2
    assert "No such command 'serv'. Did you mean 'serve'?" in result.output
