"""What the last import read and wrote, for each output file: enough to tell who changed what since, and nothing more.

Values are kept as keyed hashes, so that no secret gets a second place.
"""

from __future__ import annotations

import hmac
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from dynamic_mcp.importer.found import Found
from dynamic_mcp.importer.tree import NOTHING
from dynamic_mcp.system.file_reader import read_bytes

FORM = 1

Print = Mapping[str, "Print"] | str | None  # the hashes of a value: a tree of them for an object, None for nothing
Key = tuple[str, str, str, str]  # tool, scope, file, and the server's name there


@dataclass(frozen=True)
class Record:
    """One server: the name that it has in the output, what its source said, and what was written of that."""

    name: str
    read: Print
    written: Print


@dataclass
class Memory:
    """The records of one output, by source."""

    salt: str
    records: dict[Key, Record] = field(default_factory=dict)

    def was_on(self, found: Found) -> bool:
        """Tell whether a server was imported, and its source had not switched it off then."""
        record = self.records.get(key_of(found))
        return record is not None and isinstance(record.read, Mapping) and "enabled" not in record.read

    def print_of(self, value: object) -> Print:
        """Return the hashes of a value."""
        if value is NOTHING:
            return None
        if isinstance(value, Mapping):
            return {str(key): self.print_of(inner) for key, inner in value.items()}
        data = json.dumps(value, sort_keys=True).encode("utf-8", "surrogatepass")
        return hmac.new(self.salt.encode(), data, sha256).hexdigest()[:32]


def key_of(found: Found) -> Key:
    """Return where a server was found, as the key of its record."""
    return (found.source.tool, found.source.scope.value, str(found.source.file), found.name)


class Memories:
    """The memories in one folder; `salt` keys those that are new."""

    def __init__(self, folder: Path, salt: str) -> None:
        self._folder = folder
        self._salt = salt

    def load(self, output: Path) -> Memory:
        """Return what is remembered of an output; nothing where nothing is, or nothing that can be read."""
        try:
            document = json.loads(read_bytes(self.file(output)))
            records = {
                (str(tool), str(scope), str(file), str(name)): Record(
                    str(each["name"]), each["read"], each["written"]
                )
                for each in document["servers"]
                for tool, scope, file, name in [each["from"]]
            }
            return Memory(str(document["salt"]), records) if document["form"] == FORM else Memory(self._salt)
        except (OSError, ValueError, KeyError, TypeError):
            return Memory(self._salt)  # an import without a memory asks more, and loses nothing

    def file(self, output: Path) -> Path:
        """Return where an output's memory is kept."""
        return self._folder / f"{sha256(os.fsencode(output.absolute())).hexdigest()[:40]}.json"


def written(output: Path, memory: Memory) -> bytes:
    """Return a memory in the form that it is kept in."""
    servers = [
        {"from": list(key), "name": record.name, "read": record.read, "written": record.written}
        for key, record in memory.records.items()
    ]
    document = {"form": FORM, "output": str(output), "salt": memory.salt, "servers": servers}
    return json.dumps(document, indent=1).encode()


def _record(fields: Mapping[str, Any]) -> tuple[Key, Record]:  # Any: JSON that we wrote
    tool, scope, file, name = map(str, fields["from"])
    return (tool, scope, file, name), Record(str(fields["name"]), fields["read"], fields["written"])
