"""A page whose body goes on: it ends with its pieces, and whatever happens to them."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator

from dynamic_mcp.face.http.authenticator import PageRequest, StreamedPage
from dynamic_mcp.face.http.deferred import PageReceiver
from dynamic_mcp.face.http.exchange import RequestHead, Response
from dynamic_mcp.system.task_set import TaskSet
from tests.face.http.parties import Reply

log = logging.getLogger(__name__)


async def broken() -> AsyncIterator[bytes]:
    yield b"one"
    raise RuntimeError("a bug")


async def page(request: PageRequest) -> Response:
    return StreamedPage(200, (), pieces=broken())


def unchanged(response: Response) -> Response:
    return response


async def test_a_stream_that_fails_ends_instead_of_leaving_its_client_waiting() -> None:
    tasks, reply = TaskSet(log), Reply()
    receiver = PageReceiver(RequestHead("GET", b"/ui/events", {}), reply, page, (), tasks, unchanged)

    receiver.receive_body(b"")

    assert (await reply.ends()).body == b"one"
