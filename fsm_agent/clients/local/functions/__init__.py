"""Function calls for a small model: several requests choose a function and fill in its arguments.

A model such as SmolLM2-135M cannot call a function that it has never seen.  But it can tell how well a description
explains a question, and can copy from the question under a grammar.  `steps` builds one reply from such requests.
"""
