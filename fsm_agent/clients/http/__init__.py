"""HTTP transport: connections, pools, and what one request and its response are."""
