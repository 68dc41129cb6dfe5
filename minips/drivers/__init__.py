"""Threads, sockets and the wall clock carry the sessions out: on the side of a worker, a server and a rank."""
