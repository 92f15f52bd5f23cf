"""Access to the machine: paths, pipes, files, and text for terminals."""
