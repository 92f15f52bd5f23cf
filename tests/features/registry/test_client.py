"""A registry over HTTP: what is asked, what is kept, and what a broken or hostile one can do."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from dynamic_mcp.errors import NotFound, RegistryError
from dynamic_mcp.features.registry.cache import MOST_FILES, AnswerCache
from dynamic_mcp.features.registry.client import MAX_BYTES, MOST_PAGES, RegistryClient
from dynamic_mcp.features.registry.config import Registry
from dynamic_mcp.features.registry.lookup import Lookup
from tests.features.registry.documents import Json, server
from tests.features.registry.fake_registry import FakeRegistry, Response, fake_registry, reply
from tests.program import BOUND_S
from tests.windows import is_private

NAME = "io.github.example/weather"


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def fake() -> Iterator[FakeRegistry]:
    with fake_registry() as running:
        running.publish(server(version="1.0.0"))
        running.publish(server(version="1.1.0"))
        yield running


@pytest.fixture
def cache(tmp_path: Path) -> AnswerCache:
    return AnswerCache(tmp_path / "cache", most_bytes=MAX_BYTES)


async def get(fake: FakeRegistry, cache: AnswerCache, version: str = "latest") -> Json:
    async with asyncio.timeout(BOUND_S), RegistryClient(fake.registry, cache) as client:
        return await client.get(NAME, version)


async def test_a_name_is_one_segment_of_the_path_and_headers_are_sent(fake: FakeRegistry, cache: AnswerCache) -> None:
    registry = Registry("fake", fake.url, {"X-Token": "secret"})
    async with RegistryClient(registry, cache) as client:
        newest, older = await client.get(NAME), await client.get(NAME, "1.0.0")
        assert await client.get(NAME, "7") is None
    assert newest is not None
    assert older is not None
    assert (newest.version, older.version) == ("1.1.0", "1.0.0")
    assert fake.requests[0] == "/v0.1/servers/io.github.example%2Fweather/versions/latest"
    assert {each["x-token"] for each in fake.headers} == {"secret"}


async def test_an_answer_that_has_not_changed_is_not_sent_again(fake: FakeRegistry, cache: AnswerCache) -> None:
    first = await get(fake, cache)
    assert "if-none-match" not in fake.headers[-1]
    assert await get(fake, cache) == first
    assert fake.headers[-1]["if-none-match"].startswith('"')
    fake.publish(server(version="2.0.0"))
    assert (await get(fake, cache)).version == "2.0.0"


async def test_offline_the_last_answer_counts_and_its_age_is_said(fake: FakeRegistry, tmp_path: Path) -> None:
    clock = Clock()
    cache = AnswerCache(tmp_path, most_bytes=MAX_BYTES, clock=clock)
    lookup = Lookup([fake.registry], cache)
    await lookup.find(NAME)
    assert lookup.notes == []
    clock.now += 3 * 3600
    fake.override = lambda path: reply({}, 503)
    assert (await lookup.find(NAME)).document.version == "1.1.0"
    assert lookup.notes == ["registry `fake`: it answers with status 503; this is what it answered 3 h ago"]
    with pytest.raises(RegistryError):
        await lookup.find("io.github.example/never-asked-for")


async def test_a_cache_that_cannot_be_used_is_no_error(fake: FakeRegistry, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert (await get(fake, AnswerCache(tmp_path / "file", most_bytes=MAX_BYTES))).version == "1.1.0"
    cache = AnswerCache(tmp_path / "cache", most_bytes=MAX_BYTES)
    await get(fake, cache)
    (kept,) = (tmp_path / "cache").glob("*.json")
    assert is_private(kept)
    kept.write_bytes(b"{broken")
    assert (await get(fake, cache)).version == "1.1.0"
    assert kept.with_suffix(".bad").read_bytes() == b"{broken"


def test_a_cache_forgets_the_oldest_answers(tmp_path: Path) -> None:
    cache = AnswerCache(tmp_path, most_bytes=MAX_BYTES)
    for number in range(MOST_FILES + 5):
        cache.store(f"http://h/{number}", {}, "{}", "")
    assert len(list(tmp_path.iterdir())) == MOST_FILES
    assert cache.load(f"http://h/{MOST_FILES + 4}", {}) is not None


def test_what_one_account_was_shown_is_not_for_another(tmp_path: Path) -> None:
    cache = AnswerCache(tmp_path, most_bytes=MAX_BYTES)
    cache.store("http://h/", {"authorization": "a"}, "{}", "")
    assert cache.load("http://h/", {"authorization": "b"}) is None


async def test_endless_pages_end(fake: FakeRegistry, cache: AnswerCache) -> None:
    pages = iter(range(10**6))
    fake.override = lambda path: reply(
        {"servers": [{"server": server(f"a.b/{(n := next(pages))}")}], "metadata": {"nextCursor": str(n)}}
    )
    async with RegistryClient(fake.registry, cache) as client:
        listing = await client.search("a")
    assert len(fake.requests) == MOST_PAGES
    assert listing.is_cut


async def test_a_cursor_that_comes_again_ends_the_list(fake: FakeRegistry, cache: AnswerCache) -> None:
    fake.override = lambda path: reply({"servers": [], "metadata": {"nextCursor": "same"}})
    async with RegistryClient(fake.registry, cache) as client:
        await client.search("a")
    assert len(fake.requests) == 2


async def test_wrong_entries_of_a_list_are_left_out_and_counted(fake: FakeRegistry, cache: AnswerCache) -> None:
    wrong: list[Json] = [
        7,
        None,
        [],
        {},
        {"server": 1},
        {"server": {"name": "../../x", "version": "1"}},
        {"server": {"name": 1}},
    ]
    wrong += [{"server": {**server(), "version": []}}, {"server": server("a.b/\x1b[31m")}]
    fake.override = lambda path: reply({"servers": [*wrong, {"server": server()}], "metadata": []})
    lookup = Lookup([fake.registry], cache)
    hits = await lookup.search(["x"])
    assert [hit.document.name for hit in hits] == [NAME]
    assert lookup.notes == [f"registry `fake`: {len(wrong)} entries cannot be understood"]


@pytest.mark.parametrize(
    "response",
    [
        Response(200, b"[" * 100_000),
        Response(200, b'"' + b"x" * (10 << 20) + b'"'),
        Response(200, b"\xff\xfe"),
        Response(200, b""),
        Response(200, b"<html>"),
        Response(200, b'{"server": {}}', {"content-encoding": "gzip"}),
        Response(302, b"", {"location": "http://127.0.0.1:9/"}),
        Response(401, b"{}"),
        Response(418, b"{}"),
        Response(304, b""),
        reply(7),
        reply({"server": server("io.github.example/other")}),
        reply({"server": {"name": NAME}}),
        reply({"server": {"name": NAME, "version": "1\x1b[2J"}}),
    ],
)
async def test_nonsense_is_an_error_that_names_the_registry(
    fake: FakeRegistry, cache: AnswerCache, response: Response, tmp_path: Path
) -> None:
    fake.override = lambda path: response
    with pytest.raises(RegistryError, match=r"^registry `fake`: "):
        await get(fake, cache)
    assert all(each.name.endswith(".json") for each in (tmp_path / "cache").glob("**/*"))


async def test_an_answer_with_another_version_than_the_one_asked_for_is_refused(
    fake: FakeRegistry, cache: AnswerCache
) -> None:
    fake.override = lambda path: reply({"server": server(version="6.6.6")})
    with pytest.raises(RegistryError):
        await get(fake, cache, "1.0.0")


async def test_a_registry_that_says_nothing_is_given_up(fake: FakeRegistry, cache: AnswerCache) -> None:
    def hang(path: str) -> None:
        fake.released.wait(BOUND_S)

    fake.override = hang
    async with asyncio.timeout(BOUND_S), RegistryClient(fake.registry, cache, timeout_s=0.2) as client:
        with pytest.raises(RegistryError, match="did not answer within"):
            await client.get(NAME)


@pytest.mark.parametrize("name", ["../../x", "a/../b", "a.b/c/d", "/etc/passwd", "", "-x", "a.b/c?d", "a.b/\n"])
async def test_what_cannot_be_a_name_is_not_asked_for(fake: FakeRegistry, cache: AnswerCache, name: str) -> None:
    with pytest.raises(NotFound):
        await Lookup([fake.registry], cache).find(name)
    assert all(path.startswith("/v0.1/servers?") for path in fake.requests)


async def test_the_first_registry_decides_even_if_it_cannot_be_reached(
    fake: FakeRegistry, cache: AnswerCache
) -> None:
    private = Registry("private", "http://127.0.0.1:9")
    with pytest.raises(RegistryError, match="private"):
        await Lookup([private, fake.registry], cache).find(NAME)
    lookup = Lookup([private, fake.registry], cache)
    hits = await lookup.search(["weather"])
    assert [hit.registry for hit in hits] == ["fake"]
    assert "private" in lookup.notes[0]


async def test_a_search_asks_for_each_word_and_shows_the_best_first(fake: FakeRegistry, cache: AnswerCache) -> None:
    fake.publish(server("com.example/radar", description="Rain on the weather radar"))
    fake.publish(server("com.example/gone"), status="deleted")
    hits = await Lookup([fake.registry], cache).search(["example", "radar"])
    assert [hit.document.name for hit in hits] == ["com.example/radar", NAME]


async def test_an_unknown_version_is_told_with_those_that_there_are(fake: FakeRegistry, cache: AnswerCache) -> None:
    with pytest.raises(NotFound) as caught:
        await Lookup([fake.registry], cache).find(NAME, "1.2.0")
    assert "`1.1.0`, `1.0.0`" in caught.value.hint
    assert json.dumps(caught.value.name) == '"1.2.0"'


@pytest.mark.parametrize("etag", ['"\xe9"', '"' + "x" * 5000 + '"', "no quotes", '"a" b'])
async def test_an_etag_that_cannot_be_sent_back_is_not_kept(
    fake: FakeRegistry, cache: AnswerCache, etag: str
) -> None:
    fake.override = lambda path: reply({"server": server(version="1.1.0")}, etag=etag)
    for _ in range(2):
        async with RegistryClient(fake.registry, cache) as client:
            assert await client.get(NAME)

    assert "if-none-match" not in fake.headers[-1]
