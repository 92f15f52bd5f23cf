"""`import`, `install --replace` and `undo`, with the client asked in between what it has.

A client may write its own file whenever it runs. So the files are read before and after each of its runs: what has
changed by then is its own doing: `undo` refuses such a file, and `uninstall` takes our entry out of it. Every other
one must have its bytes back.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.clients.machine import Machine, Ran
from tests.clients.table import OURS, Client
from tests.clients.turns import SERVER, program, run

pytestmark = pytest.mark.usefixtures("whole")


@pytest.mark.column("import")
async def test_what_was_imported_is_left_to_the_client(client: Client, tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.write(client.write("http://127.0.0.1:9", program(machine)))
    before = machine.read()

    await machine.dynamic_mcp("import", *_from(client, machine), "--yes")

    assert {name: machine.read()[name] for name in before} == before
    assert SERVER in machine.config.read_text()
    if client.lists:
        listed = await run(client, machine, *client.lists)
        assert _is_healthy(client, SERVER, listed), listed
        assert OURS not in str(listed), listed


@pytest.mark.column("install")
async def test_a_client_lists_the_program_once_it_is_installed_and_its_own_servers_after_undo(
    client: Client, tmp_path: Path
) -> None:
    if not client.installs:
        pytest.skip("`dynamic-mcp install` does not know it")
    machine = Machine(tmp_path)
    machine.write(client.write("http://127.0.0.1:9", program(machine)))
    if client.lists:
        await run(client, machine, *client.lists)  # what a client makes of its file at first is not our matter
    await machine.dynamic_mcp("import", client.name, "--scope", "user", "--yes")
    before = _theirs(machine)

    await machine.dynamic_mcp("install", client.name, "--replace")
    installed = _theirs(machine)
    if client.lists:
        listed = await run(client, machine, *client.lists)
        assert _is_healthy(client, OURS, listed), listed
    listed_by_then = _theirs(machine)
    rewritten = {name for name, data in installed.items() if listed_by_then.get(name) != data}
    await machine.undo(client.name)

    after = _theirs(machine)
    untouched = before.keys() - rewritten
    assert {name: after.get(name) for name in untouched} == {name: before[name] for name in untouched}
    assert after.keys() & installed.keys() - before.keys() <= rewritten
    assert OURS.encode() not in after[client.file]
    if client.file in rewritten:
        return  # its servers stay as `install` has left them, and the journal has the backup
    assert SERVER.encode() in after[client.file]
    if client.lists:
        listed = await run(client, machine, *client.lists)
        assert _is_healthy(client, SERVER, listed), listed
        assert OURS not in str(listed), listed


def _is_healthy(client: Client, server: str, listed: Ran) -> bool:
    return re.search(client.healthy.format(server=re.escape(server)), f"{listed.out}\n{listed.err}") is not None


def _from(client: Client, machine: Machine) -> tuple[str, ...]:
    return (client.name, "--scope", "user") if client.installs else ("--file", str(machine.home / client.file))


def _theirs(machine: Machine) -> dict[str, bytes]:
    """Return the files below the home that are not dynamic-mcp's own."""
    return {name: data for name, data in machine.read().items() if "/dynamic-mcp/" not in f"/{name}"}
