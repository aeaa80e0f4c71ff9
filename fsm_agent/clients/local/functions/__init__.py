"""Function calls for a small model, which are chosen and filled in with several requests instead of one.

A model such as SmolLM2-135M cannot call a function that it has never seen.  But it can tell how well a description
explains a question, and it can copy from the question under a grammar.  `steps` builds one reply from these.
"""
