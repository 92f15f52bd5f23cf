"""What is kept of large things, for as long as they are the same."""

from __future__ import annotations

from dynamic_mcp.ui.memo import Memo


def test_a_value_is_computed_again_only_if_an_object_or_the_version_is_another() -> None:
    memo, computed = Memo[int](), list[int]()

    def compute() -> int:
        computed.append(len(computed))
        return computed[-1]

    first, second = object(), object()
    assert [memo.find((first, second), 1, compute) for _ in range(3)] == [0, 0, 0]
    assert memo.find((first, second), 2, compute) == 1
    assert memo.find((first,), 2, compute) == 2
    assert memo.find((second,), 2, compute) == 3
    assert memo.find((second,), 2, compute) == 3
