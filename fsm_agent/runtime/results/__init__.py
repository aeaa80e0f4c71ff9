"""Process, extract and cache the results of functions before the model sees them."""
