"""Who carries the sessions out: threads, sockets and the wall clock, on the side of a worker, a server and a rank."""
