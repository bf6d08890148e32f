"""`POST /v1/pick`: an OpenAI request as a client sent it in, the pods to send it to out, for scripts in gateways."""
