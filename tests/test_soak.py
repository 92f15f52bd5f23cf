from __future__ import annotations

import datetime

from tests.soak import choose

FILES = ["b.py", "a.py", "b.py", "c.py"]
TODAY = datetime.date(2026, 2, 27)


def test_each_file_has_its_turn_and_a_day_has_one_file() -> None:
    days = [TODAY + datetime.timedelta(days) for days in range(3)]
    assert {choose(FILES, day) for day in days} == {"a.py", "b.py", "c.py"}
    assert choose(FILES, TODAY) == choose(FILES[::-1], TODAY)


def test_where_there_is_none_there_is_no_turn() -> None:
    assert choose([], TODAY) == ""
