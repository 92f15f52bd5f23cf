"""What the last import read and wrote for each output: just enough to tell who has changed what since then.

Values are kept as keyed hashes, so that secrets are not stored a second time.
"""

from __future__ import annotations

import hmac
import json
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from dynamic_mcp.importer.formats.tree import NOTHING
from dynamic_mcp.importer.model import ForeignServer
from dynamic_mcp.system.file_store import DictCodec, FileStore, StoreError
from dynamic_mcp.system.text import os_reason

log = logging.getLogger(__name__)

_CODEC = DictCodec(1)

# the hashes of a value: a tree of them for an object, None for no value
Fingerprint = Mapping[str, "Fingerprint"] | str | None
Key = tuple[str, str, str, str]  # tool, scope, file, and the server's name in it


@dataclass(frozen=True)
class Record:
    """One server: its name in the output, and fingerprints of what its source had and of what was written."""

    name: str
    source: Fingerprint
    output: Fingerprint


@dataclass
class Memory:
    """The records of one output, by source."""

    salt: str
    records: dict[Key, Record] = field(default_factory=dict)

    def was_on(self, server: ForeignServer) -> bool:
        """Tell whether a server was enabled at its source when it was imported."""
        record = self.records.get(key_of(server))
        return record is not None and isinstance(record.source, Mapping) and "enabled" not in record.source

    def fingerprint(self, value: object) -> Fingerprint:
        """Return the hashes of a value."""
        if value is NOTHING:
            return None
        if isinstance(value, Mapping):
            return {str(key): self.fingerprint(inner) for key, inner in value.items()}
        data = json.dumps(value, sort_keys=True).encode("utf-8", "surrogatepass")
        return hmac.new(self.salt.encode(), data, sha256).hexdigest()[:32]


def key_of(server: ForeignServer) -> Key:
    """Return the key of a server's record: where the server was found."""
    return (server.source.tool, server.source.scope.value, str(server.source.file), server.name)


class MemoryStore:
    """The memories in one folder; `salt` keys the hashes of new ones."""

    def __init__(self, folder: Path, salt: str) -> None:
        self._folder = folder
        self._salt = salt

    def load(self, output: Path) -> Memory:
        """Return the memory of an output; an empty one if there is none or it cannot be read."""
        store = FileStore(self.file_of(output), _MemoryCodec(output))
        try:
            memory = store.load()
        except (OSError, StoreError) as exc:  # it is replaced once something is imported, which can be undone
            why = os_reason(exc) if isinstance(exc, OSError) else exc
            log.warning("`%s` cannot be read, so more may be asked: %s", store.file, why)
            memory = None
        return memory or Memory(self._salt)

    def file_of(self, output: Path) -> Path:
        """Return the file with the memory of an output."""
        return self._folder / f"{sha256(os.fsencode(output.absolute())).hexdigest()[:40]}.json"


def encode_memory(output: Path, memory: Memory) -> bytes:
    """Return a memory as the bytes of its file."""
    return _MemoryCodec(output).encode(memory)


class _MemoryCodec:
    def __init__(self, output: Path) -> None:
        self._output = output

    def encode(self, value: Memory) -> bytes:
        servers = [
            {"from": list(key), "name": record.name, "read": record.source, "written": record.output}
            for key, record in value.records.items()
        ]
        return _CODEC.encode({"output": str(self._output), "salt": value.salt, "servers": servers})

    def decode(self, data: bytes) -> Memory:
        document = _CODEC.decode(data)
        records = {
            (str(tool), str(scope), str(file), str(name)): Record(str(each["name"]), each["read"], each["written"])
            for each in document["servers"]
            for tool, scope, file, name in [each["from"]]
        }
        return Memory(str(document["salt"]), records)
