"""The side of emberd that a worker uses: signed requests over kept-alive connections."""
