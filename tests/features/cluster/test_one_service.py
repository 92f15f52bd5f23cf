"""Two replicas behind a balancer are one service: tests of one program, before replicas of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from tests.attacks import test_hostile_clients as hostile
from tests.http_program import HttpProgram, serving_http
from tests.journeys import test_eras as eras
from tests.journeys import test_http_clients as clients
from tests.journeys.diary import two_servers
from tests.process import test_auth as auth
from tests.process import test_modern_states as states
from tests.program import full, odd
from tests.upstreams.full import Options
from tests.upstreams.full_http import FullHttp

pytestmark = [
    pytest.mark.full,
    pytest.mark.alone_only("it is a program that serves over HTTP, and nobody's window"),
    pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning"),
    pytest.mark.usefixtures("two_replicas"),
    pytest.mark.timeout(240),
]
# HAProxy tells a server at once that its client has gone, but only until the answer has begun: a client without a
# session may be too late to cancel.
_NGINX = pytest.mark.parametrize("two_replicas", ["round-robin", "pinned-nginx"], indirect=True)
OfProgram = Callable[[HttpProgram], Awaitable[None]]
InFolder = Callable[[Path], Awaitable[None]]


@pytest.fixture
async def url() -> AsyncIterator[str]:
    """The URL of a legacy server that asks."""
    async with FullHttp(Options(), older=False).listening() as url:
        yield url


@pytest.mark.parametrize(
    "journey",
    [
        clients.test_the_python_sdk_uses_all_that_two_servers_offer,
        clients.test_the_python_sdk_uses_all_of_it_over_the_older_transport,
    ],
)
async def test_a_client_uses_all_that_two_servers_offer(journey: OfProgram, tmp_path: Path) -> None:
    async with serving_http(tmp_path, two_servers()) as program:
        await journey(program)


@pytest.mark.parametrize(
    "journey",
    [
        clients.test_the_python_sdk_gets_what_it_missed_while_its_connections_were_cut,
        clients.test_the_inspector_lists_and_calls,
        clients.test_mcporter_lists_and_calls,
    ],
)
async def test_a_client_of_one_server_misses_nothing(journey: OfProgram, tmp_path: Path) -> None:
    async with serving_http(tmp_path, {"a": full("--name", "a")}) as program:
        await journey(program)


async def test_a_client_hears_of_a_list_that_has_changed_where_replicas_stay_connected(tmp_path: Path) -> None:
    stays = {"connect": "eager", "idle_timeout": "never"}
    async with serving_http(tmp_path, {"a": {**full("--name", "a"), **stays}}) as program:
        await clients.test_the_python_sdk_hears_of_a_list_that_has_changed(program)


async def test_the_typescript_sdk_uses_all_that_two_servers_offer(typescript: list[str], tmp_path: Path) -> None:
    async with serving_http(tmp_path, two_servers()) as program:
        await clients.test_the_typescript_sdk_uses_all_that_two_servers_offer(program, typescript, "mcp")


async def test_the_typescript_sdk_misses_nothing_while_its_connections_are_cut(
    typescript: list[str], tmp_path: Path
) -> None:
    async with serving_http(tmp_path, {"a": full("--name", "a")}) as program:
        await clients.test_the_typescript_sdk_misses_nothing_while_its_connections_are_cut(program, typescript)


@_NGINX
async def test_a_client_without_a_session_uses_all_that_two_servers_offer(tmp_path: Path) -> None:
    async with serving_http(tmp_path, two_servers()) as program:
        await clients.test_the_python_sdk_uses_all_of_it_without_a_session(program)


@_NGINX
async def test_a_call_that_a_client_without_a_session_gives_up_is_cancelled(tmp_path: Path) -> None:
    async with serving_http(tmp_path, {"a": full("--name", "a")}) as program:
        await clients.test_a_call_that_the_python_sdk_gives_up_is_cancelled(program)


@_NGINX
async def test_clients_of_both_eras_use_servers_of_both(tmp_path: Path) -> None:
    await eras.test_both_modes_of_the_python_sdk_use_servers_of_both_eras(tmp_path)


class TestWithTokens:
    @pytest.fixture(autouse=True)
    def _tokens(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("ANN", auth.TOKEN)
        monkeypatch.setenv("BOB", auth.OTHER)

    @pytest.mark.parametrize(
        "scenario",
        [
            auth.test_the_token_of_a_client_reaches_no_upstream_no_log_and_no_error,
            auth.test_each_token_is_somebody_and_the_session_of_one_is_none_of_the_other,
        ],
    )
    async def test_a_token_is_known_to_both_and_told_to_none_else(self, scenario: InFolder, tmp_path: Path) -> None:
        await scenario(tmp_path)


@pytest.mark.parametrize(
    "scenario",
    [
        states.test_a_state_that_was_changed_cut_short_or_made_longer_is_refused,
        states.test_the_states_of_two_calls_cannot_be_swapped_and_fit_no_other_method,
        states.test_a_state_is_good_once_also_for_two_who_come_at_once,
    ],
)
async def test_a_state_is_good_for_its_own_retry_alone(
    scenario: Callable[[Path, str], Awaitable[None]], tmp_path: Path, url: str
) -> None:
    await scenario(tmp_path, url)


@pytest.mark.parametrize("name", ["t", "somebody else"])
async def test_a_state_of_a_modern_server_is_that_servers_to_judge(tmp_path: Path, name: str) -> None:
    await states.test_a_state_of_a_modern_server_is_that_servers_to_judge(tmp_path, name)


@pytest.mark.parametrize(
    "attack",
    [
        hostile.test_what_a_client_shows_of_itself_reaches_no_server_and_no_log,
        hostile.test_nobody_else_answers_a_question_or_takes_the_stream_on_which_it_came,
        hostile.test_a_session_that_ends_while_it_is_asked_ends_the_call,
        hostile.test_a_session_is_deleted_once_though_calls_are_in_flight,
        hostile.test_many_streams_of_a_session_leave_one,
    ],
)
async def test_nobody_gets_what_is_of_the_session_of_another(attack: OfProgram, tmp_path: Path) -> None:
    async with serving_http(tmp_path, {"odd": odd(), "full": full()}) as program:
        await attack(program)
