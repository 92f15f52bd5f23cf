"""Traces and metrics for an OpenTelemetry collector. Nothing else in the program imports OpenTelemetry.

The event loop only queues what it has measured. All else, importing the SDK included, happens in threads.
"""
