"""Command line programs as upstreams: their commands are tools."""
