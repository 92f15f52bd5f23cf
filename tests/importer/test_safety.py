"""No input makes the reader crash, start a program, write, delete or connect; what it finds always loads."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from dynamic_mcp.config.read import read
from dynamic_mcp.importer.adapter import Adapter
from dynamic_mcp.importer.convert.fields import COMMON, OAUTH
from dynamic_mcp.importer.model import Machine, Reading
from dynamic_mcp.importer.reader import read_all, read_file
from dynamic_mcp.importer.tools.catalog import TOOLS
from tests.examples import examples
from tests.importer.machines import cases, machine

FORBIDDEN = (
    "subprocess.",
    "os.exec",
    "os.system",
    "os.posix_spawn",
    "os.fork",
    "os.startfile",
    "os.remove",
    "os.rename",
    "os.mkdir",
    "os.rmdir",
    "os.link",
    "os.symlink",
    "os.chmod",
    "os.truncate",
    "os.putenv",
    "shutil.",
    "socket.",
    "ctypes.",
    "webbrowser.",
)
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
TEXTS = (
    "$(touch {marker})",
    "`touch {marker}`",
    "!touch {marker}",
    "${cmd: touch {marker}}",
    "npx -y 'demo server'",
    "'no end",
    "${input:a}",
    "${env:A:-${B}}",
    "{file:/etc/passwd}",
    "{env:A}",
    "${{ secrets.A }}",
    "https://h.example.test/sse",
    "https://[::1",
    "wss://w.example.test",
    "unix:///tmp/x",
    "//server/share/x y",
    "C:\\a b\\c.exe",
    "~/x",
    "./x",
    "5s",
    "1e999",
    "a\nb",
    "a\0b",
    "\u202egnp",
    "stdio",
    "sse",
    "*",
)

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=20),
    st.sampled_from(TEXTS),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.sampled_from(TEXTS) | st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=8,
)
OAUTH_SETTINGS = st.dictionaries(st.sampled_from(sorted(OAUTH)), VALUES, max_size=4)
FIELDS = sorted({name for adapter in TOOLS for name in (*COMMON, *adapter.ignored, *adapter.fields)})
UPSTREAM = st.one_of(
    st.just({"command": "npx"}),
    st.just({"url": "https://h.example.test/mcp"}),
    st.builds(
        lambda name, value: {name: value}, st.sampled_from(["command", "url"]), st.sampled_from(TEXTS) | VALUES
    ),
    st.just({}),
)
MORE = st.dictionaries(st.sampled_from(FIELDS) | st.text(max_size=5), VALUES | OAUTH_SETTINGS, max_size=6)
SERVER = st.builds(lambda upstream, more: {**more, **upstream}, UPSTREAM, MORE)
SERVERS = st.dictionaries(st.text(max_size=70), SERVER | VALUES, min_size=1, max_size=3) | st.lists(
    SERVER, max_size=3
)
KEYS = ("mcpServers", "servers", "mcp", "context_servers", "mcp_servers", "extensions", "amp.mcpServers")

watched = False
caught: list[str] = []


def _watch(event: str, args: tuple[Any, ...]) -> None:  # Any: what the interpreter hands to its hooks
    if not watched:
        return
    flags = args[2] if event == "open" else 0
    mode = args[1] if event == "open" else ""
    writes = bool((flags or 0) & WRITING) or (isinstance(mode, str) and any(mark in mode for mark in "wax+"))
    if event.startswith(FORBIDDEN) or writes:
        caught.append(f"{event} {args!r}")


sys.addaudithook(_watch)


@contextlib.contextmanager
def only_reading() -> Iterator[None]:
    """Fail if anything but reading happens within."""
    global watched
    caught.clear()
    watched = True
    try:
        yield
    finally:
        watched = False
    assert caught == []


def check(reading: Reading, directory: Path) -> None:
    """Check that what was found is a config, and that what is shown can be."""
    servers = {server.name: {**server.entry, "enabled": True} for server in reading.servers}
    assert len(servers) == len(reading.servers)
    file = directory / "dynamic-mcp.json"
    file.write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
    assert [group.name for group in read(file, {}).groups] == list(servers)
    notices = [*reading.notices, *(notice for server in reading.servers for notice in server.notices)]
    assert all(str(notice).isprintable() for notice in notices)


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    """Return a machine whose project is empty."""
    return machine(tmp_path_factory.mktemp("machine"))


@pytest.fixture(scope="module", autouse=True)
def _everything_is_imported(here: Machine) -> None:
    # an import writes byte code, and that is not what is looked for
    (here.home / ".cursor").mkdir()
    (here.home / ".cursor" / "mcp.json").write_text("{a: 'json5'}", encoding="utf-8")
    for name, text in (("a.yaml", "a: *b"), ("a.toml", "a = "), ("crushrc", "mcp add a")):
        (here.home / name).write_text(text, encoding="utf-8")
        read_file(here.home / name, here)
    read_all(here)


BRISK = examples(150, suppress_health_check=[HealthCheck.too_slow])


@BRISK
@given(adapter=st.sampled_from(TOOLS), servers=SERVERS, inputs=VALUES)
def test_any_settings_are_read_without_a_crash_or_a_deed(
    adapter: Adapter, servers: object, inputs: object, here: Machine
) -> None:
    document = {**dict.fromkeys(KEYS, servers), "inputs": inputs}
    file = here.home / "settings.json"
    file.write_text(json.dumps(document), encoding="utf-8")
    with only_reading():
        readings = [read_file(file, here, adapter), read_file(file, here)]
    for reading in readings:
        check(reading, here.project)


@BRISK
@given(data=st.binary(max_size=300), suffix=st.sampled_from(["json", "jsonc", "toml", "yaml", "crushrc", "txt"]))
def test_any_bytes_are_read_without_a_crash_or_a_deed(data: bytes, suffix: str, here: Machine) -> None:
    file = here.home / f"settings.{suffix}"
    file.write_bytes(data)
    with only_reading():
        reading = read_file(file, here)
    check(reading, here.project)


@BRISK
@given(
    case=st.sampled_from(cases()),
    cut=st.integers(0, 2000),
    put=st.sampled_from(["", "{", '"', "\0", "]", "&a ", "\ufeff"]),
)
def test_a_real_file_that_is_cut_or_scratched_is_read_or_refused(
    case: Any, cut: int, put: str, here: Machine
) -> None:
    text = (case.folder / case.expected["file"]).read_text(encoding="utf-8")
    at = cut % (len(text) + 1)
    file = here.home / case.expected["file"]
    file.write_text(text[:at] + put + (text[at + 1 :] if put else ""), encoding="utf-8")
    with only_reading():
        reading = read_file(file, here)
    check(reading, here.project)


@pytest.mark.parametrize("text", TEXTS)
def test_a_command_in_a_value_is_not_run(text: str, here: Machine, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    value = text.replace("{marker}", str(marker))
    server = {"command": "demo", "args": [value], "env": {"A": value}, "headersHelper": f"touch {marker}"}
    remote = {"url": "https://h.example.test/mcp", "headers": {"A": value}, "headersHelper": f"touch {marker}"}
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps({"mcpServers": {"a": server, "b": remote}}), encoding="utf-8")
    for adapter in TOOLS:
        with only_reading():
            read_file(file, here, adapter)
    assert not marker.exists()


def test_the_watch_notices_what_it_is_for(tmp_path: Path) -> None:
    with pytest.raises(AssertionError), only_reading():
        (tmp_path / "x").write_text("x", encoding="utf-8")
    with pytest.raises(AssertionError), only_reading():
        (tmp_path / "x").unlink()
