"""The faces of the service: command line, REST and what speaks like other routers. Translation only."""
