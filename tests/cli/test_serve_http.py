"""The options of `serve` about HTTP: what they override, and what is wrong with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from dynamic_mcp.cli.http_options import HttpWords, parse_http_options
from dynamic_mcp.config.addresses import TcpAddress, UnixAddress
from dynamic_mcp.config.http import Http, Tls
from dynamic_mcp.host.http_control import HttpOverrides
from tests.cli.commands import CliRunner

CONFIGURED = Http(
    listen=TcpAddress("127.0.0.1", 9000),
    path="/tools",
    root_path="/team",
    allowed_hosts=("a.example.com",),
    tls=Tls("/c.pem", "/k.pem"),
)


def overrides(words: HttpWords) -> HttpOverrides:
    parsed = parse_http_options(words)
    assert parsed is not None
    return parsed


def test_without_http_the_config_decides() -> None:
    assert parse_http_options(HttpWords()) is None


def test_http_alone_serves_as_configured_or_at_the_default_address() -> None:
    alone = overrides(HttpWords(""))

    assert alone.override(CONFIGURED) == CONFIGURED
    assert alone.override(None) == Http(listen=TcpAddress("127.0.0.1", 8808))


def test_what_the_command_line_says_comes_first_and_names_are_added() -> None:
    words = HttpWords(
        address="[::1]:80",
        tls_cert="/other.pem",
        tls_key="/other.key",
        root_path="",
        allowed_hosts=("b.example.com",),
        allowed_origins=("https://app.example.com",),
        insecure=True,
    )

    assert overrides(words).override(CONFIGURED) == Http(
        listen=TcpAddress("::1", 80),
        path="/tools",
        root_path="",
        allowed_hosts=("a.example.com", "b.example.com"),
        allowed_origins=("https://app.example.com",),
        tls=Tls(str(Path("/other.pem").absolute()), str(Path("/other.key").absolute())),
        insecure=True,
    )


def test_paths_on_the_command_line_start_in_the_working_directory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)

    found = overrides(HttpWords("unix:mcp.sock", tls_cert="c.pem", tls_key="k.pem"))

    assert found.listen == UnixAddress(str(tmp_path / "mcp.sock"))
    assert found.tls == Tls(str(tmp_path / "c.pem"), str(tmp_path / "k.pem"))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--http", "CONFIG"], "hint: the config comes first: `dynamic-mcp serve CONFIG --http`"),
        (["CONFIG", "--http", "localhost"], "error: --http is not an address: `localhost`"),
        (["CONFIG", "--http", "99999"], "error: --http has a port that is not between 0 and 65535"),
        (["CONFIG", "--insecure"], "error: `--insecure` is about HTTP, which is not served"),
        (["CONFIG", "--allowed-host", "h"], "error: `--allowed-host` is about HTTP, which is not served"),
        (["CONFIG", "--http", "80", "--tls-cert", "c"], "error: `--tls-key` is missing"),
        (["CONFIG", "--http", "80", "--tls-key", "k"], "error: `--tls-cert` is missing"),
        (["CONFIG", "--http", "80", "--allowed-origin", "*"], "error: --allowed-origin `*` would let any web page"),
        (["CONFIG", "--http", "80", "--allowed-host", "*"], "error: --allowed-host `*` would let any web page"),
        (["CONFIG", "--http", "80", "--root-path", "x"], "error: --root-path must be a path such as `/tools`"),
    ],
)
def test_wrong_options_say_what_is_right(cli: CliRunner, options: list[str], words: str) -> None:
    config = str(cli.config)

    done = cli.run("serve", *(config if each == "CONFIG" else each for each in options))

    assert done.code == 2
    assert words.replace("CONFIG", config) in done.err
