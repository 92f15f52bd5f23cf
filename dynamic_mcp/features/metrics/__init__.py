"""Metrics of a proxy for Prometheus."""
