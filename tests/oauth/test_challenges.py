"""What is read from `WWW-Authenticate`."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynamic_mcp.oauth.challenges import BearerChallenge, parse_challenge
from tests.examples import examples


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ([], BearerChallenge()),
        (["Bearer"], BearerChallenge()),
        (['Bearer scope="a b"'], BearerChallenge(scope="a b")),
        (["bearer scope=a,error=b"], BearerChallenge(scope="a", error="b")),
        (['Bearer resource_metadata="https://h/a, b=c", scope="q\\"r"'], BearerChallenge("https://h/a, b=c", 'q"r')),
        (
            ['Basic realm="Bearer scope=x"', 'Bearer error="insufficient_scope"'],
            BearerChallenge(error="insufficient_scope"),
        ),
        (['Basic realm="r", Bearer scope="a", Digest scope="b"'], BearerChallenge(scope="a")),
        (['Basic scope="not this"'], BearerChallenge()),
        (['Bearer x_scope="no"'], BearerChallenge()),
    ],
)
def test_only_the_bearer_challenge_is_read(headers: list[str], expected: BearerChallenge) -> None:
    assert parse_challenge(headers) == expected


@examples(100)
@given(st.lists(st.text()))
def test_any_header_can_be_parsed(headers: list[str]) -> None:
    parse_challenge(headers)
