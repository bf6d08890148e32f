"""Messages and services of the gRPC interfaces: `*.proto`, and the modules that `make schemas` makes of them."""
