"""Metrics of a proxy, to be read by Prometheus."""
