"""What Envoy speaks with services beside it; the folders below are the package's name."""
