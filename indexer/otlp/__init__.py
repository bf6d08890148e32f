"""Spans on their way to a collector: kept, written in the OpenTelemetry protocol, sent. Nobody waits for it."""
