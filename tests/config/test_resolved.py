from collections.abc import Callable

import pytest

from dynamic_mcp.config.resolved import Config, ToolFilter

ReadConfig = Callable[..., Config]


@pytest.mark.parametrize(
    ("include", "exclude", "allowed"),
    [
        (("*",), (), ["read_file", "read_all", "Write"]),
        (("read_*",), (), ["read_file", "read_all"]),
        (("read_*", "W*"), ("*_all",), ["read_file", "Write"]),
        (("*",), ("*",), []),
        ((), (), []),
        (("write",), (), []),
        (("[!r]*",), (), ["Write"]),
    ],
)
def test_a_tool_passes_if_it_is_included_and_not_excluded(
    include: tuple[str, ...], exclude: tuple[str, ...], allowed: list[str]
) -> None:
    tools = ToolFilter(include=include, exclude=exclude)

    assert [name for name in ("read_file", "read_all", "Write") if tools.allows(name)] == allowed


@pytest.mark.parametrize(
    ("server", "label"),
    [
        ({"command": "npx"}, "npx"),
        ({"command": "/usr/local/bin/server"}, "server"),
        ({"command": "C:\\Tools\\server.exe"}, "server.exe"),
        ({"url": "https://me:secret@Example.com:8443/mcp?key=secret"}, "example.com"),
        ({"url": "http://[::1]:3000/mcp"}, "::1"),
        ({"url": "http+unix://%2Frun%2Fmcp.sock/mcp"}, "/run/mcp.sock"),
        ({"command": ""}, "files"),
    ],
)
def test_a_group_is_labelled_by_what_stands_behind_it(read_config: ReadConfig, server: object, label: str) -> None:
    (group,) = read_config({"mcpServers": {"files": server}}).groups

    assert group.label == label


def test_a_repr_shows_no_secret(read_config: ReadConfig) -> None:
    config = read_config(
        {
            "mcpServers": {
                "a": {"command": "x", "args": ["--key=${KEY}"], "env": {"K": "${KEY}", "L": "SECRET"}},
                "b": {
                    "url": "https://h/mcp?key=${KEY}",
                    "headers": {"A": "${KEY}"},
                    "oauth": {"client_secret": "${KEY}", "metadata_url": "https://h/${KEY}"},
                },
            }
        },
        KEY="SECRET",
    )

    assert "SECRET" not in repr(config)
    assert "command='x'" in repr(config)
