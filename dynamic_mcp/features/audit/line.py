"""One line of the audit log. Its members are in this order; empty ones are left out.

Lines of other versions are read too: unknown members are ignored, missing ones have a default. JSON that is absent
must be `ABSENT` itself: msgspec leaves out what is the default, not what equals it.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Raw, Struct

from dynamic_mcp.mcp.wire import ABSENT

VERSION = 1

Outcome = Literal["success", "failure", "denied", "pending", "cancelled", "unknown"]


class AuditLine(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What happened, who caused it, what was decided, and what came of it.

    `n` numbers the lines of a day from 1, and `at` is RFC 3339 with milliseconds, in UTC. `event` is `call`, `read`,
    `prompt`, `list`, or another name such as `auth.denied` or `approval.decided`, whose details are in `detail`.
    `session`, `request` and `trace` are ids; `session` is not the credential of a session. `group`, `kind` and `name`
    say what was used, by the server's own name, or by its URI; `shown` is the name that the client wrote, if it is
    another. `arguments` are as the settings say: `names` and a keyed `digest`, or the arguments themselves.
    `result_bytes` is the size of the result or the error, `cached` says that it was kept before. `error` is the code
    of a JSON-RPC error, `tool_error` for a result that says so, or the name of our own error. `ms` is the time from
    request to answer, `wait_ms` what of it was spent waiting for a person. `definition` is the hash of the tool's
    definition.

    `prev` is the hash of the line before, also across files, and `hash` the SHA-256 of all of this line before it.
    """

    v: int
    n: int = 0
    at: str = ""
    id: str = ""
    event: str = ""
    outcome: Outcome = "success"
    issuer: str = ""
    subject: str = ""
    roles: tuple[str, ...] = ()
    auth: str = ""
    client: str = ""
    client_version: str = ""
    address: str = ""
    session: str = ""
    request: str = ""
    trace: str = ""
    config: str = ""
    pid: int = 0
    group: str = ""
    kind: str = ""
    name: str = ""
    shown: str = ""
    access: str = ""
    decision: str = ""
    rule: str = ""
    approval: str = ""
    approved_by: str = ""
    arguments: Raw = ABSENT
    original_arguments: Raw = ABSENT
    result_bytes: int = 0
    cached: bool = False
    error: str = ""
    ms: float = 0.0
    wait_ms: float = 0.0
    upstream: str = ""
    upstream_version: str = ""
    definition: str = ""
    detail: Raw = ABSENT
    prev: str = ""
    hash: str = ""
