"""Function calls for a small model: several requests choose a function and fill in its arguments.

A model such as SmolLM2-135M cannot call a function that it has never seen, but it can tell how well a description
explains a question, and it can copy from the question when a grammar guides it.  `steps` builds one reply from such
requests.
"""
