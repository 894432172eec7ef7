"""Laws of tools.audit: it warns, and never fails a build."""

import json

import pytest

from tools.audit import Finding, Ran, findings_in, main

KNOWN = {"id": "PYSEC-2026-1", "fix_versions": ["1.1", "2.0"], "aliases": [], "description": ""}
REPORT = {
    "dependencies": [{"name": "a", "version": "1.0", "vulns": [KNOWN]}, {"name": "b", "version": "1", "vulns": []}]
}


def test_findings_are_read():
    """Each vulnerability with its package, version and fixes; a package that was left out has none."""
    skipped = {"dependencies": [{"name": "c", "skip_reason": "not on the index"}]}

    assert findings_in(json.dumps(REPORT)) == [Finding("a", "1.0", "PYSEC-2026-1", "1.1, 2.0")]
    assert findings_in(json.dumps(skipped)) == []


@pytest.mark.parametrize("text", ["", "null", "[]", "{}", '{"dependencies": 1}', '{"dependencies": [{"vulns": [{}]}]}'])
def test_what_is_no_report(text):
    """An error of pip-audit is no empty list of findings."""
    assert findings_in(text) is None


def test_finding_is_a_warning(capsys):
    """It is printed, and the build goes on."""
    code = main(lambda _: Ran(json.dumps(REPORT), "", is_good=True))

    assert code == 0
    assert "WARNING: a 1.0 has PYSEC-2026-1: fixed in 1.1, 2.0" in capsys.readouterr().out


@pytest.mark.parametrize(("failing", "says"), [("pip", "cannot be installed"), ("pip_audit", "cannot be fetched")])
def test_what_cannot_be_reached_is_said(capsys, failing, says):
    """Without a network nothing was checked, and the output says so and why."""
    code = main(lambda command: Ran("", "x\nno route to host", is_good=failing not in command))

    assert code == 0
    out = capsys.readouterr().out
    assert f"nothing was checked: {says}" in out.replace("pip-audit==2.10.1 ", "").replace(
        "the vulnerability data ", ""
    )
    assert "no route to host" in out
