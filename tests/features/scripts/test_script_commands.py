"""`script run`, `script try` and `script check`, as a person runs them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.commands import CliRunner
from tests.program import odd

TWICE = """# ---
# description: Say a text twice
# input:
#   properties: {text: {type: string}, times: {type: integer}}
#   required: [text]
# ---
return [await call("good", "echo", {"text": input["text"]}) for _ in range(input.get("times", 2))]
"""
PLAIN = 'x = await call("good", "echo", {"text": str(input.get("text"))})\nprint("seen")\nreturn x\n'


@pytest.fixture
def scripts(cli: CliRunner) -> Path:
    """The folder of stored scripts of a config."""
    cli.configure({"good": odd()}, settings={"scripts": {"folder": "scripts"}})
    folder = cli.folder / "scripts"
    folder.mkdir()
    (folder / "twice.py").write_text(TWICE)
    return folder


def test_a_stored_script_is_run_with_arguments_that_are_typed_by_its_schema(cli: CliRunner, scripts: Path) -> None:
    (scripts / "text").write_text("from a file")
    done = cli.run("script", "run", "twice", f"text=@{scripts / 'text'}", "times=3")
    assert (done.code, done.out) == (0, '["from a file", "from a file", "from a file"]\n')
    assert cli.run("call", "scripts", "twice", "text=hi").code == 0


def test_what_cannot_be_run_says_why(cli: CliRunner, scripts: Path) -> None:
    missing = cli.run("script", "run", "twice")
    assert (missing.code, missing.out) == (2, "")
    assert "`text` is missing" in missing.err
    unknown = cli.run("script", "run", "twicce", "text=x")
    assert unknown.code == 2
    assert "did you mean `twice`?" in unknown.err


def test_a_file_is_tried_as_a_model_would_run_it_and_its_calls_are_shown(cli: CliRunner, scripts: Path) -> None:
    file = cli.folder / "plain.py"
    file.write_text(PLAIN)
    done = cli.run("script", "try", str(file), "text=hi")
    assert done.code == 0
    assert done.out.startswith('"hi"\n')
    assert "good.echo: done" in done.err
    assert cli.run("script", "try", str(scripts / "twice.py"), "text=a", "times=1").out == '["a"]\n'


def test_a_script_that_fails_is_an_error(cli: CliRunner, scripts: Path) -> None:
    file = cli.folder / "wrong.py"
    file.write_text('await call("good", "ecco")')
    done = cli.run("script", "try", str(file))
    assert (done.code, done.out) == (5, "")
    assert "line 1" in done.err
    assert "nothing was called" in done.err
    assert cli.run("script", "try", str(cli.folder / "none.py")).code == 2


def test_check_names_each_script_that_is_wrong_and_its_line(cli: CliRunner, scripts: Path) -> None:
    front = "# ---\n# description: x\n# ---\n"
    for name, text in {
        "nothing": "print(1)",
        "syntax": f"{front}x = (",
        "unknown": f'{front}\nawait call("good", "ecco")',
        "yields": f"{front}def f():\n    yield 1",
        "long": f"{front}# {'x' * 64_000}",
        "nested": f'{front}await call("scripts", "twice", {{}})',
    }.items():
        (scripts / f"{name}.py").write_text(text)
    done = cli.run("script", "check")
    assert done.code == 1
    found = {each["script"]: (each.get("line", 0), each.get("error", "")) for each in done.json}
    assert found.pop("twice") == (0, "")
    assert {name: line for name, (line, _) in found.items()} == {
        "long": 0,
        "nested": 4,
        "nothing": 0,
        "syntax": 4,
        "unknown": 5,
        "yields": 5,
    }
    assert "front matter" in found["nothing"][1]
    assert found["nested"][1] == "a script cannot run scripts"
    assert "did you mean `echo`" in found["unknown"][1]
    assert "yield" in found["yields"][1]


def test_a_script_that_is_left_out_says_why_when_it_is_run(cli: CliRunner, scripts: Path) -> None:
    (scripts / "plain.py").write_text("print(1)")
    done = cli.run("script", "run", "plain")
    assert done.code == 2
    assert "it does not begin with front matter" in done.err


def test_check_passes_where_all_is_well(cli: CliRunner, scripts: Path) -> None:
    done = cli.run("script", "check", "--table", "twice")
    assert (done.code, done.out) == (0, "twice: ok\n")
    assert cli.run("script", "check", "nope").code == 2


@pytest.mark.parametrize("words", [("run", "x"), ("check",), ("try", "x.py")])
def test_commands_say_what_the_config_lacks(cli: CliRunner, words: tuple[str, ...]) -> None:
    cli.configure({"good": odd()})
    done = cli.run("script", *words)
    assert done.code == 2
    assert "`settings.scripts`: is not set" in done.err
    cli.configure({"good": odd()}, settings={"scripts": {"folder": "nowhere"}})
    assert cli.run("script", *words).code != 0
