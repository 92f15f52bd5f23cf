"""Links to upstream servers: one live connection each, over stdio, HTTP or a command line program."""
