"""What every face allows its client."""

from __future__ import annotations

# Answers that a client has not read yet, beyond which no more is read from it.
UNREAD_BYTES = 4 << 20
# Beyond this, log messages and progress are dropped: an answer must not queue behind a flood of them.
FLOOD_BYTES = 256 << 10
# How long requests in flight may take to finish once the client's input has ended.
FINISH_WITHIN_S = 4.0
