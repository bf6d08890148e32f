"""The endpoint picker: Envoy's `ext_proc` protocol, as the Gateway API Inference Extension has it.

    server.py        socket up and down, what is registered on it
    streams.py       one stream a client's request: messages in, messages out, its end
    conversation.py  what is said when, in each mode of sending bodies  [pure]
    heard.py         what a message tells;  said.py  what is answered  [pure]
    picking.py       the question to the node, and its budget;  question.py  body → question  [pure]
    ranking.py       an answer → endpoints, best first  [pure]
    outcome.py       what became of a request: who served it, what its engine reused;  usage.py  a response's end [pure]

Promise: what a client sent to an engine never fails because of us. Whatever goes wrong here is an answer without a
destination, and the gateway balances as it would alone. Only that there is no endpoint at all is told, as the protocol
has it.
"""
