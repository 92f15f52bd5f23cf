"""A bounded dict forgets its oldest entries, and says which."""

from __future__ import annotations

import operator

import pytest

from dynamic_mcp.system.bounded import MOST_NAMES, BoundedDict, NameMemo


def test_the_oldest_entries_are_evicted_and_reported_in_their_order() -> None:
    evicted: list[tuple[str, int]] = []
    bounded: BoundedDict[str, int] = BoundedDict(2, on_evict=lambda key, value: evicted.append((key, value)))
    bounded.update({"a": 1, "b": 2, "c": 3})
    bounded["d"] = 4
    assert dict(bounded) == {"c": 3, "d": 4}
    assert evicted == [("a", 1), ("b", 2)]


def test_an_entry_that_is_set_again_keeps_its_age_and_one_that_is_taken_out_first_is_new() -> None:
    bounded: BoundedDict[str, int] = BoundedDict(2)
    bounded.update({"a": 1, "b": 2})
    bounded["a"] = 3
    assert dict(bounded) == {"a": 3, "b": 2}
    bounded["a"] = bounded.pop("a")
    bounded["c"] = 4
    assert dict(bounded) == {"a": 3, "c": 4}


def test_deleting_reports_nothing_and_makes_room() -> None:
    evicted: list[str] = []
    bounded: BoundedDict[str, int] = BoundedDict(1, on_evict=lambda key, _: evicted.append(key))
    bounded["a"] = 1
    del bounded["a"]
    bounded["b"] = 2
    assert (dict(bounded), evicted) == ({"b": 2}, [])
    with pytest.raises(KeyError):
        bounded["a"]


def test_every_way_to_add_an_entry_evicts() -> None:
    bounded: BoundedDict[str, int] = BoundedDict(2)
    bounded.update({"a": 1, "b": 2, "c": 3})
    assert bounded.setdefault("d", 4) == 4
    assert bounded.setdefault("d", 5) == 4
    assert dict(bounded) == {"c": 3, "d": 4}
    with pytest.raises(TypeError):
        operator.ior(bounded, {"e": 5})  # type: ignore[no-untyped-call]


def test_what_a_function_returns_is_remembered_for_so_many_names_and_for_no_long_one() -> None:
    asked: list[str] = []

    def make(name: str) -> int:
        asked.append(name)
        return len(name)

    memo = NameMemo(make, longest=3)
    assert [memo(name) for name in ("abc", "abc", "abcd", "abcd")] == [3, 3, 4, 4]
    assert asked == ["abc", "abcd", "abcd"]
    for number in range(MOST_NAMES):
        memo(str(number % 1000))
    memo("abc")
    assert asked.count("abc") == 2
