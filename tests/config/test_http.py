"""The HTTP server of a config: its address, its bounds, and the files that it names."""

from collections.abc import Callable
from pathlib import Path

import pytest

from dynamic_mcp.config.addresses import Address, TcpAddress, UnixAddress, parse_address
from dynamic_mcp.config.http import Http, Tls
from dynamic_mcp.config.read import parse
from dynamic_mcp.config.resolved import Config
from dynamic_mcp.config.workspace import Workspace

ReadConfig = Callable[..., Config]


def http(read_config: ReadConfig, section: object, **environment: str) -> Http | None:
    return read_config({"mcpServers": {}, "settings": {"http": section}}, **environment).http


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (8808, TcpAddress("127.0.0.1", 8808)),
        ("9000", TcpAddress("127.0.0.1", 9000)),
        ("0", TcpAddress("127.0.0.1", 0)),
        ("0.0.0.0:80", TcpAddress("0.0.0.0", 80)),  # noqa: S104
        ("gateway.example.com:443", TcpAddress("gateway.example.com", 443)),
        ("gateway.example.com.:443", TcpAddress("gateway.example.com.", 443)),
        ("[::1]:8808", TcpAddress("::1", 8808)),
        ("unix:/run/mcp.sock", UnixAddress("/run/mcp.sock")),
    ],
)
def test_an_address_is_written_as_people_write_it(written: object, meant: Address) -> None:
    assert parse_address(written) == meant
    assert parse_address(str(meant)) == meant


def test_without_settings_nothing_is_served_over_http(read_config: ReadConfig) -> None:
    assert read_config({"mcpServers": {}}).http is None
    assert http(read_config, False) is None


@pytest.mark.parametrize("section", [True, {}])
def test_true_is_http_with_all_defaults(read_config: ReadConfig, section: object) -> None:
    assert http(read_config, section) == Http(
        listen=TcpAddress("127.0.0.1", 8808),
        path="/mcp",
        root_path="",
        allowed_hosts=(),
        allowed_origins=(),
        trusted_proxies=(),
        tls=None,
        max_sessions=1000,
        session_timeout_s=3600,
        max_in_flight=256,
        shutdown_timeout_s=10,
        insecure=False,
    )


def test_every_field_of_http_is_taken_as_written(read_config: ReadConfig) -> None:
    section = {
        "listen": "0.0.0.0:443",
        "socket_mode": "0660",
        "path": "/tools/mcp",
        "root_path": "/team",
        "allowed_hosts": ["mcp.example.com"],
        "allowed_origins": ["https://app.example.com"],
        "trusted_proxies": ["10.0.0.0/8", "unix"],
        "max_sessions": 5,
        "session_timeout": "10min",
        "max_in_flight": 7,
        "shutdown_timeout": "500ms",
        "insecure": True,
    }

    assert http(read_config, section) == Http(
        listen=TcpAddress("0.0.0.0", 443),  # noqa: S104
        socket_mode=0o660,
        path="/tools/mcp",
        root_path="/team",
        allowed_hosts=("mcp.example.com",),
        allowed_origins=("https://app.example.com",),
        trusted_proxies=("10.0.0.0/8", "unix"),
        max_sessions=5,
        session_timeout_s=600,
        max_in_flight=7,
        shutdown_timeout_s=0.5,
        insecure=True,
    )


def test_paths_are_relative_to_the_file_and_may_have_variables(read_config: ReadConfig, tmp_path: Path) -> None:
    section = {"listen": "unix:run/mcp.sock", "tls": {"cert": "${CREDENTIALS}/cert.pem", "key": "~/key.pem"}}

    found = http(read_config, section, CREDENTIALS="/run/c", HOME="/home/me")

    assert found is not None
    assert found.listen == UnixAddress(str(tmp_path / "run" / "mcp.sock"))
    assert found.tls == Tls(str(tmp_path / "/run/c/cert.pem"), str(tmp_path / "/home/me/key.pem"))


def test_a_variable_of_a_path_that_is_not_set_is_told_and_stays_in_the_path(
    read_config: ReadConfig, tmp_path: Path
) -> None:
    config = read_config(
        {"mcpServers": {}, "settings": {"http": {"tls": {"cert": "${GONE}/cert.pem", "key": "key.pem"}}}}
    )

    assert config.warnings == ("settings.http.tls.cert: `${GONE}` is not set and is left unchanged",)
    assert config.http is not None
    assert config.http.tls == Tls(str(tmp_path / "${GONE}" / "cert.pem"), str(tmp_path / "key.pem"))


def test_the_config_of_a_workspace_has_no_http(tmp_path: Path) -> None:
    file = tmp_path / "c.json"
    file.write_text('{"mcpServers": {}, "settings": {"http": {"tls": {"cert": "${A}", "key": "k"}}}}')

    config = parse(file).resolve_for(Workspace(str(tmp_path), {}))

    assert config.http is None
    assert config.warnings == ()
