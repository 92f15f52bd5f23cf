"""Vectors come from the configured endpoint in the background, with time limits, and are kept on disk."""

from __future__ import annotations

import asyncio
import json
import logging
from array import array
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from dynamic_mcp.config.resolved import Embeddings
from dynamic_mcp.embeddings.endpoint import EmbeddingEndpoint, EndpointError, Vector, endpoint_url
from dynamic_mcp.embeddings.index import SemanticIndex, Texts
from dynamic_mcp.embeddings.vectors import VectorStore, text_key
from tests import windows
from tests.embeddings.endpoint import FakeEndpoint, Json, endpoint
from tests.fakes import BOUND_S

TEXTS = ["Cut a branch off", "Look at the calendar", "Open an issue"]


def config(fake: FakeEndpoint, key: str | None = None) -> Embeddings:
    return Embeddings(fake.url, "tiny", key)


def as_texts(texts: Sequence[str]) -> Texts:
    async def give() -> Sequence[str]:
        return texts

    return give


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(BOUND_S):
        while not condition():  # noqa: ASYNC110 - the other side is a server, which tells nobody
            await asyncio.sleep(0.005)


async def learn_texts(semantic_index: SemanticIndex, fake: FakeEndpoint, folder: Path | None = None) -> None:
    """Wait until the vectors of TEXTS are known."""
    semantic_index.configure(config(fake))
    semantic_index.update(as_texts(TEXTS))
    await until(lambda: set(fake.texts) >= set(TEXTS))
    async with asyncio.timeout(BOUND_S):
        while not await semantic_index.similarity("anything", [TEXTS]):  # noqa: ASYNC110
            await asyncio.sleep(0.005)


async def test_the_text_with_the_nearest_meaning_has_the_highest_similarity() -> None:
    async with endpoint() as fake:
        semantic_index = SemanticIndex(query_within_s=BOUND_S)
        await learn_texts(semantic_index, fake)

        ((branch, day, issue),) = await semantic_index.similarity("Zweig entfernen", [TEXTS])

        assert branch is not None
        assert day is not None
        assert issue is not None
        assert branch > 0.9
        assert max(day, issue) < 0.6
        await semantic_index.close()


async def test_nothing_is_sent_before_an_endpoint_is_named() -> None:
    async with endpoint() as fake:
        semantic_index = SemanticIndex()
        semantic_index.update(as_texts(TEXTS))

        assert not semantic_index.is_enabled
        assert await semantic_index.similarity("branch", [TEXTS]) == []
        assert fake.requests == []
        await semantic_index.close()


async def test_a_slow_endpoint_is_not_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    async with endpoint() as fake:
        semantic_index = SemanticIndex(query_within_s=0.2)
        await learn_texts(semantic_index, fake)
        fake.gate.clear()
        caplog.clear()

        with caplog.at_level(logging.WARNING):
            assert await semantic_index.similarity("first", [TEXTS]) == []
            assert await semantic_index.similarity("second", [TEXTS]) == []

        assert len([record for record in caplog.records if "words only" in record.message]) == 1
        await semantic_index.close()


async def test_a_failed_batch_is_tried_again_later() -> None:
    naps: list[float] = []
    async with endpoint() as fake:
        fake.status = 500

        async def nap(seconds: float) -> None:
            naps.append(seconds)
            fake.status = 200 if len(naps) == 2 else 500

        semantic_index = SemanticIndex(query_within_s=BOUND_S, sleep=nap)
        await learn_texts(semantic_index, fake)

        assert naps == [5.0, 30.0]
        await semantic_index.close()


async def test_texts_are_sent_in_batches_and_once() -> None:
    many = [f"text {n}" for n in range(70)]
    async with endpoint() as fake:
        semantic_index = SemanticIndex(query_within_s=BOUND_S)
        semantic_index.configure(config(fake))
        semantic_index.update(as_texts(many))
        semantic_index.update(as_texts(many))
        await until(lambda: len(fake.texts) >= 70)
        semantic_index.update(as_texts([*many, "one more"]))
        await until(lambda: "one more" in fake.texts)

        assert [len(asked["input"]) for asked in fake.requests] == [32, 32, 6, 1]
        assert fake.texts == [*many, "one more"]
        await semantic_index.close()


async def test_vectors_are_kept_on_disk_for_the_next_start(tmp_path: Path) -> None:
    async with endpoint() as fake:
        for _ in range(2):
            semantic_index = SemanticIndex(tmp_path, query_within_s=BOUND_S)
            await learn_texts(semantic_index, fake)
            await semantic_index.close()

        assert [text for text in fake.texts if text in TEXTS] == TEXTS
        assert are_private(tmp_path) == [True]


def are_private(folder: Path) -> list[bool]:
    return [windows.is_private(file) for file in folder.iterdir()]


