"""Decisions and the protocol: messages and codecs, the sessions of the protocol, the shard.

Nothing here has a thread, a socket or a wall clock.
"""
