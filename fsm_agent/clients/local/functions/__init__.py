"""Function calls of a small model: chosen and filled in by several requests of its own, instead of one.

A model such as SmolLM2-135M does not call a function that it has never seen.  It can tell how well a description
explains a question, and it can copy from the question under a grammar.  `steps` makes one reply of that.
"""
