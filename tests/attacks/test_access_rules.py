"""Who tries to read, call or have approved what the access rules do not allow gets nothing, and nothing is sent."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.attacks.target import McpClient, Target, bearer, office, serving
from tests.attacks.wire import Json

KEYS = ("KEY-OF-ALPHA", "KEY-OF-INTERNAL")
PEOPLE: Json = {
    "reader": ["docs"],
    "surfer": ["web"],
    "tester": ["stage"],
    "planner": ["plan"],
    "stranger": [],
    "admin": ["admin"],
}
ROLES: Json = {
    "docs": [{"servers": ["office"], "resources": ["file:///srv/docs/*"]}],
    "web": [{"resources": ["*"]}, {"resources": ["https://internal.example/*"], "effect": "deny"}],
    "stage": [{"servers": ["office"], "tools": ["query"], "arguments": {"$.database": {"enum": ["stage"]}}}],
    "plan": [{"servers": ["office"], "tools": ["read_file"]}],
    "admin": [{}],
}


def token_of(name: str) -> str:
    return f"token-of-{name}-0123456789abcdef"


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    folder = tmp_path_factory.mktemp("rules")
    tokens = [{"token": token_of(name), "subject": name, "roles": roles} for name, roles in PEOPLE.items()]
    servers = {
        "office": office(folder, approve=["move_file"], direct=True),
        "vault": office(folder, description="Only for admins."),
    }
    auth = [{"kind": "bearer", "tokens": tokens}]
    with serving(folder, servers, http={"auth": auth}, access={"roles": ROLES}) as target:
        warm = McpClient(target, bearer(token_of("admin"))).begin()
        assert "has run" in json.dumps(warm.call("office", "query", {"database": "prod"}))
        yield target


def client_of(target: Target, name: str, path: str = "/mcp") -> McpClient:
    return McpClient(target, bearer(token_of(name)), path=path).begin()


def calls(target: Target, tool: str) -> int:
    """Return how often a tool was called."""
    return sum(each["params"].get("name") == tool for each in target.journal() if each["method"] == "tools/call")


# --- resources -----------------------------------------------------------------------------------------

OUT_OF_DOCS = {
    "a tab in dot segments": "file:///srv/docs/.\t./secret/alpha.key",
    "a line feed in dot segments": "file:///srv/docs/.\n./secret/alpha.key",
    "a carriage return in dot segments": "file:///srv/docs/.\r./secret/alpha.key",
    "a tab behind dot segments": "file:///srv/docs/..\t/secret/alpha.key",
    "a tab before dot segments": "file:///srv/docs/\t../secret/alpha.key",
    "a tab in an escape": "file:///srv/docs/%2\te%2e/secret/alpha.key",
    "an escaped tab": "file:///srv/docs/.%09./secret/alpha.key",
    "a blank before it": " file:///srv/docs/../secret/alpha.key",
    "a control character before it": "\x01file:///srv/docs/../secret/alpha.key",
    "dot segments": "file:///srv/docs/../secret/alpha.key",
    "escaped dot segments": "file:///srv/docs/%2e%2e/secret/alpha.key",
    "doubly escaped dot segments": "file:///srv/docs/%252e%252e/secret/alpha.key",
    "an escaped slash": "file:///srv/docs/..%2fsecret/alpha.key",
    "backslashes": "file:///srv/docs/..\\secret\\alpha.key",
    "an escaped backslash": "file:///srv/docs/..%5csecret/alpha.key",
    "no slashes of a host": "file:/srv/docs/../secret/alpha.key",
    "two slashes": "file:///srv/docs/x//../../../secret/alpha.key",
    "another scheme of its own": "FILE:///srv/docs/../secret/alpha.key",
    "the key itself": "file:///srv/secret/alpha.key",
}
TO_INTERNAL = {
    "an escape in the host": "https://%69nternal.example/x",
    "a doubly escaped host": "https://%2569nternal.example/x",
    "capitals": "https://INTERNAL.example/x",
    "full-width letters": "https://\uff49nternal.example/x",
    "a dot at the end": "https://internal.example./x",
    "the port of the scheme": "https://internal.example:443/x",
    "a user": "https://public.example@internal.example/x",
    "a user and a password": "https://a:b@internal.example/x",
    "one slash": "https:/internal.example/x",
    "no slash": "https:internal.example/x",
    "backslashes": "https:\\\\internal.example\\x",
    "a tab in the host": "https://inter\tnal.example/x",
    "a tab in the scheme": "ht\ttps://internal.example/x",
    "a blank before it": " https://internal.example/x",
    "a full stop of another script": "https://internal\u3002example/x",
    "nothing": "https://internal.example/x",
}


@pytest.mark.parametrize("uri", OUT_OF_DOCS.values(), ids=OUT_OF_DOCS)
def test_a_reader_of_docs_cannot_read_the_key(target: Target, uri: str) -> None:
    _read_nothing(target, "reader", uri)


@pytest.mark.parametrize("uri", TO_INTERNAL.values(), ids=TO_INTERNAL)
def test_who_may_read_all_but_one_host_cannot_read_that(target: Target, uri: str) -> None:
    _read_nothing(target, "surfer", uri)


def test_the_attacks_would_work_on_a_server_that_nothing_protects(target: Target) -> None:
    admin = client_of(target, "admin")
    read = [admin.request("resources/read", {"uri": uri}) for uri in (*OUT_OF_DOCS.values(), *TO_INTERNAL.values())]
    found = [any(key in json.dumps(each) for key in KEYS) for each in read]
    assert found.count(True) > 25


@pytest.mark.parametrize(
    ("name", "uri"), [("reader", "file:///srv/docs/readme.txt"), ("surfer", "https://public.example/x")]
)
def test_what_is_allowed_is_read(target: Target, name: str, uri: str) -> None:
    answer = client_of(target, name).request("resources/read", {"uri": uri})
    assert "the " in answer["result"]["contents"][0]["text"]


@pytest.mark.parametrize("method", ["resources/subscribe", "resources/unsubscribe"])
def test_nobody_subscribes_to_what_they_cannot_read(target: Target, method: str) -> None:
    uri = OUT_OF_DOCS["a tab in dot segments"]
    client_of(target, "reader").request(method, {"uri": uri})
    assert [each for each in target.journal() if each["method"] == method] == []


def test_a_check_of_a_rule_says_what_the_running_program_decides(target: Target) -> None:
    escape, tab = TO_INTERNAL["an escape in the host"], OUT_OF_DOCS["a tab in dot segments"]
    for name, role, uri in (("reader", "docs", tab), ("surfer", "web", escape)):
        words = ("--as", name, "--role", role, "--group", "office", "--resource", uri)
        assert target.run("access", "check", *words).returncode == 1


def _read_nothing(target: Target, name: str, uri: str) -> None:
    client = client_of(target, name)
    before = len(target.journal())
    answers = [client.request("resources/read", {"uri": uri})]
    alone = client_of(target, name, "/mcp/office")
    answers.append(alone.request("resources/read", {"uri": uri}))
    assert not [key for key in KEYS if key in json.dumps(answers)]
    assert all("error" in each for each in answers)
    assert target.journal()[before:] == []


# --- arguments -----------------------------------------------------------------------------------------

PAST_STAGE = {
    "another case first": b'{"DATABASE":"prod","database":"stage"}',
    "another case last": b'{"database":"stage","DATABASE":"prod"}',
    "twice": b'{"database":"stage","database":"prod"}',
    "an escape in the key": b'{"database":"stage","d\\u0061tabase":"prod"}',
    "full-width letters": '{"database":"stage","\uff44atabase":"prod"}'.encode(),
    "another case below": b'{"database":"stage","options":{"Key":1,"key":2}}',
    "another case only": b'{"DATABASE":"prod"}',
    "a list": b'{"database":["stage","prod"]}',
    "a blank behind": b'{"database":"prod "}',
    "none": b"{}",
    "another value": b'{"database":"prod"}',
}


@pytest.mark.parametrize("way", ["args", "args as text", "the group alone", "the qualified name"])
@pytest.mark.parametrize("args", PAST_STAGE.values(), ids=PAST_STAGE)
def test_who_may_query_stage_cannot_query_another_database(target: Target, args: bytes, way: str) -> None:
    client = client_of(target, "tester", "/mcp/office" if way == "the group alone" else "/mcp")
    before = calls(target, "query")
    answer = client.post(b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":%b}' % _params_of(way, args))
    sent = [each["params"]["arguments"] for each in target.journal()[-1:] if calls(target, "query") > before]
    assert sent in ([], [{"database": "stage"}]), "a server was asked for something else"
    assert answer.status in (200, 400)
    assert "has run" not in answer.text


def test_what_stage_allows_is_called(target: Target) -> None:
    assert "has run" in json.dumps(client_of(target, "tester").call("office", "query", {"database": "stage"}))


def _params_of(way: str, args: bytes) -> bytes:
    match way:
        case "args":
            return b'{"name":"call_dynamic_tool","arguments":{"group":"office","name":"query","args":%b}}' % args
        case "args as text":
            text = json.dumps(args.decode()).encode()
            return b'{"name":"call_dynamic_tool","arguments":{"group":"office","name":"query","args":%b}}' % text
        case "the group alone":
            return b'{"name":"query","arguments":%b}' % args
        case _:
            return b'{"name":"office__query","arguments":%b}' % args


# --- names ---------------------------------------------------------------------------------------------

NAMES = [
    "move_file",
    "Move_File",
    "MOVE_FILE",
    "move-file",
    "move_file ",
    "move_file\u200b",
    "move_file\x00",
    "\uff4dove_file",
    "office__move_file",
    "office/move_file",
    "office.move_file",
    "delete_everything",
    "read_file/../move_file",
]


@pytest.mark.parametrize("who", ["stranger", "planner", "tester"])
def test_no_way_to_write_a_name_calls_a_tool_that_is_not_theirs(target: Target, who: str) -> None:
    before = len(target.journal())
    client = client_of(target, who)
    grouped = itertools.product(("office", "Office", "office ", "vault", ""), NAMES)
    with ThreadPoolExecutor(32) as threads:  # a name that is not known has the lists read again, once a second
        answers = [*threads.map(lambda each: client.call(*each), grouped)]
        plain = [*NAMES, *(f"office__{name}" for name in NAMES)]
        answers += threads.map(lambda name: client.request("tools/call", {"name": name, "arguments": {}}), plain)
    assert all("error" in each or each["result"]["isError"] for each in answers)
    assert target.journal()[before:] == []


@pytest.mark.parametrize("method", ["tools/list", "resources/list", "resources/templates/list", "prompts/list"])
def test_a_stranger_is_told_of_nothing(target: Target, method: str) -> None:
    told = json.dumps(client_of(target, "stranger").request(method))
    for word in ("office", "vault", "move_file", "alpha", "srv"):
        assert word not in told


@pytest.mark.parametrize("group", ["office", "vault", "none"])
def test_a_group_that_is_not_theirs_is_answered_like_none(target: Target, group: str) -> None:
    answers = [client_of(target, "stranger").call(each, "query") for each in (group, "absent")]
    texts = [
        json.dumps(each["result"]["content"]).replace(name, "G")
        for each, name in zip(answers, (group, "absent"), strict=True)
    ]
    assert texts[0] == texts[1]


# --- approvals -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("who", ["stranger", "planner", "reader"])
def test_approve_shows_and_queues_nothing_for_those_who_may_not_use_a_tool(target: Target, who: str) -> None:
    before = calls(target, "move_file")
    client = client_of(target, who)
    assert "move_file" not in json.dumps(client.request("tools/list"))
    answer = client.call("office", "move_file", {"to": "elsewhere"})
    assert answer["result"]["isError"]
    assert "approv" not in json.dumps(answer)
    assert json.loads(target.run("approve", "list", "--json").stdout) == []
    assert calls(target, "move_file") == before


def test_what_waits_for_a_person_is_not_sent_and_nobody_over_http_approves_it(target: Target) -> None:
    before = calls(target, "move_file")
    admin = client_of(target, "admin")
    with admin.send_call("office", "move_file") as wire:
        while not (waiting := json.loads(target.run("approve", "list", "--json").stdout)):
            pass
        assert calls(target, "move_file") == before
        assert target.command("approve", "deny", waiting[0]["id"]).returncode == 0
        answer = wire.read()
    assert answer is not None
    assert answer.json["result"]["isError"]
    assert calls(target, "move_file") == before
