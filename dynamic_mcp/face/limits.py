"""The limits that every face sets for its client."""

from __future__ import annotations

# Stop reading from a client that has more unread answers than this.
UNREAD_BYTES = 4 << 20
# Drop log messages and progress beyond this: an answer must not queue behind a flood of them.
FLOOD_BYTES = 256 << 10
# How long requests in flight may take to finish after the client's input has ended.
FINISH_WITHIN_S = 4.0
