"""Limits on what a client may send, and on how long it may take."""

# The minimum of widely used servers; browsers and MCP clients send about 20 fields and 2 KiB.
MAX_HEAD_BYTES = 64 << 10
MAX_FIELDS = 100

# How long a head may take from its first byte, and the time in which this much of a body, or its rest, must arrive.
HEAD_WITHIN_S = 10.0
BODY_PROGRESS_WITHIN_S = 30.0
BODY_PROGRESS_BYTES = 4 << 10
# A connection without requests is closed; one whose client does not read its answers is aborted.
IDLE_FOR_S = 75.0
UNREAD_FOR_S = 60.0
# How long a client may wait for its answers after closing its side; a vanished client looks the same.
HALF_OPEN_FOR_S = 10.0

# Input after the last answer is read and discarded, so that no reset overtakes the answer.
LINGER_FOR_S = 2.0
LINGER_BYTES = 32 << 20
# An unwanted body is read to its end if no more than this is left of it.
DRAIN_BYTES = 256 << 10
# Connections of a server, unless `max_sessions` needs more, and of one address; IPv6 networks (/64) count as one.
CONNECTIONS = 4096
CONNECTIONS_OF_ADDRESS = 1024
# The memory limits of all unfinished bodies: of authenticated senders, and of others. The first bytes of each body of
# an authenticated sender are not counted.
COLLECTED_BYTES = 256 << 20
COLLECTED_UNKNOWN_BYTES = 16 << 20
UNCOUNTED_BYTES = 64 << 10
# How much is read ahead while a request is being answered.
AHEAD_BYTES = 64 << 10
# Requests of one connection that are started in one turn.
REQUESTS_A_TURN = 32
