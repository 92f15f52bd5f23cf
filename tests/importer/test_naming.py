"""Names that are legal, and the entry that is our own."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynamic_mcp.config.types import check_group_name
from dynamic_mcp.importer.convert import naming


@pytest.mark.parametrize(
    "line",
    [
        "dynamic-mcp c.json",
        "dmcp c.json",
        "/opt/x/bin/dmcp",
        "C:\\Users\\me\\bin\\dynamic-mcp.exe c.json",
        "uvx dynamic-mcp-proxy",
        "uvx --from dynamic-mcp-proxy dynamic-mcp c.json",
        "uvx --python 3.12 dynamic-mcp-proxy@1.2 c.json",
        "uvx --from=dynamic-mcp-proxy[all]==1.0 anything",
        "pipx run dynamic-mcp-proxy",
        "uv --directory /x run dynamic-mcp",
        "python3 -m dynamic_mcp c.json",
        "npx -y dynamic-mcp",
        "cmd /c dynamic-mcp c.json",
        "cmd /c npx -y dmcp",
        "env A=1 dynamic-mcp",
    ],
)
def test_what_starts_dynamic_mcp_is_our_own(line: str) -> None:
    command, *args = line.split()
    assert naming.is_ours("any", command, args, None)


@pytest.mark.parametrize(
    "line",
    [
        "npx -y server-filesystem /home/me/dynamic-mcp",
        "npx @somebody/dynamic-mcp",
        "node dynamic-mcp.json",
        "uvx mcp-server-git --repository dmcp",
        "docker run dmcp",
        "python server.py dynamic-mcp",
    ],
)
def test_what_only_mentions_dynamic_mcp_is_not(line: str) -> None:
    command, *args = line.split()
    assert not naming.is_ours("any", command, args, None)


def test_a_line_for_a_shell_is_looked_into() -> None:
    assert naming.is_ours("any", "sh", ["-c", "dynamic-mcp c.json"], None)
    assert not naming.is_ours("any", "sh", ["-c", "echo dynamic-mcp"], None)


@given(st.text(), st.sets(st.text(max_size=70), max_size=5))
def test_every_name_becomes_a_legal_and_free_one(name: str, taken: set[str]) -> None:
    made, _ = naming.legalize(name, taken)
    assert check_group_name(made) == made
    assert made not in taken
