"""The TypeScript SDK, which many clients are made of, logs in at the program's own authorization server."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.journeys.diary import diary_printed_by
from tests.login_program import BEHIND_PROXY, make_certificate, publishing, serving_logins

CLIENT = str(Path(__file__).with_name("typescript_login.mjs"))
pytestmark = [pytest.mark.full, pytest.mark.alone_only("HTTP is served the same by a daemon")]
SEEN = {
    "logins": 1,
    "state": "of-typescript",
    "called": "hi",
    "called_again": "hi",
    "refreshed": True,
}


async def test_the_typescript_sdk_registers_logs_in_calls_a_tool_and_refreshes(
    tmp_path: Path, typescript: list[str]
) -> None:
    async with serving_logins(tmp_path) as program:
        seen = await diary_printed_by(*typescript, CLIENT, program.url_of("a"), "ann")
        assert seen == {**SEEN, "registrations": 1, "iss": program.origin}


async def test_the_typescript_sdk_logs_in_by_its_document(
    tmp_path: Path, typescript: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate = make_certificate(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    auth = [{"kind": "login", "local_client_documents": True}, *BEHIND_PROXY[1:]]
    async with publishing(certificate) as (url, _), serving_logins(tmp_path, auth) as program:
        seen = await diary_printed_by(*typescript, CLIENT, program.url_of("a"), "ann", url)
        assert seen == {**SEEN, "registrations": 0, "iss": program.origin}
