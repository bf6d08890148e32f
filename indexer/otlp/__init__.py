"""Spans and metrics on their way to a collector: written in the OpenTelemetry protocol, sent. Nobody waits for it."""
