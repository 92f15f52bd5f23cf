"""What the documents say is true: their JSON loads, their commands exist, their diagram and schema match the code."""

from __future__ import annotations

import ast
import contextlib
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import click
import pytest
from msgspec.structs import fields

from dynamic_mcp.cli.command_group import commands
from dynamic_mcp.config import jsonc, schema
from dynamic_mcp.config.read import read
from dynamic_mcp.doctor.files import check_file
from dynamic_mcp.doctor.findings import Level
from dynamic_mcp.features.audit.chain import AuditLine
from dynamic_mcp.groups.lifecycle import TRANSITIONS
from dynamic_mcp.packs import schema as packs_schema
from dynamic_mcp.packs.library import read_file
from tests import own_process
from tests.documents import DOCUMENTS, JSON_LANGUAGES, ROOT, SHELL_LANGUAGES, blocks, find_blocks

CONFIGURATION = [ROOT / "docs" / "configuration.md", ROOT / "docs" / "configuration-advanced.md"]
DASHBOARD = ROOT / "examples" / "grafana-dashboard.json"
EXAMPLES = sorted({*(ROOT / "examples").glob("**/*.json")} - {DASHBOARD})


JSON_BLOCKS = [
    pytest.param(block.text, id=f"{file.name}-{block.line}")
    for file in DOCUMENTS
    for block in find_blocks(file)
    if block.language in JSON_LANGUAGES
]
ENTRIES = [each for each in JSON_BLOCKS if '"dynamic-mcp":' in str(each.values[0])]
PACKS = [each for each in JSON_BLOCKS if '"mcpServers"' not in str(each.values[0])]
CONFIGS = [each for each in JSON_BLOCKS if each not in ENTRIES and each not in PACKS]
# `<!-- check says: … -->` before a block: the errors that its readers are to see
EXPECTED_ERRORS = {
    block.text: [mark.removeprefix("check says: ") for mark in block.marks if mark.startswith("check says: ")]
    for file in DOCUMENTS
    for block in find_blocks(file)
}


@pytest.fixture
def machine(tmp_path: Path) -> dict[str, str]:
    """The environment of a machine that has the programs and directories that the documents name."""
    folder = tmp_path / "bin"
    for name in ("scripts", "src"):
        (tmp_path / name).mkdir()
    folder.mkdir()
    for name in (
        "git",
        "github-mcp-server",
        "npx",
        "op",
        "postgres-mcp",
        "tickets-cli",
        "tracker-mcp",
        "uvx",
        "weather-mcp",
    ):
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)
    for directory in ("skills", "work/skills"):
        (tmp_path / directory).mkdir(parents=True)
    return {"PATH": str(folder), "HOME": str(tmp_path)}


