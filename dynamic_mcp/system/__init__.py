"""The machine below: paths, pipes, files, and text for people."""
