"""Catalogs on disk: whole or not at all, for this very config, and never in the way."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import pytest
from msgspec import Raw
from msgspec.structs import replace

from dynamic_mcp.config.resolved import OAuth, Program, Remote
from dynamic_mcp.groups.catalog import Catalog, Listing, ListKind
from dynamic_mcp.groups.catalog_store import MAX_FILES, CatalogStore, key
from tests.fakes import group_config

TOOL = Raw(rb'{"name":"t" ,"n":1e400,"s":"\ud800","big":1234567890123456789012345678901234567890}')
FULL = Catalog(
    {
        ListKind.TOOLS: Listing({"t": TOOL}, {"_meta": Raw(b'{"a":1}')}),
        ListKind.RESOURCES: Listing({"file:///ü": Raw(b"{}")}),
        ListKind.TEMPLATES: Listing(),
        ListKind.PROMPTS: Listing(),
    },
    {"tools": Raw(b'{"listChanged":true}')},
    "Use me.",
    "Me",
)


def tools(**definitions: bytes) -> Catalog:
    return Catalog({ListKind.TOOLS: Listing({name: Raw(text) for name, text in definitions.items()})})


def test_what_is_kept_comes_back_byte_for_byte(tmp_path: Path) -> None:
    catalog_store = CatalogStore(tmp_path)

    catalog_store.save(group_config(), FULL)
    kept = catalog_store.load(group_config())

    assert kept is not None
    assert kept.catalog == FULL
    assert bytes(kept.catalog.tools["t"]) == bytes(TOOL)


def test_what_a_server_lacks_is_kept_with_its_catalog_and_given_up_when_it_is_known_to_lack_nothing(
    tmp_path: Path,
) -> None:
    catalog_store = CatalogStore(tmp_path)

    catalog_store.save(group_config(), FULL, lacks="modern")
    kept = catalog_store.load(group_config())
    catalog_store.save(group_config(), FULL)
    after = catalog_store.load(group_config())

    assert kept is not None
    assert after is not None
    assert (kept.lacks, after.lacks) == ("modern", None)


def test_an_era_that_nobody_knows_is_none(tmp_path: Path) -> None:
    catalog_store = CatalogStore(tmp_path)
    catalog_store.save(group_config(), FULL, lacks="modern")
    [file] = tmp_path.iterdir()

    file.write_bytes(file.read_bytes().replace(b'"lacks":"modern"', b'"lacks":"baroque"'))
    kept = catalog_store.load(group_config())

    assert kept is not None
    assert (kept.lacks, kept.catalog) == (None, FULL)


def test_another_config_does_not_meet_it(tmp_path: Path) -> None:
    catalog_store = CatalogStore(tmp_path)
    catalog_store.save(group_config(), FULL)

    other = Program(command="fake", args=("--more",), env={}, cwd=None)

    assert catalog_store.load(group_config(upstream=other)) is None


def test_a_remote_group_is_its_url_its_headers_its_transport_and_its_scopes() -> None:
    def remote(url: str = "https://a.test", token: str = "a", scope: str = "x") -> Remote:  # noqa: S107 - no secret
        login = OAuth(client_id="c", client_secret="s", scopes=(scope,), redirect_port=None, metadata_url=None)
        return Remote(kind="http", url=url, headers={"Authorization": token}, oauth=login)

    variants = [
        remote(),
        remote(url="https://b.test"),
        remote(token="b"),
        remote(scope="y"),
        replace(remote(), kind="sse"),
    ]

    assert key(group_config(upstream=remote())) == key(group_config(upstream=remote()))
    assert len({key(group_config(upstream=each)) for each in variants}) == len(variants)


def test_inherited_variables_do_not_matter_and_configured_ones_do() -> None:
    def program(**env: str) -> Program:
        return Program(command="x", args=(), env=env, cwd=None, own=frozenset({"TOKEN"}))

    same = {key(group_config(upstream=program(TOKEN="a", TERM=term))) for term in ("dumb", "xterm")}
    other = key(group_config(upstream=program(TOKEN="b", TERM="dumb")))

    assert len(same) == 1
    assert other not in same


def test_secrets_are_nowhere_in_the_folder(tmp_path: Path) -> None:
    secret = Program(command="x", args=(), env={"TOKEN": "hunter2hunter2"}, cwd=None, own=frozenset({"TOKEN"}))

    CatalogStore(tmp_path).save(group_config(upstream=secret), FULL)

    (file,) = tmp_path.iterdir()
    assert b"hunter2" not in file.read_bytes()
    assert "hunter2" not in file.name
    if sys.platform != "win32":
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.mark.parametrize("name", ["../../x", "a/b", "\0", "x" * 64, "CON", "..", "/etc/passwd"])
def test_a_hostile_name_stays_inside_the_folder(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "inner"

    CatalogStore(folder).save(group_config(name), FULL)

    assert len(list(folder.iterdir())) == 1
    assert list(tmp_path.iterdir()) == [folder]


# Rows 54 and 55 of the fault matrix.


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"garbage",
        b"[]",
        b"{}",
        b'{"form":2}',
        b'{"form":1,"lists":[]}',
        b'{"form":1,"lists":{"NOBODY":{}}}',
        b"\xff" * 100,
        b"[" * 100_000,
    ],
)
def test_what_cannot_be_read_is_set_aside(tmp_path: Path, data: bytes) -> None:
    catalog_store = CatalogStore(tmp_path)
    catalog_store.save(group_config(), FULL)
    (file,) = tmp_path.iterdir()
    file.write_bytes(data)

    assert catalog_store.load(group_config()) is None

    assert [each.suffix for each in tmp_path.iterdir()] == [".bad"]
    catalog_store.save(group_config(), FULL)
    assert catalog_store.load(group_config()) is not None


def test_a_folder_that_cannot_be_written_stops_nothing_and_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("in the way")
    catalog_store = CatalogStore(tmp_path / "file" / "folder")

    for _ in range(3):
        catalog_store.save(group_config(), FULL)

    assert len([record for record in caplog.records if "not cached" in record.message]) == 1


# Row 56 of the fault matrix.


def test_age_is_told_whatever_the_clock_does(tmp_path: Path) -> None:
    time = [1000.0]
    catalog_store = CatalogStore(tmp_path, now=lambda: time[0])
    catalog_store.save(group_config(), FULL)
    kept = catalog_store.load(group_config())
    assert kept is not None

    time[0] = 1060.0
    assert catalog_store.age_s(kept) == 60
    time[0] = 0.0
    assert catalog_store.age_s(kept) == 0


def test_old_files_go_when_there_are_too_many(tmp_path: Path) -> None:
    for number in range(MAX_FILES + 20):
        file = tmp_path / f"{number}.v1.json"
        file.write_text("{}")
        os.utime(file, (number, number))

    CatalogStore(tmp_path).save(group_config(), FULL)

    names = {file.name for file in tmp_path.iterdir()}
    assert len(names) == MAX_FILES
    assert "0.v1.json" not in names