async def test_another_model_has_vectors_of_its_own(tmp_path: Path) -> None:
    async with endpoint() as fake:
        semantic_index = SemanticIndex(tmp_path, query_within_s=BOUND_S)
        await learn_texts(semantic_index, fake)
        semantic_index.configure(Embeddings(fake.url, "other", None))
        semantic_index.update(as_texts(TEXTS))
        await until(lambda: sum(asked["model"] == "other" for asked in fake.requests) == 1)
        await semantic_index.close()


async def test_switching_it_off_ends_the_questions() -> None:
    async with endpoint() as fake:
        semantic_index = SemanticIndex(query_within_s=BOUND_S)
        await learn_texts(semantic_index, fake)
        asked = len(fake.requests)

        semantic_index.configure(None)
        semantic_index.update(as_texts(["new"]))

        assert await semantic_index.similarity("branch", [TEXTS]) == []
        assert len(fake.requests) == asked
        await semantic_index.close()


# --- the endpoint --------------------------------------------------------------------------------------


async def test_the_key_is_a_bearer_token_and_the_protocol_is_openais() -> None:
    async with endpoint() as fake:
        asking = EmbeddingEndpoint(config(fake, key="hunter2"))
        await asking.embed(["a", "b"], BOUND_S)
        await asking.close()

        assert "POST /v1/embeddings HTTP/1.1" in fake.heads[0]
        assert "authorization: bearer hunter2" in fake.heads[0].lower()
        assert fake.requests == [{"model": "tiny", "input": ["a", "b"], "encoding_format": "float"}]
        assert "hunter2" not in repr(config(fake, key="hunter2"))


@pytest.mark.parametrize(
    "url", ["http://h:1", "http://h:1/", "http://h:1/v1", "http://h:1/v1/", "http://h:1/v1/embeddings"]
)
def test_the_url_may_be_given_in_part(url: str) -> None:
    assert endpoint_url(url) == "http://h:1/v1/embeddings"


@pytest.mark.parametrize("url", ["http://h/openai/v2?api-version=1", "http://h/openai/v2/embeddings?api-version=1"])
def test_another_path_and_a_query_stay(url: str) -> None:
    assert endpoint_url(url) == "http://h/openai/v2/embeddings?api-version=1"


def data(*items: Json) -> bytes:
    return json.dumps({"data": items}).encode()


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"<html>",
        b"{}",
        data(),
        data({"embedding": [1, 2]}, {"embedding": [1, 2]}),
        data({"embedding": []}),
        data({"embedding": [0, 0]}),
        data({"embedding": "AAAA"}),
        data({"embedding": [None]}),
        b'{"data":[{"embedding":[1e999]}]}',
    ],
    ids=lambda answer: answer[:40],
)
async def test_an_answer_that_is_none_is_an_error_of_the_endpoint(answer: bytes) -> None:
    async with endpoint() as fake:
        fake.answer = lambda asked: answer
        asking = EmbeddingEndpoint(config(fake))

        with pytest.raises(EndpointError):
            await asking.embed(["a"], BOUND_S)
        await asking.close()


async def test_answers_are_put_in_order() -> None:
    async with endpoint() as fake:
        fake.answer = lambda asked: data({"index": 1, "embedding": [0, 2]}, {"index": 0, "embedding": [3, 0]})
        asking = EmbeddingEndpoint(config(fake))

        assert [list(vector) for vector in await asking.embed(["a", "b"], BOUND_S)] == [[1, 0], [0, 1]]
        await asking.close()


async def test_an_endpoint_that_is_away_says_so() -> None:
    asking = EmbeddingEndpoint(Embeddings("http://127.0.0.1:9/v1", "tiny", None))
    with pytest.raises(EndpointError):
        await asking.embed(["a"], BOUND_S)
    await asking.close()


# --- the file ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "junk", [b"", b"junk", b'{"numbers":3,"order":"little"}\nshort', b'{"numbers":0,"order":"x"}\n']
)
def test_a_file_that_cannot_be_read_is_made_anew(tmp_path: Path, junk: bytes) -> None:
    vectors = VectorStore(tmp_path, "m")
    vectors.save({text_key("a"): vector(1.0, 0.0)})
    (file,) = tmp_path.iterdir()
    file.write_bytes(junk)

    assert vectors.load() == {}
    assert file.with_suffix(".bad").read_bytes() == junk
    vectors.save({text_key("a"): vector(0.0, 1.0)})
    assert vectors.load() == {text_key("a"): vector(0.0, 1.0)}


def test_what_another_program_has_kept_stays(tmp_path: Path) -> None:
    VectorStore(tmp_path, "m").save({text_key("a"): vector(1.0, 0.0)})
    VectorStore(tmp_path, "m").save({text_key("b"): vector(0.0, 1.0)})

    assert set(VectorStore(tmp_path, "m").load()) == {text_key("a"), text_key("b")}


def vector(*numbers: float) -> Vector:
    return array("f", numbers)
