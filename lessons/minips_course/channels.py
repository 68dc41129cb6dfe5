"""A channel to a server of one's own."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import minips as ps
from minips.stage import Frames
from minips.stages.transports import Channel


@contextmanager
def calling(handler: Callable[[Frames], Frames], link: ps.Link | None = None) -> Iterator[Channel]:
    """Yield a channel over Tcp to a server with this handler, each behind a link of its own if there is one."""
    ours, theirs = (link.around(ps.Tcp()) if link else ps.Tcp() for _ in range(2))
    with theirs.serve(handler, token="lesson") as endpoint, ours.connect(endpoint.address, "lesson") as channel:
        yield channel
