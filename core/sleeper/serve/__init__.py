"""Tables over HTTP and WebSocket: by `sleeper serve`, and on AWS behind API Gateway.

One *application* (Starlette) has a *route* for each thing that can be asked, and is told by
its *terms* what a caller may take: how many queries run and wait, how large and how long.
The rows of a query are *fetched* by a thread, one piece at a time and only when the piece
before has gone out, so that memory is bounded however slowly somebody reads. *Access* is
checked before anything else.

What must hold: nothing blocks the event loop; whoever goes away stops his query; an answer
that breaks off cannot be taken for a whole one; an error says its reason once.
"""
