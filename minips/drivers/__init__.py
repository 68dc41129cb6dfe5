"""Drivers of the sessions: for workers, servers and ranks, with threads, sockets and a wall clock; in virtual time."""
