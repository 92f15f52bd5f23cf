"""Every metric. The documents and the dashboard are checked against this list.

The first four come from OpenTelemetry's conventions for MCP, with the names of its Prometheus exporter.
"""

from __future__ import annotations

from dynamic_mcp.features.metrics.families import Definition, Labels, MetricKind
from dynamic_mcp.observe import conventions

METHOD = "mcp_method_name"
TOOL = "gen_ai_tool_name"
PROMPT = "gen_ai_prompt_name"
GROUP = "dynamic_mcp_group"
ERROR = "error_type"
TRANSPORT = "network_transport"

_NAMES = frozenset((TOOL, PROMPT, GROUP))
_OPERATION = (METHOD, TOOL, PROMPT, GROUP, ERROR)
BUCKETS = tuple(map(float, conventions.BUCKETS))
_SEARCH_BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)


def _histogram(name: str, description: str, labels: Labels, buckets: tuple[float, ...] = BUCKETS) -> Definition:
    return Definition(name, MetricKind.HISTOGRAM, description, labels, _NAMES, buckets)


def _counter(name: str, description: str, *labels: str) -> Definition:
    return Definition(name, MetricKind.COUNTER, description, labels, _NAMES)


def _gauge(name: str, description: str, *labels: str) -> Definition:
    return Definition(name, MetricKind.GAUGE, description, labels, _NAMES)


# --- requests --------------------------------------------------------------------------------------------------

SERVER_OPERATIONS = _histogram(
    "mcp_server_operation_duration_seconds",
    "How long requests of clients took, from their arrival to their answer.",
    _OPERATION,
)
CLIENT_OPERATIONS = _histogram(
    "mcp_client_operation_duration_seconds",
    "How long requests to servers took because of those, with their wait for a connection and a free place.",
    _OPERATION,
)
SERVER_SESSIONS = _histogram(
    "mcp_server_session_duration_seconds",
    "How long clients were connected; not of clients of 2026-07-28, which have no sessions.",
    (TRANSPORT,),
)
CLIENT_SESSIONS = _histogram("mcp_client_session_duration_seconds", "How long servers were connected.", (GROUP,))
REQUEST_BYTES = _counter("dynamic_mcp_request_bytes_total", "Bytes of the params of clients' requests.", GROUP)
RESULT_BYTES = _counter("dynamic_mcp_result_bytes_total", "Bytes of the results that clients were given.", GROUP)
CACHE_HITS = _counter("dynamic_mcp_cache_hits_total", "Requests that a cached result answered.", GROUP)
SEARCHES = _histogram(
    "dynamic_mcp_search_duration_seconds",
    "How long calls of `get_dynamic_tools` took, those included that wait for a server to list its tools.",
    (ERROR,),
    _SEARCH_BUCKETS,
)
DECISIONS = _counter(
    "dynamic_mcp_decisions_total",
    "Decisions of the access rules about requests: `allow`, `ask` or `deny`. Hidden targets are not counted.",
    "decision",
)
APPROVALS = _counter(
    "dynamic_mcp_approvals_total",
    "Questions to a person, by outcome: `allowed`, `denied`, `expired`, `dropped` (by a reload or at the end) or"
    " `withdrawn` (by the client).",
    "outcome",
)
APPROVALS_PENDING = _gauge(
    "dynamic_mcp_approvals_pending", "Questions that wait for a person now; absent until a rule asks."
)
STORE_UP = _gauge(
    "dynamic_mcp_shared_store_up", "Whether the store that replicas share can be used; absent without one."
)
STORE_OPERATIONS = _counter(
    "dynamic_mcp_shared_store_operations_total",
    "Commands for the store that replicas share: sent, those of them that failed, and refused while it is down.",
    "outcome",
)
REPLICAS = _gauge(
    "dynamic_mcp_replicas", "Other processes of this service, known and unreachable; absent without any.", "state"
)
FORWARDED = _counter(
    "dynamic_mcp_forwarded_requests_total",
    "Requests for sessions of other replicas: passed on, those of them that got no answer, and turned away since too"
    " much was waiting.",
    "outcome",
)
FORWARDED_IN_FLIGHT = _gauge(
    "dynamic_mcp_forwarded_requests_in_flight", "Requests that were passed on to other replicas, and are unanswered."
)
REFUSED_PEERS = _counter(
    "dynamic_mcp_refused_peer_requests_total", "Requests in the name of a replica that were refused: by other keys."
)
AUDIT_FAILURES = _counter("dynamic_mcp_audit_failures_total", "How often the audit log could not be written.")

