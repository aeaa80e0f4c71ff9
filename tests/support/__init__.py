"""What tests share: scripts of calls, drivers, servers, recordings, and bodies of requests and replies."""
