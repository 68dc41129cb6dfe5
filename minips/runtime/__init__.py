"""What runs: messages and codecs, the shard and its server, the client and its worker, and the engines that start
them.
"""
