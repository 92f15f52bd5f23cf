"""Traces and metrics for an OpenTelemetry collector. Nothing else in the program imports OpenTelemetry.

The event loop only queues measurements. All other work, including the import of the SDK, happens in threads.
"""
