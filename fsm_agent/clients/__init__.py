"""Who asks a model: a client of one provider, and clients made of clients.

`http` holds the connections, `local` the embedded model.  A client asks once; whether to ask again is the machine's
to decide.
"""
