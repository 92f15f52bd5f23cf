"""The table of features: each row has its room, and the program does without any of them."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import get_args

import pytest

import dynamic_mcp
from dynamic_mcp.config import form
from dynamic_mcp.config.resolved import Config
from dynamic_mcp.config.section import OfFeature, Section, file_fields
from dynamic_mcp.features.table import FEATURES, Feature
from dynamic_mcp.proxy.chain import ORDER
from tests.program import odd
from tests.windows import OF_OTHER_SYSTEMS

PACKAGE = Path(str(dynamic_mcp.__file__)).parent
BOUND_S = 60
each_feature = pytest.mark.parametrize("feature", FEATURES, ids=[each.name for each in FEATURES])
# In one process: the help of all commands, a look at a config, and serving it.
CORE = """
import sys
from dynamic_mcp.cli.main import run
assert run(["--help"]) == 0
assert run(["check", "--json", "-c", sys.argv[1]]) == 0
assert run([sys.argv[1]]) == 0
"""
# What is wrong with a config, and whether it is refused for that.
PROBLEMS = """
import json, sys
from dynamic_mcp.config import form
from dynamic_mcp.config.problems import find_problems
tree = json.load(open(sys.argv[1]))
problems = find_problems(tree)
try:
    form.root(tree)
except ValueError:
    assert problems
else:
    assert not problems
for each in problems:
    print(each.where, each.message)
"""
IMPORTS = f"""
import pkgutil, dynamic_mcp
from importlib import import_module
for module in pkgutil.walk_packages(dynamic_mcp.__path__, "dynamic_mcp."):
    if not module.name.endswith("__main__") and module.name not in {sorted(OF_OTHER_SYSTEMS)}:
        import_module(module.name)
"""


def test_each_row_has_a_room_and_each_room_has_a_row() -> None:
    rooms = {folder.name for folder in (PACKAGE / "features").iterdir() if (folder / "__init__.py").exists()}
    assert sorted(rooms) == sorted(each.name for each in FEATURES)


@each_feature
def test_what_a_row_names_is_there(feature: Feature) -> None:
    named = [feature.observer, feature.check, feature.probe, feature.change_listener, feature.server_source]
    named += [feature.catalog_check, feature.gates, feature.status]
    commands = [f"commands.{command.name}" for command in feature.commands]
    for module in filter(None, [*named, feature.auth_provider, *commands]):
        assert find_spec(f"dynamic_mcp.features.{feature.name}.{module}"), module
    named = [*feature.steps.values(), *feature.methods.values(), *filter(None, [feature.section, feature.resolve])]
    if feature.rules is not None:
        named += filter(None, [feature.rules.section, feature.rules.resolve, feature.rules.compile])
    assert all(feature.find(each) is not None for each in named)
    assert feature.steps.keys() <= {row.slot for row in ORDER}
    assert {*feature.members} <= {*form.Settings.__struct_fields__}
    assert not feature.serves or {*feature.members} <= {*Config.__struct_fields__}
    assert all(hasattr(Config, member) for member in feature.wanted_by)


@each_feature
def test_nothing_outside_of_a_room_names_its_modules(feature: Feature) -> None:
    room, table = PACKAGE / "features" / feature.name, PACKAGE / "features" / "table.py"
    name = re.compile(rf"features[./]{feature.name}\b")
    files = (file for file in PACKAGE.rglob("*.py") if file != table and not file.is_relative_to(room))
    assert not [str(file) for file in files if name.search(file.read_text(encoding="utf-8"))]


@each_feature
def test_a_feature_is_removed_by_deleting_its_room_and_its_row(feature: Feature, tmp_path: Path) -> None:
    copy_without(feature.name, tmp_path / "dynamic_mcp")
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"mcpServers": {"good": odd()}}))
    arguments = {"group": "good", "name": "echo", "arguments": {"text": "hello"}}
    frames = [
        {"method": "initialize", "params": {"protocolVersion": "2025-11-25"}},
        {"method": "tools/call", "params": {"name": "call_dynamic_tool", "arguments": arguments}},
    ]
    lines = [json.dumps({"jsonrpc": "2.0", "id": id, **frame}) for id, frame in enumerate(frames)]
    printed = run(tmp_path, CORE, str(config), stdin="\n".join([*lines, ""])).splitlines()
    words = {line.split()[0] for line in printed if line.startswith("  ") and line.strip()}
    assert "serve" in words
    assert not words & {command.name for command in feature.commands}
    answers = [json.loads(line) for line in printed if line.startswith('{"jsonrpc"')]
    (called,) = (each["result"] for each in answers if each.get("id") == len(frames) - 1)
    assert "hello" in called["content"][0]["text"]
    assert not called.get("isError")


def settings_of(feature: Feature) -> list[str]:
    """Return the keys of the settings that are a feature's own, by its row or by their marks."""
    return sorted({key.removeprefix("settings.") for key in feature.keys} | marked_fields(form.Settings, feature))


