"""The kernel of virtual time against arithmetic: tasks, the order within an instant, shared cores, and turns."""

import gc

import pytest

from minips.drivers.events import COLLECTED, Cores, EventLoop, Processor, Signal, seldom_collected, unrecorded


def run(events):
    events.run(lambda: False)


def test_tasks_wait_for_times_and_for_each_other():
    events, heard = EventLoop(), []
    bell = Signal()

    def first():
        yield 2.0
        bell.succeed("ding")
        yield 1.0
        heard.append(("first", events.now))

    def second():
        assert (yield bell) == "ding"
        assert (yield bell) == "ding"  # once is enough
        heard.append(("second", events.now))
        return "done"

    def third():
        heard.append((yield ends[0]))

    ends = [events.start(task()) for task in (second, first)]
    ends.append(events.start(third()))
    events.run(lambda: all(end.triggered for end in ends))
    assert heard == [("second", 2.0), "done", ("first", 3.0)]


def test_a_signal_happens_once_and_of_several_that_may_bring_it_the_first_one_counts():
    events, either = EventLoop(), Signal()
    ends = []

    def either_of_two():
        ends.append(((yield either), events.now))

    events.start(either_of_two())
    events.at(2.0, lambda: either.succeed("late"))
    events.at(1.0, lambda: either.succeed("soon"))
    run(events)
    assert ends == [("soon", 1.0)]
    assert either.value == "soon"


def woken(at_once):
    """What happens in which order where a bell wakes two at a time for which something else is planned."""
    events, bell, heard = EventLoop(at_once=at_once), Signal(), []

    def waiter(name):
        yield bell
        heard.append(name)
        bell.then(lambda: heard.append(f"{name} again"))  # what has happened does not wait

    def ringer():
        yield 1.0
        bell.succeed()
        heard.append("rung")
        yield 0.0
        heard.append("no time")

    for task in (waiter("one"), waiter("two"), ringer()):
        events.start(task)
    events.at(1.0, lambda: heard.append("planned"))
    run(events)
    assert events.now == 1.0
    return heard


def test_who_is_woken_goes_on_after_what_was_asked_for_before_or_at_once():
    assert woken(at_once=False) == ["rung", "no time", "planned", "one", "one again", "two", "two again"]
    assert woken(at_once=True) == ["one", "one again", "two", "two again", "rung", "no time", "planned"]


def test_what_falls_into_one_instant_happens_in_the_order_in_which_it_was_asked_for():
    events, heard = EventLoop(remembered=True), []

    def sleeper(name):
        heard.append(f"{name} begins")
        yield 1.0
        heard.append(name)

    for name in "cab":
        events.start(sleeper(name))
    events.at(1.0, lambda: events.at(1.0, lambda: heard.append("last")))
    events.at(1.0, lambda: heard.append("d"))
    run(events)
    assert heard == ["c begins", "a begins", "b begins", *"cabd", "last"]
    assert list(events.order) == [0, 1, 2, 3, 4, 5]
    assert not EventLoop().order


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_what_a_task_raises_leaves_through_run_and_ends_no_other_task(error):
    events, heard, bell = EventLoop(), [], Signal()

    def broken(after):
        try:
            yield after
            raise error("broken")
        finally:
            heard.append("closed")

    def other():
        yield bell
        heard.append("other")

    events.start(other())
    events.start(broken(1.0))
    events.at(2.0, bell.succeed)
    with pytest.raises(error, match="broken"):
        run(events)
    assert (events.now, heard) == (1.0, ["closed"])
    run(events)
    assert heard == ["closed", "other"]
    with pytest.raises(error, match="broken"):
        events.start(broken(0.0))


def test_a_task_that_waits_for_nothing_that_comes_is_closed_with_its_event_loop():
    closed = []

    def waiter():
        try:
            yield Signal()
        finally:
            closed.append(True)

    def begin():
        events = EventLoop()
        events.start(waiter())
        run(events)

    begin()
    gc.collect()
    assert closed == [True]


@pytest.mark.parametrize(
    ("cores", "others", "ends"),
    [(2, 0, [1.0, 2.0]), (1, 0, [2.0, 3.0]), (2, 2, [2.0, 3.5]), (1, 1, [3.0, 5.0])],
)
def test_cores_are_shared_evenly(cores, others, ends):
    events = EventLoop()
    shared, ended = Cores(events, cores, others), []
    for seconds in (2.0, 1.0):
        shared.work(seconds).then(lambda: ended.append(events.now))
    run(events)
    assert ended == pytest.approx(ends)


def test_who_gives_work_up_leaves_the_core_to_the_others():
    events = EventLoop()
    shared, ended = Cores(events, 1), []
    one, other, third = (shared.work(seconds) for seconds in (1.0, 2.0, 4.0))
    other.then(lambda: ended.append(events.now))
    third.then(lambda: ended.append(events.now))
    events.at(1.5, lambda: shared.leave(one))  # each has had half a second
    run(events)
    assert not one.triggered
    assert ended == pytest.approx([1.5 + 2 * 1.5, 1.5 + 2 * 1.5 + 2.0])
    shared.leave(other)  # it has none any more


@pytest.mark.parametrize("shared", [True, False], ids=["cores of a machine", "a core of its own"])
def test_a_processor_does_one_thing_at_a_time_and_the_parts_of_a_thing_together(shared):
    events, heard = EventLoop(), []
    processor = Processor(events, Cores(events, 8) if shared else None)

    def note(name):
        return lambda wall: heard.append((name, wall, events.now))

    processor.work((1.0, note("a")))
    parts = processor.work((0.0, note("turn")), (1.0, note("b")), (2.0, note("c")))
    last = processor.work((1.0, note("d")))
    assert processor.queue == 3
    assert processor.work((0.0, note("nothing"))).triggered
    events.run(lambda: parts.triggered)
    assert events.now == 4.0
    events.run(lambda: last.triggered)
    turns = [("turn", 0.0, 1.0), ("b", 1.0, 2.0), ("c", 2.0, 4.0), ("d", 1.0, 5.0)]
    assert heard == [("nothing", 0.0, 0.0), ("a", 1.0, 1.0), *turns]
    assert processor.queue == 0
    assert not processor.work((1.0, unrecorded)).triggered


def test_the_garbage_collector_runs_seldom_for_a_while():
    before = gc.get_threshold()

    def fail():
        with seldom_collected():
            assert gc.get_threshold()[0] == COLLECTED > before[0]
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert gc.get_threshold() == before
