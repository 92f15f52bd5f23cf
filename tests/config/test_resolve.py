"""A server's own values, shared values, and defaults."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dynamic_mcp.config.resolved import (
    CallHandling,
    Config,
    DaemonConfig,
    Features,
    GroupConfig,
    Pinning,
    Presentation,
    Program,
    Timeouts,
    ToolFilter,
)
from dynamic_mcp.config.rules import CallRule
from dynamic_mcp.config.types import DirectTools

Json = Any  # whatever JSON a test writes down
ReadConfig = Callable[..., Config]


def one(config: Config) -> GroupConfig:
    (group,) = config.groups
    return group


def program(config: Config) -> Program:
    upstream = one(config).upstream
    assert isinstance(upstream, Program)
    return upstream


def test_a_program_needs_no_more_than_its_command(read_config: ReadConfig, tmp_path: Path) -> None:
    config = read_config({"mcpServers": {"git": {"command": "uvx"}}}, PATH="/bin", SECRET="s")

    assert config == Config(
        file=tmp_path / "dynamic-mcp.json",
        groups=(
            GroupConfig(
                name="git",
                timeouts=Timeouts(connect_s=30, tools_s=60, resources_s=10, prompts_s=10),
                eager=False,
                idle_after_s=1800,
                attempts=3,
                concurrency=64,
                max_message_bytes=67_108_864,
                upstream=Program("uvx", (), {"PATH": "/bin"}, None, withheld=frozenset({"SECRET"})),
            ),
        ),
        presentations={
            "git": Presentation(
                description=None,
                features=Features(tools=True, resources=True, prompts=True),
                tools=ToolFilter(include=("*",), exclude=()),
                direct=DirectTools(),
                answers=CallHandling(validate=None, limit=100_000, compact=False),
                pinning=Pinning("warn", config.presentations["git"].pinning.source),
            )
        },
        warnings=(),
        max_message_bytes=67_108_864,
    )


def test_arguments_of_command_line_programs_must_fit_unless_the_config_says_otherwise(
    read_config: ReadConfig,
) -> None:
    servers: Json = {"curl": {"cli": {"use": "curl", "commands": ["*"]}}, "git": {"command": "uvx"}}

    def chosen(defaults: Json, **own: Json) -> list[str | None]:
        named = {name: {**server, **own} for name, server in servers.items()}
        config = read_config({"settings": {"defaults": defaults}, "mcpServers": named}, PATH=os.environ["PATH"])
        return [config.presentations[name].answers.validate for name in servers]

    assert chosen({}) == ["strict", None]
    assert chosen({"validate": "off"}) == ["off", "off"]
    assert chosen({"validate": "off"}, validate="assist") == ["assist", "assist"]


def test_groups_come_in_the_order_of_the_file(read_config: ReadConfig) -> None:
    names = ["zeta", "alpha", "Mu", "x-own", "ünï", "with space", "日本", "n" * 64]

    config = read_config({"mcpServers": {name: {"command": "x"} for name in names}})

    assert [group.name for group in config.groups] == names


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("500ms", 0.5),
        ("30s", 30),
        ("1.5s", 1.5),
        ("2m", 120),
        ("2min", 120),
        ("1h", 3600),
        (" 2 Min ", 120),
        ("1H", 3600),
        ("45", 45),
        ("0.5", 0.5),
        (7, 7),
        (0.25, 0.25),
        (0, 0),
        ("0", 0),
        ("0ms", 0),
        ("87600h", 315_360_000),
        ("", 60),
        ("  ", 60),
        (None, 60),
    ],
)
def test_a_duration_has_many_forms(read_config: ReadConfig, text: object, seconds: float) -> None:
    config = read_config({"mcpServers": {"a": {"command": "x", "timeout": {"tools": text}}}})

    assert one(config).timeouts.tools_s == seconds


@pytest.mark.parametrize(("text", "seconds"), [("never", None), (" Never ", None), ("1m", 60), (0, 0), ("", 1800)])
def test_idle_time_may_be_never(read_config: ReadConfig, text: object, seconds: float | None) -> None:
    config = read_config({"mcpServers": {"a": {"command": "x", "idle_timeout": text}}})

    assert one(config).idle_after_s == seconds


@pytest.mark.parametrize(
    ("value", "daemon"),
    [
        (None, None),
        (False, None),
        (True, DaemonConfig(linger_s=300)),
        ({}, DaemonConfig(linger_s=300)),
        ({"linger": None}, DaemonConfig(linger_s=300)),
        ({"linger": " "}, DaemonConfig(linger_s=300)),
        ({"linger": "2min"}, DaemonConfig(linger_s=120)),
        ({"linger": 1.5}, DaemonConfig(linger_s=1.5)),
        ({"linger": "0s", "x-why": "to end at once"}, DaemonConfig(linger_s=0)),
        ({"linger": "Never"}, DaemonConfig(linger_s=None)),
    ],
)
def test_a_daemon_is_configured_by_a_switch_or_by_its_fields(
    read_config: ReadConfig, value: object, daemon: DaemonConfig | None
) -> None:
    assert read_config({"mcpServers": {}, "settings": {"daemon": value}}).daemon == daemon


def test_there_is_no_daemon_unless_the_config_asks_for_one(read_config: ReadConfig) -> None:
    assert read_config({"mcpServers": {}}).daemon is None


def test_defaults_stand_in_for_what_a_server_leaves_out(read_config: ReadConfig) -> None:
    config = read_config(
        {
            "mcpServers": {"a": {"command": "x"}},
            "settings": {
                "max_message_bytes": 65536,
                "defaults": {
                    "features": {"prompts": False},
                    "timeout": {"connect": 1, "tools": 2},
                    "tools": {"include": ["read_*"], "exclude": ["*_all"]},
                    "connect": "eager",
                    "idle_timeout": "never",
                    "concurrency": 1,
                    "retry": {"attempts": 20},
                    "direct": ["read_*"],
                    "cwd": "/srv",
                    "inherit_env": ["KEEP"],
                    "env": {"A": "1"},
                },
            },
        },
        KEEP="k",
        DROP="d",
    )

    group = one(config)
    shown = config.presentations[group.name]
    assert shown.features == Features(tools=True, resources=True, prompts=False)
    assert group.timeouts == Timeouts(connect_s=1, tools_s=2, resources_s=10, prompts_s=10)
    assert shown.tools == ToolFilter(include=("read_*",), exclude=("*_all",))
    assert shown.direct == DirectTools(globs=("read_*",))
    assert (group.eager, group.idle_after_s, group.attempts, group.concurrency) == (True, None, 20, 1)
    assert config.max_message_bytes == group.max_message_bytes == 65536
    assert program(config).cwd == str(config.file.parent / "/srv")
    assert program(config).env == {"KEEP": "k", "A": "1"}


def test_a_servers_own_values_win_one_by_one(read_config: ReadConfig) -> None:
    config = read_config(
        {
            "mcpServers": {
                "a": {
                    "command": "x",
                    "features": {"tools": True},
                    "timeout": {"tools": 5},
                    "tools": {"exclude": []},
                    "connect": "lazy",
                    "idle_timeout": 9,
                    "concurrency": 2,
                    "retry": {"attempts": 1},
                    "direct": False,
                    "cwd": "/own",
                    "inherit_env": "all",
                    "env": {"A": "own"},
                }
            },
            "settings": {
                "defaults": {
                    "features": {"tools": False, "prompts": False},
                    "timeout": {"tools": 1, "prompts": 2},
                    "tools": {"include": ["a*"], "exclude": ["ab"]},
                    "connect": "eager",
                    "idle_timeout": "never",
                    "concurrency": 9,
                    "retry": {"attempts": 20},
                    "direct": True,
                    "cwd": "/srv",
                    "inherit_env": ["KEEP"],
                    "env": {"A": "shared", "B": "shared"},
                }
            },
        },
        DROP="kept",
    )

    group = one(config)
    shown = config.presentations[group.name]
    assert shown.features == Features(tools=True, resources=True, prompts=False)
    assert group.timeouts == Timeouts(connect_s=30, tools_s=5, resources_s=10, prompts_s=2)
    assert shown.tools == ToolFilter(include=("a*",), exclude=())
    assert shown.direct == DirectTools()
    assert (group.eager, group.idle_after_s, group.attempts, group.concurrency) == (False, 9, 1, 2)
    assert program(config).cwd == str(config.file.parent / "/own")
    assert program(config).env == {"DROP": "kept", "A": "own", "B": "shared"}


def test_defaults_may_switch_all_off_but_some(read_config: ReadConfig) -> None:
    config = read_config(
        {
            "mcpServers": {"a": {"command": "x"}, "b": {"command": "x", "enabled": True}},
            "settings": {"defaults": {"enabled": False}},
        }
    )

    assert [group.name for group in config.groups] == ["b"]


def test_a_rule_knows_its_place_and_the_servers_own_rules_replace_the_shared_ones(read_config: ReadConfig) -> None:
    own = [{"rate": "1/s"}, {"tools": ["get_*"], "rate": "2/s"}]
    config = read_config(
        {
            "mcpServers": {"a": {"command": "x"}, "b.c": {"command": "x", "limits": own}},
            "settings": {"defaults": {"limits": [{"rate": "5/s"}], "guards": [{"deny": "x", "effect": "ask"}]}},
        }
    )

    shared, mixed = config.presentations["a"], config.presentations["b.c"]

    assert [each.id for each in shared.rules_of("limits", CallRule)] == ["settings.defaults.limits[0]"]
    assert [each.id for each in mixed.rules_of("limits", CallRule)] == [
        f'mcpServers["b.c"].limits[{n}]' for n in (0, 1)
    ]
    assert [each.id for each in mixed.rules_of("guards", CallRule)] == ["settings.defaults.guards[0]"]
    assert mixed.asks