def defaults_of(feature: Feature) -> list[str]:
    """Return the keys of the defaults for servers that are a feature's own."""
    rules = feature.rules
    own = {rules.key} if rules is not None and "defaults" in rules.places else set()
    return sorted(own | marked_fields(form.Defaults, feature))


def marked_fields(section: type[Section], feature: Feature) -> set[str]:
    """Return the fields of a section that are marked as a feature's."""
    marks = {key: get_args(field.type) for key, field in file_fields(section).items()}
    return {
        key
        for key, each in marks.items()
        if any(isinstance(mark, OfFeature) and mark.feature == feature.name for mark in each)
    }


@pytest.mark.parametrize(
    "feature",
    [each for each in FEATURES if each.rules or settings_of(each) or defaults_of(each)],
    ids=lambda feature: feature.name,
)
def test_without_it_its_part_of_a_config_is_an_error(feature: Feature, tmp_path: Path) -> None:
    copy_without(feature.name, tmp_path / "dynamic_mcp")
    server: dict[str, object] = {"command": "x"}
    settings: dict[str, object] = {key: [] for key in settings_of(feature)}
    defaults: dict[str, object] = {key: [] for key in defaults_of(feature)}
    if feature.rules is not None:
        server[feature.rules.key] = []
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"mcpServers": {"a": server}, "settings": {**settings, "defaults": defaults}}))
    said = run(tmp_path, PROBLEMS, str(config)).splitlines()
    wrong = [f"settings.{key}" for key in settings] + [f"settings.defaults.{key}" for key in defaults]
    wrong += [*(f"mcpServers.a.{key}" for key in server if key != "command")]
    assert sorted(said) == sorted(f"{key} is an unknown field" for key in wrong)


@pytest.mark.parametrize("feature", [each for each in FEATURES if each.auth_kind], ids=lambda feature: feature.name)
def test_without_it_its_kind_of_authentication_is_unknown(feature: Feature, tmp_path: Path) -> None:
    copy_without(feature.name, tmp_path / "dynamic_mcp")
    config = tmp_path / "config.json"
    http = {"public_url": "https://mcp.example.com/mcp", "auth": [{"kind": feature.auth_kind}]}
    config.write_text(json.dumps({"mcpServers": {}, "settings": {"http": http}}))
    (said,) = run(tmp_path, PROBLEMS, str(config)).splitlines()
    assert said == "settings.http.auth[0].kind must be one of `bearer`, `jwt`, `forwarded`"


@pytest.mark.full
@each_feature
def test_without_it_every_other_module_can_still_be_imported(feature: Feature, tmp_path: Path) -> None:
    copy_without(feature.name, tmp_path / "dynamic_mcp")
    run(tmp_path, IMPORTS)


def run(folder: Path, code: str, *args: str, stdin: str = "") -> str:
    """Run a program with the package in a folder, and return what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", code, *args],
        input=stdin,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        timeout=BOUND_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def copy_without(feature: str, copy: Path) -> None:
    """Make a package of links to everything but a feature, and to a table without its row. On Windows, of copies."""
    (copy / "features").mkdir(parents=True)
    for source, target in ((PACKAGE, copy), (PACKAGE / "features", copy / "features")):
        for entry in source.iterdir():
            if entry.name not in (feature, "features", "table.py", "__pycache__"):
                link_or_copy(entry, target / entry.name)
    table = (PACKAGE / "features" / "table.py").read_text(encoding="utf-8")
    (copy / "features" / "table.py").write_text(without_row(table, feature), encoding="utf-8")


def link_or_copy(source: Path, target: Path) -> None:
    """Make a link, for which Windows wants a right that few have: a copy there."""
    if sys.platform != "win32":
        target.symlink_to(source)
    elif source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copyfile(source, target)


def without_row(table: str, feature: str) -> str:
    """Return the text of the table without the row of a feature."""
    lines = table.splitlines(keepends=True)
    rows = [node for node in ast.walk(ast.parse(table)) if isinstance(node, ast.Call) and is_row(node, feature)]
    (row,) = rows
    assert row.end_lineno is not None
    del lines[row.lineno - 1 : row.end_lineno]
    return "".join(lines)


def is_row(node: ast.Call, feature: str) -> bool:
    name = node.args[0] if node.args else None
    return (
        isinstance(node.func, ast.Name)
        and node.func.id == "Feature"
        and isinstance(name, ast.Constant)
        and name.value == feature
    )
