"""Sockets that systemd passes serve the address at which they listen, and no other."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from dynamic_mcp.config.addresses import TcpAddress, UnixAddress
from dynamic_mcp.errors import ListenError
from dynamic_mcp.host.systemd import PassedSockets, open_notifier, read_sockets

pytestmark = pytest.mark.skipif(os.name != "posix", reason="there is no systemd on Windows")


def test_a_socket_serves_its_address_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        at = TcpAddress("127.0.0.1", listening.getsockname()[1])
        passed = PassedSockets([listening])
        passed.check(at, ("127.0.0.1",))
        assert passed.take(TcpAddress("127.0.0.1", at.port + 1)) == []
        assert passed.take(TcpAddress("127.0.0.2", at.port)) == []
        assert passed.take(at) == [listening]
        assert passed.take(at) == []


def test_one_socket_for_both_families_serves_all_addresses_and_no_single_one() -> None:
    with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as listening:
        port = listening.getsockname()[1]
        passed = PassedSockets([listening])
        with pytest.raises(ListenError, match=r"listens at `\[::\]:[0-9]+`, and HTTP is served at `127.0.0.1"):
            passed.check(TcpAddress("127.0.0.1", port), ("127.0.0.1",))
        passed.check(TcpAddress("0.0.0.0", port), ("0.0.0.0",))  # noqa: S104 - an address to compare
        assert passed.take(TcpAddress("0.0.0.0", port)) == [listening]  # noqa: S104 - an address to compare


def test_a_unix_socket_serves_its_path(tmp_path: Path) -> None:
    path = str(tmp_path / "sock")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        passed = PassedSockets([listening])
        passed.check(UnixAddress(path), ())
        assert passed.take(UnixAddress(f"{path}2")) == []
        assert passed.take(UnixAddress(path)) == [listening]


@pytest.mark.parametrize("pid", ["1", "", "x"])
def test_sockets_for_another_process_are_left_alone(pid: str) -> None:
    environment = {"LISTEN_PID": pid, "LISTEN_FDS": "1", "HOME": "/"}
    assert read_sockets(environment) is None
    assert environment == {"HOME": "/"}


def test_nobody_is_told_where_nobody_wants_to_hear() -> None:
    environment = {"WATCHDOG_USEC": "1000000"}
    assert open_notifier(environment) is None
    assert environment == {}
