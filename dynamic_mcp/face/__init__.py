"""The ways in. A face decides nothing: it reads and writes frames."""
