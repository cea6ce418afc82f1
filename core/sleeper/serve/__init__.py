"""Tables over HTTP and WebSocket: by `sleeper serve`, and on AWS behind API Gateway.

A Starlette *application* has a route for each *endpoint*; the OpenAPI document is generated from
the same declarations. *Limits* bound the number, size and duration of queries. A thread *fetches*
the rows of a query, one piece at a time and only after the client has read the piece before, so
memory is bounded for slow clients. *Access* is checked first.

Invariants: nothing blocks the event loop; disconnecting cancels the query; a client can tell an
incomplete response from a complete one.
"""