@pytest.mark.skipif(os.name != "posix", reason="the programs that stand in are scripts of a shell")
@pytest.mark.parametrize("text", CONFIGS)
def test_check_accepts_every_config_of_the_documents_as_it_stands(
    text: str, machine: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", machine["HOME"])
    file = tmp_path / "dynamic-mcp.json"
    file.write_text(text)
    config, findings = check_file(file, machine)
    assert config is not None
    assert config.groups
    assert [each.what for each in findings if each.level is Level.ERROR] == EXPECTED_ERRORS[text]


@pytest.mark.parametrize("text", PACKS)
def test_every_other_json_of_the_documents_is_a_pack(text: str, tmp_path: Path) -> None:
    file = tmp_path / "pack.json"
    file.write_text(text)
    assert read_file(file).commands


@pytest.mark.parametrize("text", ENTRIES)
def test_every_entry_of_the_documents_starts_the_program_or_names_where_it_serves(text: str) -> None:
    document = jsonc.loads(text)
    assert isinstance(document, dict)
    entry = (document.get("servers") or document["mcpServers"])["dynamic-mcp"]
    if "url" in entry:
        assert entry["url"] == "https://mcp.example.com/mcp"
        assert entry["headers"]["Authorization"].startswith("Bearer ")
        return
    assert entry["command"] == "dynamic-mcp"
    args = [str(ROOT / "examples" / "quickstart.json") if arg.endswith(".json") else arg for arg in entry["args"]]
    done = own_process.run(*args, stdin=b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
    assert json.loads(done.stdout)["id"] == 1


def command_lines(document: Path) -> Iterator[str]:
    """Yield the commands of this program that a document shows, in blocks and in sentences."""
    for text in blocks(document, *SHELL_LANGUAGES):
        has_prompts = "\n$ " in f"\n{text}"
        for line in text.replace("\\\n", " ").splitlines():
            if line.startswith("$ " if has_prompts else "dynamic-mcp "):
                yield line.removeprefix("$ ")
    prose = re.sub(
        r"^```.*?^```|<!-- clients -->.*<!--",
        "",
        document.read_text(encoding="utf-8"),
        flags=re.MULTILINE | re.DOTALL,
    )
    yield from re.findall(r"`(dynamic-mcp [a-z][^`]*)`", prose)


COMMAND_LINES = sorted(
    {
        " ".join(line.split(" | ")[0].split())
        for file in DOCUMENTS
        for line in command_lines(file)
        if line.startswith("dynamic-mcp ") and not re.search(r"…|\||\[[A-Z]", line.split(" | ")[0])
    }
)


@pytest.mark.parametrize("line", COMMAND_LINES)
def test_every_command_line_of_the_documents_is_one_that_the_program_takes(line: str) -> None:
    words = shlex.split(line, comments=True)[1:]
    command: click.Command = commands
    context = click.Context(commands, info_name="dynamic-mcp")
    while isinstance(command, click.Group) and words and (found := command.get_command(context, words[0])):
        command, words = found, words[1:]
    if words:  # a sentence may name a command without what it needs
        with contextlib.suppress(click.MissingParameter):
            command.make_context(line, words, parent=context)


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.name)
def test_every_example_config_is_valid_and_its_programs_exist(file: Path) -> None:
    secrets = dict.fromkeys(("VALKEY_PASSWORD", "EXCHANGE_SECRET", "ENTRA_SECRET"), "secret")
    config = read(file, {"CLUSTER_KEY": "k" * 64, **secrets})
    assert config.groups
    assert not config.warnings


def test_the_quickstart_shows_groups_a_tool_found_and_a_tool_called() -> None:
    script = ROOT / "examples" / "quickstart.py"
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    for shown in ("get_dynamic_tools", "notes", "dates", "add_working_days", "2026-12-31"):
        assert shown in done.stdout


@pytest.mark.posix_only("a pseudo-terminal, as POSIX systems have them")
def test_a_recording_shows_what_a_terminal_shows_and_loads_nothing(tmp_path: Path) -> None:
    file = tmp_path / "shown.svg"
    program = "import sys; print('\\x1b[1mtwo tools\\x1b[0m' if sys.stdout.isatty() else 'no terminal')"
    subprocess.run([sys.executable, "docs/record.py", str(file), "-c", program], cwd=ROOT, check=True, timeout=60)
    drawn = file.read_text(encoding="utf-8")
    assert ">two&#160;tools</text>" in drawn
    assert "url(h" not in drawn
    assert "href" not in drawn


def test_the_two_first_shell_blocks_of_the_readme_are_one_command_line_each() -> None:
    first, second = blocks(ROOT / "README.md", "sh")[:2]
    assert first.count("\n") == second.count("\n") == 1
    assert first.rstrip().endswith("python examples/quickstart.py")
    assert second.rstrip().endswith("pytest -n auto")


def test_files_that_commands_and_links_name_exist() -> None:
    for document in DOCUMENTS:
        for target in re.findall(r"\]\(([^)#]+)", document.read_text(encoding="utf-8")):
            if "://" not in target:
                assert (document.parent / target).exists(), f"{document.name}: {target}"
        for command in re.findall(r"`(python [^`]+)`", document.read_text(encoding="utf-8")):
            words = shlex.split(command.split(">")[0])
            named = f"{words[2].replace('.', '/')}.py" if words[1] == "-m" else words[1]
            assert (ROOT / named).exists() or (ROOT / named.removesuffix(".py")).is_dir(), (
                f"{document.name}: {command}"
            )


def test_links_to_a_section_lead_to_its_heading() -> None:
    for document in DOCUMENTS:
        for target, section in re.findall(r"\]\(([^)#:\s]*)#([^)]+)\)", document.read_text(encoding="utf-8")):
            page = document.parent / target if target else document
            assert section in anchors(page), f"{document.name}: {target}#{section}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda file: file.name)
def test_a_page_has_one_title_no_heading_twice_and_skips_no_level(document: Path) -> None:
    names = anchors(document)
    assert sorted(names) == sorted(set(names))
    text = re.sub(r"^```.*?^```", "", document.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    levels = [len(marks) for marks in re.findall(r"^(#+) ", text, re.MULTILINE)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(below <= above + 1 for above, below in pairwise(levels))


def test_no_two_headings_of_the_configuration_are_the_same() -> None:
    names = [name for page in CONFIGURATION for name in anchors(page)]
    assert sorted(names) == sorted(set(names))


SECTIONS = [
    pytest.param(heading, text, id=f"{page.stem}: {heading}")
    for page in CONFIGURATION
    for heading, text in re.findall(
        r"^## ([^\n]*)\n(.*?)(?=^## |\Z)", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    if "<!-- fields of " in text
]


@pytest.mark.parametrize(("heading", "text"), SECTIONS)
def test_fields_stand_below_their_place_with_an_example_and_their_guide_and_once(heading: str, text: str) -> None:
    places = re.findall(r"<!-- fields of (.+?)(?:\[\])?(?:: .+)? -->", text)
    rows = re.findall(r"^\| (.*?) \|", text, re.MULTILINE)
    assert all(f"`{place}" in heading or place.title() == heading.title() for place in places)
    assert "```json\n" in text
    assert places == ["the file"] or re.search(r"\]\((?!#|configuration)[a-z-]+\.md", text)
    assert sorted(rows) == sorted(set(rows))


def test_the_page_of_everyday_fields_is_short() -> None:
    assert CONFIGURATION[0].read_text(encoding="utf-8").count("\n") <= 250


def test_every_field_of_the_schema_is_in_the_configuration() -> None:
    definitions = schema.schema()["$defs"]
    assert isinstance(definitions, dict)
    names = {field for part in definitions.values() for field in part["properties"]}
    paths = [
        path
        for page in CONFIGURATION
        for path in re.findall(r"^\| `([^`]+)`", page.read_text(encoding="utf-8"), re.MULTILINE)
    ]
    assert names <= {name for path in paths for name in re.split(r"\.|\[\]\.?", path)}


def anchors(document: Path) -> list[str]:
    """Return what GitHub calls the headings of a document in links."""
    text = re.sub(r"^```.*?^```", "", document.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text), re.MULTILINE)
    return [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]


def test_the_schema_file_is_what_the_model_says() -> None:
    assert (ROOT / "schemas" / "dynamic-mcp.schema.json").read_text(encoding="utf-8") == schema.schema_text()


def test_the_generated_parts_are_as_the_code_has_them() -> None:
    done = subprocess.run(
        [sys.executable, "docs/generate.py", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.stdout == "", "run `python docs/generate.py`"
    assert done.returncode == 0, done.stderr


def test_every_member_of_an_audit_line_is_explained_in_its_order() -> None:
    page = (ROOT / "docs" / "audit.md").read_text(encoding="utf-8")
    table = page[page.index("### The members of a line") : page.index("### Where it is")]
    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == [field.name for field in fields(AuditLine)]


def test_the_diagram_shows_every_transition_of_the_table() -> None:
    (diagram,) = blocks(ROOT / "docs" / "architecture.md", "mermaid")
    drawn = set(re.findall(r"(\w+) --> (\w+)", diagram))
    assert drawn == {(before.name, after.name) for before, afters in TRANSITIONS.items() for after in afters}


def test_every_message_that_troubleshooting_explains_is_one_of_the_program() -> None:
    page = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    explained = page[: page.index("## Every message")]
    said = [words for file in sorted((ROOT / "dynamic_mcp").rglob("*.py")) for words in _texts(file)]
    rows = [row.split(" | ")[0].removeprefix("| ") for row in explained.splitlines() if row.startswith("| ")]
    messages = [row for row in rows if row not in ("message",)]
    assert len(messages) > 25
    for message in messages:
        parts = [part.strip("` ") for part in message.split("…") if part.strip("` ")]
        assert all(any(part in words for words in said) for part in parts), message


def _texts(file: Path) -> Iterator[str]:
    """Yield the string expressions of a module, each whole, with `…` for what is filled in."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        match node:
            case ast.Constant(value=str(text)):
                yield text.replace("%s", "…").replace("%d", "…")
            case ast.JoinedStr(values=parts):
                yield "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in parts)


def test_the_changelog_has_its_newest_version_first() -> None:
    versions = re.findall(r"^## \[?([\d.]+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert all(tuple(map(int, a.split("."))) > tuple(map(int, b.split("."))) for a, b in pairwise(versions))


def test_the_schema_file_of_packs_is_what_their_model_says() -> None:
    assert (ROOT / "schemas" / "command-line-pack.schema.json").read_text(
        encoding="utf-8"
    ) == packs_schema.schema_text()
