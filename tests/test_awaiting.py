"""A client in a program of asyncio: calls are awaited, and whoever gives up waiting loses nothing."""

import asyncio
import dataclasses
import threading
from contextlib import ExitStack, contextmanager

import numpy as np
import pytest

import minips as ps

WAIT_S = 20.0
START, ONES = {"w": np.zeros(3)}, {"w": np.ones(3)}
CONFIG = ps.Config(workers=12, transport="tcp", optimizer=ps.SGD(lr=1.0), timeout_s=WAIT_S)


@contextmanager
def clients(config=CONFIG, count=None):
    """A server, and clients of it."""
    with ExitStack() as stack:
        servers = [
            stack.enter_context(ps.Server(START, config, index=index).serve(token="t"))
            for index in range(config.servers)
        ]
        addresses = [server.address for server in servers]
        yield (
            servers[0],
            [
                stack.enter_context(ps.connect(addresses, config, worker=worker, token="t"))
                for worker in range(count or config.workers)
            ],
        )


@pytest.mark.parametrize("transport", ["inproc", "tcp", "shm", "http"])
@pytest.mark.parametrize("changes", [{}, {"servers": 2}, {"link": ps.Link(1e9, 1e-4)}], ids=str)
def test_more_clients_than_an_executor_has_threads_wait_for_each_other_in_one_loop(transport, changes):
    """Under BSP each waits for all: where a call blocked a thread of a small pool, none would ever be answered."""
    config = dataclasses.replace(CONFIG, workers=40 if transport == "inproc" else 4, transport=transport, **changes)

    async def train(client):
        for _ in range(3):
            params = await client.push_pull(ONES)
        return params

    async def all_of_them(those):
        beats = 0

        async def beat():
            nonlocal beats
            while True:
                beats += 1
                await asyncio.sleep(0)

        beating = asyncio.create_task(beat())
        pulled = await asyncio.wait_for(asyncio.gather(*map(train, those)), WAIT_S)
        beating.cancel()
        assert beats > 3, "the loop goes on while clients wait"
        return pulled

    with clients(config) as (_, those):
        for params in asyncio.run(all_of_them(those)):
            np.testing.assert_array_equal(params["w"], np.full(3, -3.0))


def test_one_who_is_cancelled_loses_no_push():
    config = dataclasses.replace(CONFIG, workers=2)

    async def give_up(one, other):
        call = one.push_pull(ONES)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(call, 0.05)
        assert not call.cancelled()
        assert await other.push(ONES) == "applied"
        np.testing.assert_array_equal((await call)["w"], -np.ones(3))
        last = one.push(ONES)
        task = asyncio.ensure_future(last)
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return last, await other.push(ONES)

    with clients(config) as (server, (one, other)):
        last, others = asyncio.run(give_up(one, other))
        assert {last.result(WAIT_S), others} == {"held", "applied"}  # after the loop has ended, whichever came first
        assert (one.clock, server.shard.clocks, server.shard.duplicates) == (2, [2, 2], 0)
        np.testing.assert_array_equal(one.pull().result(WAIT_S)["w"], np.full(3, -2.0))


def test_what_a_call_is_refused_with_is_raised_where_it_is_awaited():
    config = dataclasses.replace(CONFIG, workers=2, timeout_s=0.1)

    async def too_long(client):
        await client.push(ONES)
        with pytest.raises(TimeoutError, match=r"waited 0\.1 seconds for worker 1"):
            await client.pull()
        return await client.pull(["w"]) if client.done else threading.current_thread()

    with clients(config, count=1) as (_, (client,)):
        assert asyncio.run(too_long(client)) is threading.main_thread()


def test_a_call_that_is_answered_already_is_awaited_at_once():
    async def answered(client):
        call = client.push(ONES)
        assert call.result(WAIT_S) == "applied"
        return await call, await call

    with clients(dataclasses.replace(CONFIG, workers=1)) as (_, (client,)):
        assert asyncio.run(answered(client)) == ("applied", "applied")


def test_a_connection_that_is_made_again_answers_one_who_awaits():
    config = dataclasses.replace(CONFIG, workers=2)

    async def broken(one, other):
        call = one.push_pull(ONES)
        waiting = asyncio.ensure_future(call)
        await asyncio.sleep(0.05)
        first = one._connections[0].channel
        first._wire.shutdown()
        while one._connections[0].channel is first:
            await asyncio.sleep(0.01)
        await other.push(ONES)
        return await asyncio.wait_for(waiting, WAIT_S)

    with clients(config) as (server, (one, other)):
        np.testing.assert_array_equal(asyncio.run(broken(one, other))["w"], -np.ones(3))
        assert server.shard.applied == 2
