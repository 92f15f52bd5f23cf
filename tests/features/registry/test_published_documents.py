"""Whatever is valid by a published schema becomes a config that starts what the document says, or is refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import quote

import jsonschema_rs
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from dynamic_mcp.config.read import read
from dynamic_mcp.config.resolved import Program, Remote
from dynamic_mcp.features.registry.build import build
from dynamic_mcp.features.registry.document import Package, read_answer
from dynamic_mcp.features.registry.options import Option, questions_about, usable_options
from dynamic_mcp.features.registry.questions import ServerQuestion
from dynamic_mcp.features.registry.runtimes import UnusableOption
from tests.features.registry.published_schemas import CANARY, VERSIONS, Json, documents, load

LAUNCHER = f"""#!{sys.executable} -ISE
import json, os, sys
print(json.dumps([sys.argv[1:], dict(os.environ)]))
"""
# The oldest, which has other names, and the newest; those between differ from it in little.
each_version = pytest.mark.parametrize(
    "version", [VERSIONS[0], *(pytest.param(each, marks=pytest.mark.full) for each in VERSIONS[1:-1]), VERSIONS[-1]]
)
relaxed = settings(
    max_examples=30,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
)


def answers_for(option: Option, data: st.DataObject) -> dict[str, str]:
    """Answer what must be answered, and some of the rest."""
    return {
        each.key: _answer(each, number)
        for number, each in enumerate(questions_about(option))
        if each.is_required or data.draw(st.booleans())
    }


def _answer(question: ServerQuestion, number: int) -> str:
    if question.input.choices:
        return question.input.choices[0]
    return {"number": str(number), "boolean": "true", "filepath": f"/v{number}"}.get(
        question.input.format, f"v{number} {{one}} ${{x y}}"
    )


def resolve(folder: Path, entry: Mapping[str, object]) -> Program | Remote:
    """Return what a config with this entry stands for; it must be one that is accepted."""
    file = folder / "dynamic-mcp.json"
    file.write_text(json.dumps({"mcpServers": {"a": entry}}))
    (group,) = read(file, {"PATH": os.environ["PATH"], "CANARY": CANARY}).groups
    assert isinstance(group.upstream, Program | Remote), group.upstream
    return group.upstream


def member(value: Json, name: str) -> Json:
    """Return a member by its current name, or by that of 2025-07-09."""
    older = "".join(f"_{c.lower()}" if c.isupper() else c for c in name)
    return value.get(name, value.get(older))


class Reading:
    """What a document says by the words of its specification, worked out apart from the program."""

    def __init__(self, raw: Json, option: Option, answers: Mapping[str, str]) -> None:
        keys = iter([each.key for each in questions_about(option)])
        self.raw = raw
        self.inputs = _inputs(raw)
        self._answers = answers
        self._keys = {id(given): list(self._keys_of(given, keys)) for given in self.inputs}

    def _keys_of(self, given: Json, keys: Iterator[str]) -> Iterator[str]:
        if given.get("value") is None:
            yield next(keys)
            return
        for _ in _names(given):
            yield next(keys)

    def value(self, given: Json, *, is_url: bool = False) -> str | None:
        """Return the value of an input, or None if it is left out."""
        keys = self._keys[id(given)]
        if given.get("value") is None:
            return self._answers.get(keys[0], _default(given))
        text = str(given["value"])
        values = [
            self._answers.get(key, _default(given["variables"][name]))
            for name, key in zip(_names(given), keys, strict=True)
        ]
        if None in values:
            return None
        pieces = _split(text, _names(given))
        values = [quote(str(value), safe="") if is_url else value for value in values]
        filled = dict(zip(_names(given), values, strict=True))
        return "".join(str(filled[piece[1:-1]]) if is_name else piece for piece, is_name in pieces)

    def words(self, arguments: Json) -> list[str]:
        """Return the words of arguments."""
        found: list[str] = []
        for each in arguments or []:
            value = self.value(each)
            if value is not None:
                found += _words(each, value)
        return found


def _words(argument: Json, value: str) -> list[str]:
    name = argument.get("name") if argument.get("type") == "named" else None
    if name is None:
        return [value]
    if not value:
        return [name]
    return [name, value] if name.startswith("-") and not name.startswith("--") else [f"{name}={value}"]


def _inputs(raw: Json) -> list[Json]:
    if "url" in raw:
        return [{"value": raw["url"], "variables": raw.get("variables", {})}, *(raw.get("headers") or [])]
    lists = (member(raw, name) or [] for name in ("runtimeArguments", "packageArguments", "environmentVariables"))
    return [each for inputs in lists for each in inputs]


def _names(given: Json) -> list[str]:
    return list(
        dict.fromkeys(
            piece[1:-1] for piece, is_name in _split(str(given["value"]), given.get("variables", {})) if is_name
        )
    )


def _split(text: str, names: Json) -> list[tuple[str, bool]]:
    """Split a text at `{name}`, for the names that there are."""
    pieces: list[tuple[str, bool]] = []
    rest = text
    while rest:
        starts = [(at, f"{{{name}}}") for name in names if (at := rest.find(f"{{{name}}}")) >= 0]
        if not starts:
            return [*pieces, (rest, False)]
        at, word = min(starts)
        pieces += [(rest[:at], False), (word, True)]
        rest = rest[at + len(word) :]
    return pieces


def _default(given: Json) -> str | None:
    default = given.get("default")
    if not default or (given.get("choices") and default not in given["choices"]):
        return None
    if given.get("format") in ("number", "boolean"):
        return None  # none of the texts that are tried is either
    return str(default)


@each_version
@given(data=st.data())
@relaxed
def test_valid_documents_are_understood(version: str, data: st.DataObject) -> None:
    raw = data.draw(documents(version))
    jsonschema_rs.validator_for(load(version)).validate(raw)
    document = read_answer({"server": raw})
    assert document.name == raw["name"]
    assert document.flaws == ()
    assert len(document.packages) == len(raw.get("packages", []))
    assert [each.url for each in document.remotes] == [each["url"] for each in raw.get("remotes", [])]


@pytest.mark.posix_only("a script takes the place of each launcher")
@each_version
@given(data=st.data())
@relaxed
def test_what_can_be_used_starts_or_reaches_what_the_document_says(
    version: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    raw = data.draw(documents(version))
    document = read_answer({"server": raw})
    usable, refusals = usable_options(document)
    assert len(usable) + len(refusals) == len(document.packages) + len(document.remotes)
    everything: list[Option] = [*document.packages, *document.remotes]
    sources = [*raw.get("packages", []), *raw.get("remotes", [])]
    for option in usable:
        source = next(source for each, source in zip(everything, sources, strict=True) if each is option)
        answers = answers_for(option, data)
        try:
            draft = build(document, option, {key: (text,) for key, text in answers.items()})
        except UnusableOption:
            continue
        upstream = resolve(tmp_path_factory.mktemp("config"), draft.entry)
        reading = Reading(source, option, answers)
        if isinstance(upstream, Program):
            check_program(reading, option, upstream, tmp_path_factory.getbasetemp())
        else:
            check_remote(reading, upstream)


def check_program(reading: Reading, option: Option, upstream: Program, folder: Path) -> None:
    """Start a program, and compare what it gets with what the document says."""
    assert isinstance(option, Package)
    source = reading.raw
    launcher = folder / upstream.command
    if not launcher.exists():
        launcher.write_text(LAUNCHER)
        launcher.chmod(0o755)
    done = subprocess.run([launcher, *upstream.args], env=upstream.env, capture_output=True, check=True)
    args, environment = json.loads(done.stdout)
    assert CANARY not in done.stdout.decode()
    words = reading.words(member(source, "packageArguments"))
    head, tail = args[: len(args) - len(words)], args[len(args) - len(words) :]
    assert tail == words
    if option.kind == "nuget" and words:
        assert head.pop() == "--"
    target = {"npm": "{}@{}", "pypi": "{}=={}", "nuget": "{}@{}", "oci": "{}"}[option.kind]
    name, version = source["identifier"], member(source, "version")
    pinned = target.format(name, version) if version else name
    if option.kind == "oci":
        assert head[-1] in (name, f"{name}:{version}") or head[-1].endswith((f"/{name}", f"/{name}:{version}"))
    else:
        assert pinned in (head[:1] if option.kind == "nuget" else head[-1:])
    for variable in member(source, "environmentVariables") or []:
        value = reading.value(variable)
        if value is not None:
            assert variable["name"] in environment
            assert option.kind != "oci" or variable["name"] in head
    if option.kind != "oci":
        runtime = iter(head)
        wanted = reading.words(member(source, "runtimeArguments"))
        assert all(word in runtime for word in wanted if word not in (name, "--"))


def check_remote(reading: Reading, upstream: Remote) -> None:
    """Compare what is reached with what the document says."""
    url, *headers = reading.inputs
    assert upstream.url == reading.value(url, is_url=True)
    expected = {each["name"]: value for each in headers if (value := reading.value(each)) is not None}
    assert dict(upstream.headers) == expected
    assert CANARY not in json.dumps(expected)
