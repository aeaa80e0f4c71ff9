"""Changes to the results of functions before the model is told: processed, extracted, cached.

Pipelines and their cache live here.  How a function is run does not.
"""
