"""Spans and metrics of a proxy, sent by OpenTelemetry."""
