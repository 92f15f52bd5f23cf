"""Which package a command line runs, and where its version is written."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynamic_mcp.features.provenance.packages import ForeignCode, PackageUse, find_package
from tests.examples import examples

DIGEST = f"sha256:{'ab' * 32}"


@pytest.mark.parametrize(
    ("line", "kind", "name", "version"),
    [
        ("npx -y @acme/weather@1.2.3 --flag", "npm", "@acme/weather", "1.2.3"),
        ("npx weather", "npm", "weather", ""),
        ("/usr/bin/npx --registry https://r.example weather@^1", "npm", "weather", ""),
        ("npx --package=weather@1.0.0 weather-cli", "npm", "weather", "1.0.0"),
        ("npx -p weather weather-cli", "npm", "weather", ""),
        ("cmd /c npx -y weather@latest", "npm", "weather", ""),
        ("pnpm dlx weather@1.0.0-rc.1", "npm", "weather", "1.0.0-rc.1"),
        ("npm exec -- weather", "npm", "weather", ""),
        ("uvx mcp-weather==1.2 --flag", "pypi", "mcp-weather", "1.2"),
        ("uvx mcp-weather@1.2.0", "pypi", "mcp-weather", "1.2.0"),
        ("uvx --python 3.12 --with httpx mcp-weather", "pypi", "mcp-weather", ""),
        ("uvx --from 'mcp-weather[all]>=1,<2' weather", "pypi", "mcp-weather", ""),
        ("uv tool run mcp-weather==1.*", "pypi", "mcp-weather", ""),
        ("pipx run --spec mcp-weather==1.0 weather", "pypi", "mcp-weather", "1.0"),
        ("docker run -i --rm -e TOKEN -v /a:/b acme/weather:1.0 x", "oci", "acme/weather", ""),
        ("docker run -it --name=x ghcr.io/acme/weather", "oci", "ghcr.io/acme/weather", ""),
        (f"podman run --env A=b localhost:5000/weather@{DIGEST}", "oci", "localhost:5000/weather", DIGEST),
    ],
)
def test_the_package_of_a_command_line_is_found(line: str, kind: str, name: str, version: str) -> None:
    use = find_package(shlex.split(line))
    assert isinstance(use, PackageUse)
    assert (use.kind, use.name, use.version or use.digest) == (kind, name, version)
    assert use.is_fixed == bool(version)
    assert shlex.split(line)[use.index].endswith(use.text)


@pytest.mark.parametrize(
    "line",
    [
        "npx github:acme/weather",
        "npx -y https://example.com/weather.tgz",
        "npx ./weather",
        "npx weather@npm:other@1.0.0",
        "docker run registry.example/../v2/x",
        "docker run registry.example/x?y",
        "uvx --from git+https://github.com/acme/weather weather",
        "uvx ./dist/weather-1.0-py3-none-any.whl",
    ],
)
def test_code_from_elsewhere_is_no_package(line: str) -> None:
    assert isinstance(find_package(shlex.split(line)), ForeignCode)


@pytest.mark.parametrize("line", ["python -m weather", "node server.js", "npx", "docker ps", "npx -y ${PACKAGE}"])
def test_other_commands_run_no_package(line: str) -> None:
    assert find_package(shlex.split(line)) is None


@pytest.mark.parametrize(
    ("line", "version", "text"),
    [
        ("npx -y @acme/weather@latest", "1.2.3", "@acme/weather@1.2.3"),
        ("uvx --from mcp-weather[all] weather", "1.2", "mcp-weather[all]==1.2"),
        ("docker run acme/weather:1.0", DIGEST, f"acme/weather:1.0@{DIGEST}"),
    ],
)
def test_a_version_is_written_as_the_launcher_reads_it(line: str, version: str, text: str) -> None:
    use = find_package(line.split())
    assert isinstance(use, PackageUse)
    assert use.with_version(version) == text
    again = find_package([*line.split()[: use.index], text, *line.split()[use.index + 1 :]])
    assert isinstance(again, PackageUse)
    assert again.is_fixed


@examples(300)
@given(
    st.lists(st.one_of(st.sampled_from(["npx", "uvx", "docker", "run", "-p", "--from", "--"]), st.text()), max_size=6)
)
def test_any_words_have_an_answer(words: list[str]) -> None:
    use = find_package(words)
    if isinstance(use, PackageUse):
        assert words[use.index].endswith(use.text)
