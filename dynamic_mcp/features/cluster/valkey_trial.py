"""Tries each command that a store sends, to tell which of them the user of the config may not use."""

from __future__ import annotations

import secrets
import time
from typing import Any

from msgspec import Struct
from valkey.asyncio.connection import AbstractConnection
from valkey.exceptions import NoPermissionError, ResponseError

from dynamic_mcp.features.cluster.store_address import StoreAddress
from dynamic_mcp.features.cluster.valkey_link import Connector
from dynamic_mcp.features.cluster.valkey_store import PREFIX

_SECTIONS = ("server", "memory", "persistence", "cluster")


class ServerTrial(Struct, frozen=True):
    """The commands that are refused, how far the server's clock is ahead, and what `INFO` says, if it may be used."""

    refused: tuple[str, ...]
    clock_differs_s: float
    info: dict[str, str]


async def try_commands(address: StoreAddress) -> ServerTrial:
    """Connect, and try them. Raises what the client raises."""
    connector = Connector(address)
    try:
        connection = await connector.connect()
        try:
            return await _try(connection)
        finally:
            await connection.disconnect()
    finally:
        await connector.close()


async def _try(connection: AbstractConnection) -> ServerTrial:
    key = b"%scheck:%s" % (PREFIX, secrets.token_hex(8).encode())
    sorted_key = key + b":sorted"
    channel = PREFIX + b"messages:check"
    trials: tuple[tuple[bytes | str | int, ...], ...] = (
        ("PING",),
        ("SET", key, "1", "PX", 10_000),
        ("GET", key),
        ("MGET", key),
        ("GETRANGE", key, 0, 1),
        ("ZADD", sorted_key, 1, "1"),
        ("ZCARD", sorted_key),
        ("ZSCORE", sorted_key, "1"),
        ("ZRANGE", sorted_key, 0, -1),
        ("ZRANGEBYSCORE", sorted_key, 0, 1),
        ("PEXPIREAT", sorted_key, int(time.time() * 1000) + 10_000),
        ("ZREMRANGEBYSCORE", sorted_key, 0, 0),
        ("ZREM", sorted_key, "1"),
        ("DEL", key, sorted_key),
        ("SCAN", 0, "MATCH", key, "COUNT", 1),
        ("PUBLISH", channel, "1"),
        ("EVAL", "return 1", 0),
        ("EVALSHA", "e0e1f9fabfc9d4800c877a703b823ac0578ff8db", 0),
    )
    refused = [str(command[0]).lower() for command in trials if not await _may(connection, *command)]
    clock_differs_s = 0.0
    try:
        seconds, microseconds = await _ask(connection, "TIME")
        clock_differs_s = int(seconds) + int(microseconds) / 1e6 - time.time()
    except NoPermissionError:
        refused.append("time")
    info: dict[str, str] = {}
    try:
        for section in _SECTIONS:
            info |= _parse_info(await _ask(connection, "INFO", section))
    except NoPermissionError:
        info = {}
    if not await _may(connection, "SUBSCRIBE", channel):  # the last one: it changes what the connection is for
        refused.append("subscribe")
    return ServerTrial(tuple(refused), clock_differs_s, info)


async def _may(connection: AbstractConnection, *command: bytes | str | int) -> bool:
    try:
        await _ask(connection, *command)
    except NoPermissionError:
        return False
    except ResponseError:
        return True  # it is full, or lacks the script: what is wrong is found elsewhere
    return True


async def _ask(connection: AbstractConnection, *command: bytes | str | int) -> Any:  # Any: what RESP has
    await connection.send_command(*command, check_health=False)
    return await connection.read_response(disable_decoding=True)


def _parse_info(text: bytes) -> dict[str, str]:
    lines = (line.partition(":") for line in text.decode("utf-8", "replace").splitlines())
    return {name: value for name, colon, value in lines if colon}
