"""What is read from `WWW-Authenticate`."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynamic_mcp.oauth.challenges import Demand, demand


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ([], Demand()),
        (["Bearer"], Demand()),
        (['Bearer scope="a b"'], Demand(scope="a b")),
        (["bearer scope=a,error=b"], Demand(scope="a", error="b")),
        (['Bearer resource_metadata="https://h/a, b=c", scope="q\\"r"'], Demand("https://h/a, b=c", 'q"r')),
        (['Basic realm="Bearer scope=x"', 'Bearer error="insufficient_scope"'], Demand(error="insufficient_scope")),
        (['Basic realm="r", Bearer scope="a", Digest scope="b"'], Demand(scope="a")),
        (['Basic scope="not this"'], Demand()),
        (['Bearer x_scope="no"'], Demand()),
    ],
)
def test_the_bearer_challenge_alone_is_read(headers: list[str], expected: Demand) -> None:
    assert demand(headers) == expected


@given(st.lists(st.text()))
def test_nothing_breaks_it(headers: list[str]) -> None:
    demand(headers)
