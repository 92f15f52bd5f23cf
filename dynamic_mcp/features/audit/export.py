"""Lines of the audit log in the forms that other programs read: CSV, OCSF, CloudEvents, or as they are."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec
from msgspec import Raw, structs

from dynamic_mcp.features.audit.line import AuditLine
from dynamic_mcp.features.audit.ocsf import to_ocsf
from dynamic_mcp.features.audit.reader import StoredLine
from dynamic_mcp.system.text import defuse_formula, escape

FORMS = ("csv", "ocsf", "cloudevents", "jsonl")
COLUMNS = tuple(field.name for field in structs.fields(AuditLine))

_encode = msgspec.json.Encoder().encode


def export(lines: Iterable[StoredLine], form: str, *, version: str, host: str) -> Iterator[str]:
    """Yield one line of text for each line of the log, in one of the `FORMS`; CSV has a line of titles before.

    `version` is that of this program, and `host` the machine that the log is of. Damaged lines are left out, except
    from `jsonl`, which has each line as it is.
    """
    forms: Mapping[str, Callable[[StoredLine], str]] = {
        "csv": lambda stored: format_row(_cells(stored.known)),
        "ocsf": lambda stored: _text(to_ocsf(stored.known, version=version)),
        "cloudevents": lambda stored: _text(_to_cloudevent(stored, host)),
        "jsonl": lambda stored: stored.data.decode(errors="backslashreplace"),
    }
    if form == "csv":
        yield format_row(COLUMNS)
    for each in lines:
        if each.line is not None or form == "jsonl":
            yield forms[form](each)


def format_row(cells: Iterable[str]) -> str:
    """Return one row of CSV without its end. A cell has no line breaks and is no formula for a spreadsheet."""
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(defuse_formula(escape(cell)) for cell in cells)
    return text.getvalue()


def _cells(line: AuditLine) -> Iterator[str]:
    for column in COLUMNS:
        value = getattr(line, column)
        if isinstance(value, Raw):
            yield bytes(value).decode(errors="backslashreplace")
        else:
            yield " ".join(value) if isinstance(value, tuple) else str(value)


def _to_cloudevent(stored: StoredLine, host: str) -> dict[str, object]:
    """Return a line as an event of CloudEvents 1.0.2, in its JSON format; the line itself is the data."""
    line = stored.known
    subject = f"{line.group}/{line.name}" if line.group else line.name
    event: dict[str, object] = {
        "specversion": "1.0",
        "id": line.id or line.hash,
        "source": f"//{host}/dynamic-mcp",
        "type": f"dynamic-mcp.audit.{line.event or 'unknown'}",
        "time": line.at,
        "datacontenttype": "application/json",
        "data": Raw(stored.data),
    }
    return event | ({"subject": subject} if subject else {})


def _text(value: object) -> str:
    return _encode(value).decode()
