"""`envoy.service.ext_proc.v3`: the part of the proto that is used here, and what is generated from it."""
