"""The ways in for clients. A face moves messages and makes no decisions about servers."""
