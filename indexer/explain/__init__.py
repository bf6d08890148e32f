"""Why an engine holds no more of a prompt: facts gathered from the index, decided upon, and put into words."""
