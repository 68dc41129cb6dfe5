"""Decisions and the protocol: messages and codecs, the protocol's sessions, the shard.

Nothing here has a thread, a socket or a wall clock.
"""
