"""How much a client may send, and how long it may take."""

# What servers in wide use take at least; browsers and MCP clients send about 20 fields and 2 KiB.
MAX_HEAD_BYTES = 64 << 10
MAX_FIELDS = 100

# How long a head may take from its first byte, and in which time so much of a body, or the rest of it, must come.
HEAD_WITHIN_S = 10.0
BODY_PROGRESS_WITHIN_S = 30.0
BODY_PROGRESS_BYTES = 4 << 10
# A connection on which nothing is asked is closed; one whose client does not read what it asked for is aborted.
IDLE_FOR_S = 75.0
UNREAD_FOR_S = 60.0
# A client that sends nothing more may wait for its answers for this long; one that has vanished looks the same.
HALF_OPEN_FOR_S = 10.0

# What a client goes on sending after its last answer is read and forgotten, so that no reset overtakes the answer.
LINGER_FOR_S = 2.0
LINGER_BYTES = 32 << 20
# A body that nobody wants is read to its end if no more than this is left of it.
DRAIN_BYTES = 256 << 10
# Connections of a server, unless `max_sessions` needs more, and of one address; IPv6 networks (/64) count as one.
CONNECTIONS = 4096
CONNECTIONS_OF_ADDRESS = 1024
# What unfinished bodies may have in memory together: of known senders, and of those that are not known yet. The first
# bytes of each body of a known sender are not counted.
COLLECTED_BYTES = 256 << 20
COLLECTED_UNKNOWN_BYTES = 16 << 20
UNCOUNTED_BYTES = 64 << 10
# What is read ahead while a request is being answered.
AHEAD_BYTES = 64 << 10
# Requests of one connection that are begun before the others have their turn.
REQUESTS_A_TURN = 32
