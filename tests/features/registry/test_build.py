"""What is made of a package or a remote: the command line, the environment, the URL, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dynamic_mcp.config.read import read
from dynamic_mcp.config.resolved import Program, Remote
from dynamic_mcp.features.registry.build import build, command_line
from dynamic_mcp.features.registry.document import ServerDocument, read_answer
from dynamic_mcp.features.registry.options import Option, questions_about, usable_options
from dynamic_mcp.features.registry.questions import is_unanswered
from dynamic_mcp.features.registry.runtimes import UnusableOption
from tests.features.registry.documents import Json, github, named, package, positional, remote, server

DIGEST = "sha256:" + "a" * 64


def made(source: Json, **answers: str) -> Json:
    """Return the entry for the only option of a document."""
    return draft(source, **answers)[0]


def draft(source: Json, **answers: str) -> tuple[Json, tuple[str, ...]]:
    document = read_only(source)
    options: list[Option] = [*document.packages, *document.remotes]
    option = options[0]
    result = build(document, option, {key: (value,) for key, value in answers.items()})
    return result.entry, result.warnings


def read_only(source: Json) -> ServerDocument:
    """Return a document with nothing but this package or remote."""
    return read_answer({"server": {**server(), "remotes" if "url" in source else "packages": [source]}})


def reason(source: Json) -> str:
    """Return why the only option of a document is refused."""
    usable, refusals = usable_options(read_only(source))
    assert usable == []
    return refusals[0].reason


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (package(), "npx -y @example/weather@1.0.0"),
        (package(runtimeHint="bunx"), "bunx @example/weather@1.0.0"),
        (package("pypi", "weather"), "uvx weather==1.0.0"),
        (package("pypi", "weather", runtimeHint="pipx"), "pipx run weather==1.0.0"),
        (package("nuget", "Weather.Mcp"), "dnx Weather.Mcp@1.0.0 --yes"),
        (package("nuget", "W", packageArguments=[positional(value="go")]), "dnx W@1.0.0 --yes -- go"),
        (package("oci", "ghcr.io/a/weather:1.2", ""), "docker run -i --rm ghcr.io/a/weather:1.2"),
        (package("oci", f"a/weather@{DIGEST}", ""), f"docker run -i --rm a/weather@{DIGEST}"),
        (package("oci", "a/weather", "1.2"), "docker run -i --rm a/weather:1.2"),
        (
            package("oci", "a/weather", "1.2", registryBaseUrl="https://ghcr.io"),
            "docker run -i --rm ghcr.io/a/weather:1.2",
        ),
        (
            package("oci", "a/weather:1.2", "", registryBaseUrl="https://docker.io", runtimeHint="podman"),
            "podman run -i --rm a/weather:1.2",
        ),
        (
            package(registryBaseUrl="https://npm.example.com"),
            "npx -y --registry=https://npm.example.com @example/weather@1.0.0",
        ),
        (
            package(runtimeHint="npx", runtimeArguments=[positional(value="-y"), named("--package", value="x")]),
            "npx -y --package=x @example/weather@1.0.0",
        ),
        (
            package(runtimeHint="npx", runtimeArguments=[{"value": "-y"}, {"value": "@example/weather@1.0.0"}]),
            "npx -y @example/weather@1.0.0",
        ),
        (
            package("oci", "a/b:1", "", runtimeArguments=[positional(value=word) for word in ("run", "-i", "--rm")]),
            "docker run -i --rm a/b:1",
        ),
    ],
)
def test_a_version_is_started_by_the_usual_program(source: Json, words: str) -> None:
    assert " ".join(command_line(made(source))) == words


def test_arguments_keep_their_order_and_long_flags_are_one_word_with_their_value() -> None:
    source = package(
        packageArguments=[
            positional(value="serve"),
            named("--port", default="80", format="number"),
            named("-v", default="2"),
            named("--quiet", value=""),
            named("--left-out"),
            positional(valueHint="path", isRequired=True),
        ]
    )
    words = made(source, path="two words")["args"][2:]
    assert words == ["serve", "--port=80", "-v", "2", "--quiet", "two words"]


def test_what_may_be_repeated_is_given_once_for_each_answer() -> None:
    mount = named(
        "--mount",
        value="src={from},dst={to}",
        isRepeated=True,
        variables={"from": {"isRequired": True}, "to": {"default": "/p"}},
    )
    document = read_answer({"server": server(packages=[package("oci", "a/b:1", "", runtimeArguments=[mount])])})
    entry = build(document, document.packages[0], {"from": ("/a", "/b")}).entry
    assert command_line(entry)[4:6] == ["--mount=src=/a,dst=/p", "--mount=src=/b,dst=/p"]


def test_an_image_gets_its_variables_by_name_only() -> None:
    source = package("oci", "a/b:1", "", environmentVariables=[{"name": "LEVEL", "value": "info"}, {"name": "NOT"}])
    entry = made(source)
    assert command_line(entry) == ["docker", "run", "-i", "--rm", "-e", "LEVEL", "a/b:1"]
    assert entry["env"] == {"LEVEL": "info"}


def test_a_secret_among_the_flags_of_an_image_moves_to_its_environment() -> None:
    document = read_answer({"server": github()})
    (question,) = questions_about(document.packages[0])
    assert (question.key, question.is_secret, question.variable) == ("token", True, "GITHUB_PERSONAL_ACCESS_TOKEN")
    entry = build(document, document.packages[0], {"token": ("${PAT}",)}).entry
    assert command_line(entry)[4:6] == ["-e", "GITHUB_PERSONAL_ACCESS_TOKEN"]
    assert entry["env"] == {"GITHUB_PERSONAL_ACCESS_TOKEN": "${PAT}"}


def test_a_remote_has_its_variables_and_its_headers() -> None:
    source = remote(
        "https://{tenant}.example.com/mcp?key={key}",
        variables={"tenant": {"choices": ["eu", "us"], "default": "eu"}, "key": {"isSecret": True}},
        headers=[
            {"name": "Authorization", "value": "Bearer {token}", "variables": {"token": {"isSecret": True}}},
            {"name": "X-Left-Out"},
        ],
    )
    entry = made(source, key="a/b&c", token="${TOKEN}")
    assert entry["url"] == "https://eu.example.com/mcp?key=a%2Fb%26c"
    assert entry["headers"] == {"Authorization": "Bearer ${TOKEN}"}
    assert entry["type"] == "http"
    assert made(remote("http://127.0.0.1:1/mcp", type="sse"))["type"] == "sse"


@pytest.mark.parametrize(
    "text", ["${CANARY}", "$${CANARY}", "${CANARY:-x}", "a${CANARY}b", "$", "${", "$$", "{CANARY}"]
)
def test_a_text_of_the_registry_is_never_a_variable_of_this_machine(text: str, tmp_path: Path) -> None:
    everywhere = {"value": text}
    program = package(
        packageArguments=[
            positional(**everywhere),
            named("--a", default=text),
            named("--b", value="${x}", variables={"x": {"default": "{CANARY}"}}),
        ],
        environmentVariables=[{"name": "A", **everywhere}, {"name": "B", "default": text}],
    )
    reached = remote(headers=[{"name": "A", **everywhere}])
    file = tmp_path / "dynamic-mcp.json"
    file.write_text(json.dumps({"mcpServers": {"a": made(program), "b": made(reached)}}))
    one, other = (group.upstream for group in read(file, {"CANARY": "leaked"}).groups)
    assert isinstance(one, Program)
    assert isinstance(other, Remote)
    assert one.args[2:] == (text, f"--a={text}", "--b=${CANARY}")
    assert (one.env["A"], one.env["B"], other.headers["A"]) == (text, text, text)


def test_a_variable_that_cannot_be_told_from_its_surroundings_is_refused() -> None:
    source = package(environmentVariables=[{"name": "A", "value": "${x}", "variables": {"x": {"isSecret": True}}}])
    with pytest.raises(UnusableOption):
        made(source, x="${TOKEN}")


@pytest.mark.parametrize(
    ("source", "why"),
    [
        (package("mcpb", "https://example.com/a.mcpb"), "bundles are added by themselves"),
        (package("cargo", "weather"), "does not know how to start"),
        (package(identifier="-rf"), "begins with `-`"),
        (package("oci", "--privileged", ""), "begins with `-`"),
        (package(identifier="../../x"), "not the name of a package"),
        (package(identifier="github:someone/evil"), "not the name of a package"),
        (package(identifier="https://example.com/x.tgz"), "not the name of a package"),
        (package("pypi", "git+https://example.com/x"), "not the name of a package"),
        (package("pypi", "weather @ https://example.com"), "not the name of a package"),
        (package("oci", "a/b c", ""), "not the name of a package"),
        (package(version="latest"), "not an exact one"),
        (package(version="^1.2.3"), "not an exact one"),
        (package(version="1.x"), "not an exact one"),
        (package(version="npm:evil@1.0.0"), "not an exact one"),
        (package(version="file:../x"), "not an exact one"),
        (package(transport={"type": "sse", "url": "http://127.0.0.1:1/sse"}), "serves over HTTP"),
        (package(registryBaseUrl="http://evil.example"), "not https"),
        (package(registryBaseUrl="--x"), "not https"),
        (package(runtimeHint="sh", runtimeArguments=[positional(value="-c")]), "to be started by `sh`"),
        (package(identifier="a\nb"), "control characters"),
        (package(environmentVariables=[{"name": "A=B", "value": "x"}]), "not the name of an environment variable"),
        (remote("http://example.com/mcp"), "not https"),
        (remote("https://example.com/{who}"), "how to fill in"),
        (remote("ftp://example.com/"), "cannot be used"),
        (remote("https:///mcp"), "cannot be used"),
        (remote(headers=[{"name": "a b", "value": "x"}]), "not the name of a header"),
        (remote(type="carrier-pigeon"), "unknown"),
    ],
)
def test_what_would_not_be_what_it_seems_is_refused_with_a_reason(source: Json, why: str) -> None:
    assert why in reason(source)


@pytest.mark.parametrize(
    ("source", "warning"),
    [
        (package(version=""), "the newest one is started each time"),
        (package("oci", "a/b", ""), "names no version"),
        (package("oci", "a/b:latest", ""), "names no version"),
        (package(registryBaseUrl="https://npm.example.com"), "but from https://npm.example.com"),
        (package(environmentVariables=[{"name": "LD_PRELOAD", "value": "/x.so"}]), "changes which code runs"),
        (package("oci", "a/b:1", "", runtimeArguments=[positional(value="--privileged")]), "open this machine"),
        (package("oci", "a/b:1", "", runtimeArguments=[named("-v", value="/:/host")]), "directories of this machine"),
        (package(runtimeHint="node"), "which is not used here"),
        (remote(headers=[{"name": "A", "value": "Bearer {key}"}]), "is not filled in"),
    ],
)
def test_what_a_person_should_know_is_said(source: Json, warning: str) -> None:
    assert any(warning in each for each in draft(source)[1])


def test_one_wrong_package_does_not_spoil_the_others() -> None:
    wrong = [7, {"registryType": "npm"}, package(packageArguments="x"), package(environmentVariables=[{}])]
    document = read_answer({"server": server(packages=[*wrong, package()], remotes={"not": "a list"})})
    assert [each.identifier for each in document.packages] == ["@example/weather"]
    assert len(document.flaws) == len(wrong) + 1


def test_names_of_the_first_version_of_the_format_count_too() -> None:
    older = {
        "registry_type": "pypi",
        "identifier": "weather",
        "version": "1.0.0",
        "transport": {"type": "stdio"},
        "package_arguments": [
            {"type": "positional", "value_hint": "path", "is_required": True, "format": "filepath"}
        ],
        "environment_variables": [{"name": "KEY", "is_required": True, "is_secret": True}],
    }
    document = read_answer({**server(packages=[older]), "status": "deprecated"})
    assert document.status == "deprecated"
    assert [each.key for each in questions_about(document.packages[0]) if is_unanswered(each, {})] == ["path", "KEY"]


def test_questions_with_one_name_are_told_apart() -> None:
    token = {"token": {"isRequired": True}}
    source = package(
        packageArguments=[
            named("--a", value="{token}", variables=token),
            named("--b", value="{token}", variables=token),
        ],
        environmentVariables=[{"name": "token"}, {"name": "token"}],
    )
    option = read_answer({"server": server(packages=[source])}).packages[0]
    assert [each.key for each in questions_about(option)] == ["token", "b.token", "token#2", "token#3"]


@pytest.mark.parametrize("text", ["-x", "--flag", "-"])
def test_no_answer_becomes_a_flag(text: str) -> None:
    source = package(
        packageArguments=[
            positional(valueHint="path"),
            positional(value="{x}", variables={"x": {}}),
            named("-p"),
            named("--long"),
        ]
    )
    questions = questions_about(read_answer({"server": server(packages=[source])}).packages[0])
    assert [bool(each.flaw_of(text)) for each in questions] == [True, True, True, False]
    assert made(source, long=text)["args"][2:] == [f"--long={text}"]
