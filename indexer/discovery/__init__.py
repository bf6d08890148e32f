"""Who the engines are, as those tell that run them: orchestrators and name servers.

`found` is what they tell in, a whole picture at a time. Each discoverer is a module of its own and knows nothing of
registries, stores or other discoverers: it looks and tells. What becomes of a picture is decided elsewhere, so that a
discoverer is wrong at most about what it saw.
"""
