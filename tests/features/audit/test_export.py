"""`audit export`: what the standards require is there, and foreign text harms neither a spreadsheet nor a parser."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from dynamic_mcp.features.audit import chain
from dynamic_mcp.features.audit.chain import AuditLine
from dynamic_mcp.features.audit.days import StoredLine, parse_stored
from dynamic_mcp.features.audit.export import COLUMNS, export
from tests.examples import examples
from tests.features.audit.written import calls, line

FULL = line(
    id="full",
    subject="ann@example.com",
    issuer="https://idp.example",
    roles=("dev", "reader"),
    client="cursor",
    address="10.1.2.3:4567",
    session="s1",
    request="7",
    trace="4bf92f3577b34da6a3ce929d0e0e4736",
    group="github",
    kind="tool",
    name="delete_repo",
    access="write",
    decision="ask",
    rule="roles.dev[1]",
    approval="7K3D",
    approved_by="ann",
    arguments=Raw(b'{"names":["repo"],"digest":"hmac:00"}'),
    result_bytes=321,
    ms=12.25,
    upstream_version="1.2.3",
)
LINES = [
    FULL,
    *calls(10),
    line("read", id="r", access="read", name="file:///etc/motd", kind="resource", address="[::1]:8080"),
    line("call", id="d", outcome="denied", decision="deny", rule="default", error="AccessDenied", address="::1"),
    line("call", id="p", outcome="pending", decision="ask", error="ApprovalPending", address="unix"),
    line("call", id="c", outcome="cancelled"),
    line("call", id="u", outcome="unknown", error="interrupted"),
    line("call", id="e", outcome="failure", error="-32602"),
    line("auth.denied", id="a", outcome="denied", address="not an address", detail=Raw(b'{"why":"expired"}')),
    line("config.loaded", id="g", detail=Raw(b'{"hash":"00"}')),
]


def store(each: AuditLine) -> StoredLine:
    return parse_stored(chain.finish(chain.encode(each))[0])


def exported(form: str, *lines: AuditLine) -> list[str]:
    return list(export(map(store, lines), form, version="1.2"))


# --- OCSF --------------------------------------------------------------------------------------------------------

OCSF_VALUES = {
    "activity_id": {0, 1, 2, 3, 4, 99},
    "severity_id": {0, 1, 2, 3, 4, 5, 6, 99},
    "status_id": {0, 1, 2, 99},
    "action_id": {0, 1, 2, 3, 4, 99},
    "disposition_id": {*range(28), 99},
}


@pytest.mark.parametrize("each", LINES, ids=lambda each: each.id)
def test_an_event_of_ocsf_has_what_its_class_requires(each: AuditLine) -> None:
    (text,) = exported("ocsf", each)
    event: dict[str, Any] = json.loads(text)

    assert (event["category_uid"], event["class_uid"]) == (6, 6003)
    assert event["type_uid"] == 6003 * 100 + event["activity_id"]
    for name, values in OCSF_VALUES.items():
        assert event.get(name, 0) in values
    assert {"severity_id", "status_id", "activity_id"} <= event.keys()
    assert event["time"] == 1795435200000 + (int(each.at[17:19]) * 1000)
    assert event["metadata"]["version"] == "1.6.0"
    assert event["metadata"]["product"]["name"]
    assert event["api"]["operation"]
    assert {"process", "user", "session", "app_name"} & event["actor"].keys()
    assert {"ip", "name", "svc_name"} & event["src_endpoint"].keys()
    assert all(event["api"].get("request", {"uid": 1}).values())
    is_decided = bool({"action_id", "disposition_id", "policy", "authorizations"} & event.keys())
    assert is_decided == ("security_control" in event["metadata"].get("profiles", []))
    assert not [name for name, value in event.items() if value in (None, "", [], {})]


def test_who_did_what_by_which_rule_is_where_ocsf_has_it() -> None:
    event = json.loads(exported("ocsf", FULL)[0])

    assert event["actor"]["user"]["uid"] == "ann@example.com"
    assert event["actor"]["user"]["groups"] == [{"name": "dev"}, {"name": "reader"}]
    assert event["src_endpoint"] == {"ip": "10.1.2.3", "port": 4567, "svc_name": "cursor"}
    assert (event["api"]["operation"], event["api"]["service"]["name"]) == ("delete_repo", "github")
    assert (event["action"], event["disposition"]) == ("Allowed", "Approved")
    assert event["authorizations"] == [{"decision": "ask", "policy": {"name": "roles.dev[1]"}}]
    assert (event["status"], event["duration"]) == ("Success", 12)
    assert event["metadata"]["uid"] == "full"
    assert event["unmapped"]["approved_by"] == "ann"
    assert event["unmapped"]["arguments"] == {"names": ["repo"], "digest": "hmac:00"}
    assert event["unmapped"]["result_bytes"] == 321


def test_what_was_denied_is_blocked() -> None:
    event = json.loads(exported("ocsf", LINES[12])[0])
    assert (event["status"], event["action"], event["disposition"]) == ("Failure", "Denied", "Blocked")


@pytest.mark.parametrize(
    ("address", "endpoint"),
    [
        ("", {"name": "localhost"}),
        ("::1", {"ip": "::1"}),
        ("[2001:db8::1]:443", {"ip": "2001:db8::1", "port": 443}),
        ("192.0.2.1", {"ip": "192.0.2.1"}),
        ("unix:/run/x", {"name": "unix:/run/x"}),
    ],
)
def test_an_address_is_one_where_it_can_be_read(address: str, endpoint: object) -> None:
    assert json.loads(exported("ocsf", line(address=address))[0])["src_endpoint"] == endpoint


# --- CSV ---------------------------------------------------------------------------------------------------------


def test_each_line_is_a_row_under_the_names_of_its_members() -> None:
    rows = list(csv.DictReader(exported("csv", *LINES)))

    assert len(rows) == len(LINES)
    assert list(rows[0]) == list(COLUMNS)
    assert (rows[0]["roles"], rows[0]["ms"]) == ("dev reader", "12.25")
    assert json.loads(rows[0]["arguments"])["names"] == ["repo"]


# What spreadsheets take for the beginning of a formula, with the wide forms of East Asian keyboards.
FORMULAS = "=+-@\t\r\uff1d\uff0b\uff0d\uff20"


@examples(100)
@given(st.text(), st.sampled_from(FORMULAS))
def test_no_cell_is_a_formula_or_has_a_line_break(text: str, first: str) -> None:
    hostile = line(name=first + text, subject=f" {first}{text}", group=text)
    titles, *rows = exported("csv", hostile)

    (row,) = rows
    assert row.isprintable()
    (cells,) = csv.reader(io.StringIO(row))
    assert len(cells) == len(titles.split(","))
    assert not [cell for cell in cells if cell.lstrip().startswith(tuple(FORMULAS))]


# --- as they are -------------------------------------------------------------------------------------------------


def test_lines_as_they_are_keep_every_byte_and_damaged_ones_are_kept_there_only() -> None:
    stored = [store(FULL), parse_stored(b"nonsense\n")]

    def texts(form: str) -> list[str]:
        return list(export(stored, form, version="1"))

    assert texts("jsonl") == [stored[0].data.decode(), "nonsense"]
    assert [len(texts(form)) for form in ("csv", "ocsf")] == [2, 1]
