"""Shared by both sides of logins: safe requests to foreign servers, OAuth's code flow, and signed tokens."""
