"""Drivers of the sessions: threads, sockets and the wall clock for workers, servers and ranks; and virtual time."""
