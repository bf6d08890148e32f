"""From a prompt told as text to its tokens, as the engine that will serve it makes them.

    chat        messages as engines hand them to a template
    template    a model's chat template: foreign code, in a sandbox, within bounds
    local       a tokenizer read from files, run in threads
    files       reading those files at the start
    engines     the engine's own `/tokenize`, where there are no files
    addresses   where that is
    health      how engines do that, for the log
    remarks     and for who looks at a source
    choice      which of these a model has
    making      cache, single flight, limits and deadline around them

[I/O] Reads files at the start and asks registered engines; reaches no other host. Holds tokens in a bounded cache,
never a text once its tokens are known.
"""