# --- clients and servers ---------------------------------------------------------------------------------------

SESSIONS = _gauge(
    "dynamic_mcp_sessions",
    "Connected clients by transport (`stdio`, `socket`, `http`, `sse`) and era (`legacy`, or `modern` from 2026-07-28"
    " on).",
    "transport",
    "era",
)
UPSTREAM_UP = _gauge(
    "dynamic_mcp_upstream_up",
    "0 while a server cannot be used: it failed to start or to connect, or needs a login. 1 otherwise, also while"
    " it is not connected because nobody needs it.",
    GROUP,
)
INSTANCES = _gauge("dynamic_mcp_instances", "Running copies of a server by state.", GROUP, "state")
CONNECTS = _counter("dynamic_mcp_upstream_connects_total", "Connections to a server that were opened.", GROUP)
CONNECT_FAILURES = _counter(
    "dynamic_mcp_upstream_connect_failures_total", "Attempts to start or reach a server that failed.", GROUP
)
LOSSES = _counter(
    "dynamic_mcp_upstream_losses_total",
    "Connections that ended without being closed by us: the server crashed, hung or hung up.",
    GROUP,
)
RESTARTS = _counter(
    "dynamic_mcp_upstream_restarts_total", "Connections that were opened in place of lost ones.", GROUP
)
IN_FLIGHT = _gauge("dynamic_mcp_upstream_requests_in_flight", "Requests that a server is working on.", GROUP)
QUEUED = _gauge("dynamic_mcp_upstream_requests_queued", "Requests that wait for a free place at a server.", GROUP)
TOOLS = _gauge("dynamic_mcp_tools", "Tools that a server has, before filters; absent while not known.", GROUP)
STORED_RESULTS = _gauge("dynamic_mcp_stored_results", "Results that were too long and are kept to be read in parts.")
STORED_CHARACTERS = _gauge("dynamic_mcp_stored_result_characters", "Characters of the results that are kept.")

# --- the program -----------------------------------------------------------------------------------------------

RELOADS = _counter(
    "dynamic_mcp_config_reloads_total",
    "Changed configs that were read, by outcome: `success` or `failure`.",
    "outcome",
)
LAST_RELOAD = _gauge(
    "dynamic_mcp_config_last_reload_success_timestamp_seconds", "When the config in use was read, in Unix time."
)
BUILD = _gauge("dynamic_mcp_build_info", "Always 1; the versions are labels.", "version", "python_version")
CPU = _counter("process_cpu_seconds_total", "Processor time of the proxy, without its servers.")
RESIDENT_MEMORY = _gauge("process_resident_memory_bytes", "Memory of the proxy, without its servers. Linux only.")
VIRTUAL_MEMORY = _gauge("process_virtual_memory_bytes", "Virtual memory of the proxy. Linux only.")
START_TIME = _gauge("process_start_time_seconds", "When the proxy started, in Unix time. Linux only.")
OPEN_DESCRIPTORS = _gauge("process_open_fds", "Open file descriptors of the proxy. Linux only.")
MAX_DESCRIPTORS = _gauge("process_max_fds", "How many file descriptors the proxy may open. Not on Windows.")

ALL: tuple[Definition, ...] = tuple(each for each in vars().copy().values() if isinstance(each, Definition))
