"""Conditions in CEL in a config: what is wrong with them, and where."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dynamic_mcp.config.resolved import Config
from dynamic_mcp.errors import ConfigError

Refuse = Callable[..., ConfigError]

needs_cel = pytest.mark.usefixtures("_cel")


@pytest.fixture
def _cel() -> None:
    pytest.importorskip("cel_expr_python", reason="needs the extra `cel`")


def document(when: object) -> dict[str, object]:
    return {"mcpServers": {}, "settings": {"access": {"roles": {"dev": [{"when": when}]}}}}


@needs_cel
@pytest.mark.parametrize("when", ['subject == "alice"', "arguments.force", "true", '"x" in roles\n|| "y" in scopes'])
def test_a_condition_is_accepted(read_config: Callable[..., Config], when: str) -> None:
    access = read_config(document(when)).access
    assert access is not None
    assert access.roles["dev"][0].when == when


@needs_cel
@pytest.mark.parametrize(
    ("when", "message"),
    [
        ('subjet == "alice"', "undeclared reference to 'subjet' (line 1, column 1)"),
        ("subject == 1", "found no matching overload for '_==_' applied to '(string, int)' (line 1, column 9)"),
        ('true &&\n subject.foo == "a"', "expression of type 'string' cannot be the operand of a select operation"),
        ("subject", "must be true or false"),
        ("subject ==", "is not a condition in CEL: Syntax error"),
        ("", "must not be empty"),
        ("  ", "must not be empty"),
        ("true" + " || true" * 300, "at most 2000 characters"),
        ("(" * 500 + "true" + ")" * 500, "nested too deeply"),
        (5, "must be a string"),
    ],
)
def test_a_wrong_condition_is_refused_with_its_place(refuse: Refuse, when: object, message: str) -> None:
    error = str(refuse(document(when)))
    assert "settings.access.roles.dev[0].when" in error
    assert message in error


def test_without_the_extra_the_error_says_how_to_install_it(tmp_path: Path) -> None:
    file = tmp_path / "dynamic-mcp.json"
    file.write_text('{"mcpServers": {}, "settings": {"access": {"roles": {"dev": [{"when": "true"}]}}}}')
    program = (
        "import sys; sys.modules['cel_expr_python'] = None\n"
        "from pathlib import Path\n"
        "from dynamic_mcp.config.read import read\n"
        "from dynamic_mcp.errors import ConfigError\n"
        "try: read(Path(sys.argv[1]), {}, platform='linux')\n"
        "except ConfigError as exc: print(exc)"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program, str(file)], capture_output=True, text=True, check=True, timeout=60
    )
    assert "settings.access.roles.dev[0].when" in answer.stdout
    assert "pip install " in answer.stdout
    assert "cel-expr-python`" in answer.stdout


def test_texts_that_are_too_long_are_refused_with_their_place(refuse: Refuse) -> None:
    error = str(refuse({"mcpServers": {}, "profiles": {"a": {"instructions": "x" * 10_001}}}))
    assert "profiles.a.instructions" in error
