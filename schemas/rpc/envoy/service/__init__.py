"""Services that Envoy calls."""
