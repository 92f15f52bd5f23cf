"""Kept results come back as they were, whatever is in them, and never take more than they may."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from dynamic_mcp.features.cache.kept_results import CACHED, KeptResult, KeptResults, prepare
from dynamic_mcp.mcp import wire
from tests.examples import examples

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)
NAMES = st.text(max_size=8).filter(lambda name: name not in ("_meta", "isError", "task", "resultType"))
RESULTS = st.builds(
    lambda members, meta: members if meta is None else {**members, "_meta": meta},
    st.dictionaries(NAMES.filter(lambda name: name not in ("ttlMs", "cacheScope")), JSON, max_size=4),
    st.none() | st.dictionaries(st.text(max_size=8), JSON, max_size=3),
)
INDENTS = st.sampled_from([None, 0, 2])


@examples(100)
@given(RESULTS, INDENTS, st.booleans(), st.integers(0, 50))
def test_a_hit_is_the_result_with_its_age(
    result: dict[str, object], indent: int | None, is_ascii: bool, age: int
) -> None:
    data = json.dumps(result, indent=indent, ensure_ascii=is_ascii).encode("utf-8", "surrogatepass")
    answer = wire.parse(b'{"jsonrpc":"2.0","id":1,"result":' + data + b"}")
    kept = prepare(answer, 60, 1000.0)
    assert kept is not None

    hit = json.loads(bytes(kept.answer(1000.0 + age).result))

    assert hit["_meta"].pop(CACHED) == {"age_s": age}
    if "_meta" not in result:
        assert hit.pop("_meta") == {}
    assert hit == json.loads(bytes(answer.result))


@examples(100)
@given(RESULTS, st.integers(1, 100_000), st.floats(0, 70))
def test_what_a_hit_says_of_its_time_is_never_longer_than_what_is_left(
    result: dict[str, object], ttl_ms: int, age: float
) -> None:
    data = json.dumps({**result, "ttlMs": ttl_ms, "cacheScope": "public"}).encode()
    kept = prepare(wire.parse(b'{"jsonrpc":"2.0","id":1,"result":' + data + b"}"), 60, 1000.0)
    assert kept is not None

    left_ms = json.loads(bytes(kept.answer(1000.0 + age).result))["ttlMs"]

    assert 0 <= left_ms <= max(0.0, min(ttl_ms, 60_000) - 1000 * age) + 1e-6
    assert kept.expires_at <= 1000.0 + min(ttl_ms / 1000, 60)


_USES = st.lists(
    st.tuples(st.sampled_from(["put", "find"]), st.sampled_from("abcdef"), st.integers(0, 900), st.integers(0, 3)),
    max_size=60,
)


@examples(100)
@given(_USES)
def test_no_more_is_kept_than_may_be_and_what_is_found_is_the_last_that_was_put(
    uses: list[tuple[str, str, int, int]],
) -> None:
    store, last, now = KeptResults("up", 3000), dict[str, KeptResult](), 0.0
    for what, key, size, pause in uses:
        now += pause
        if what == "put":
            kept = KeptResult(now, now + 5, is_private=False, has_ttl=False, head=b"x" * size)
            store.put(key, kept, 10)
            last[key] = kept
        else:
            found = store.find(key, now)
            assert found is None or (found is last[key] and found.expires_at > now)
        assert store.bytes <= 3000
    for key in "abcdef":
        store.find(key, now + 100)
    assert (len(store), store.bytes) == (0, 0)


def test_what_was_used_last_is_kept_longest() -> None:
    store = KeptResults("up", 3 * 1510)
    for key in "abc":
        store.put(key, KeptResult(0, 9, is_private=False, has_ttl=False, head=b"x" * 1000), 10)
    store.find("a", 1)
    store.put("d", KeptResult(0, 9, is_private=False, has_ttl=False, head=b"x" * 1000), 10)

    assert [key for key in "abcd" if store.find(key, 1) is not None] == ["a", "c", "d"]
