"""The tests of the program."""

import os

# They look at programs through /proc, which is forbidden without this, except to root.
os.environ.setdefault("DYNAMIC_MCP_TRACEABLE", "1")
