"""The protocol and its decisions: messages and codecs, the protocol's sessions, and the shard.

Nothing here uses a thread, a socket or a wall clock.
"""
