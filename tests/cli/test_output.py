"""Laws of cli.output."""

import json

import pytest

from waystation.cli.output import exit_code_of, print_json, print_result, report_error, split_settings, visible
from waystation.core.cursor import ShortError
from waystation.core.errors import ConfigError, HostError, LocalError


def test_settings_become_overrides():
    """Only the first equals sign divides; spaces around it do not count."""
    assert split_settings(["bhumi.tls=127.0.0.1:0", "node.name = a=b"]) == {
        "bhumi.tls": "127.0.0.1:0",
        "node.name": "a=b",
    }


def test_dedicated_flag_wins_over_set():
    """--home beats --set node.home, and flags nobody gave are not there."""
    assert split_settings(["node.home=a"], home="b", log_format=None, log_level="debug") == {
        "node.home": "b",
        "node.log_level": "debug",
    }


def test_setting_without_value_is_refused():
    """A text without an equals sign says nothing."""
    with pytest.raises(ConfigError, match=r"flag bhumi\.tls: a setting is given as table\.key=value"):
        split_settings(["bhumi.tls"])


def test_exit_code_follows_the_nearest_branch():
    """A subclass exits as its branch does."""
    assert exit_code_of(ShortError(4, 1)) == 1
    assert exit_code_of(LocalError("x")) == 2
    assert exit_code_of(ConfigError("x", origin="f")) == 3
    assert exit_code_of(HostError("x", exit_code=5)) == 5


def test_sentence_goes_to_stderr_and_json_to_stdout(capsys):
    """People read stderr, programs read stdout."""
    report_error(LocalError("wrong"), as_json=False)
    report_error(LocalError("wrong"), as_json=True)
    captured = capsys.readouterr()

    assert captured.err == "waystation: wrong\n"
    assert captured.out == '{"error": "wrong", "kind": "LocalError", "exit_code": 2}\n'


def test_error_steers_no_terminal(capsys):
    """What a server said stands in sentences of ours, and shows its control characters."""
    report_error(HostError("it said \x9b31m\x1b[2J\u202e"), as_json=False)

    assert capsys.readouterr().err == "waystation: it said \\x9b31m\\x1b[2J\\u202e\n"


def test_json_is_one_line(capsys):
    """One document, one line, other scripts unescaped."""
    print_json({"a": ["é"]})

    assert capsys.readouterr().out == '{"a": ["é"]}\n'


def test_json_of_others_steers_no_terminal(capsys):
    """Control characters, reversed text and half characters are escaped, and read back as they were."""
    texts = ["\x9b31m\x7f", "\u202efdp.exe", "\ud800", "\U000e0041", "é\u65e5"]
    print_json(texts)
    line = capsys.readouterr().out.removesuffix("\n")

    assert line.isprintable()
    assert "é\u65e5" in line
    assert json.loads(line) == texts


def test_control_characters_are_shown():
    """What a peer sends is printed, not obeyed; where one line is printed, it stays one."""
    assert visible("a\x1b[2J\u202eb\n") == "a\\x1b[2J\\u202eb\n"
    assert visible("a\n\tb", kept="") == "a\\n\\tb"


@pytest.mark.parametrize(("as_json", "printed"), [(False, "one\ntwo\n"), (True, '{"count": 2}\n')])
def test_result_is_printed_for_people_or_for_programs(capsys, as_json, printed):
    """People get the lines, programs one line of JSON, and nobody gets both."""
    print_result({"count": 2}, "one", "two", as_json=as_json)

    assert capsys.readouterr().out == printed
