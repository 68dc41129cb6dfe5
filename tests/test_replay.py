"""The data of a replay: each message of the trace once, on one clock; the chain of events that ended each wait."""

import json
import re
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from functools import cache
from itertools import accumulate, pairwise, product

import hosts
import make_replay
import numpy as np
import pages
import pytest

import minips as ps
from minips import lab
from minips.lab.plots import GROUPS
from minips.lab.views.chain import Chain, History
from minips.lab.views.recording import MOST_LANES, Recording, eight_steps, fold, shares_of, windows
from minips.results.messages import Joined, Message, Wait
from minips.results.run import Run
from minips.results.trace import Span, Trace

PROBLEM = ps.SoftmaxRegression(*ps.datasets.synthetic(rows=120, classes=3))
SLOW = ps.Delays(seconds=0.002, slow={3: 4.0})
SLOWER = ps.Delays(seconds=0.01, slow={3: 3.0})
LINK = ps.Link(10e6, 0.001)
SIMULATED = ps.Simulated(compute_s=0.01)
FIELDS = {
    "bsp": {"delays": SLOW},
    "two servers": {"servers": 2, "delays": SLOW},
    "ring": {"exchange": "ring", "delays": SLOW},
    "ssp": {"consistency": ps.SSP(1), "delays": SLOW},
    "asp": {"consistency": "asp", "delays": SLOW},
    "overlap": {"overlap": True, "delays": SLOW},
    "tree": {"exchange": "tree", "delays": SLOW},
    "two shots": {"exchange": "twoshot", "delays": SLOW},
}
SOON = ("bsp", "two servers", "ring")
"""The fields that the default run tries; the others are long tests."""
EACH = [pytest.param(name, marks=[] if name in SOON else [pytest.mark.soak]) for name in FIELDS]


@cache
def played(engine, name, steps=12):
    link = {"link": LINK} if engine == "simulated" else {"transport": "inproc"} if engine == "threads" else {}
    config = ps.Config(**{"workers": 4, "steps": steps, **link, **FIELDS[name]})
    if engine == "simulated" and config.delays:
        config = replace(config, delays=SLOWER)
    return ps.train(PROBLEM, config, engine=SIMULATED if engine == "simulated" else engine)


def rows(columns, data):
    """The rows of packed columns, with their times in seconds since the replay's beginning."""
    names, end, found = [name for name in columns if name not in ("gap", "full")], 0, []
    for i, gap in enumerate(columns["gap"]):
        start = end + gap
        end = start + max(columns["took"][i], 0)
        values = {name: columns[name][i] for name in names}
        found.append({**values, "start": start * data["tick"], "stop": end * data["tick"]})
    return found


def traced(run, messages, **fields):
    """The trace of a run with other messages."""
    return Trace(spans=run.trace.spans, joined_before=Joined(tuple(messages)), **fields)


def origin(*runs):
    return min(Recording(run).start for run in runs)


def check_messages(run, packed, data, began):
    """Each message of the run is in the data once, with its parties, its bytes and its times."""
    found = rows(packed["messages"], data)
    assert len(found) == len(run.messages)
    for row, message in zip(found, run.messages, strict=True):
        said = [data["kinds"][row["kind"]], packed["lanes"][row["from"]], packed["lanes"][row["to"]], row["nbytes"]]
        assert said == [message.kind, message.sender, message.receiver, message.nbytes]
        assert [row["start"] + began, row["stop"] + began] == pytest.approx([message.start, message.end], abs=1e-6)
    assert sum(row["nbytes"] for row in found if packed["lanes"][row["from"]].startswith("worker")) == run.bytes_sent


@pytest.mark.parametrize("engine", ["threads", "simulated", pytest.param("processes", marks=pytest.mark.soak)])
@pytest.mark.parametrize("name", EACH)
def test_each_message_is_there_once_with_its_bytes(engine, name):
    run = played(engine, name)
    data = lab.replay(run).data
    check_messages(run, data["runs"][0], data, origin(run))


@pytest.mark.soak
@pytest.mark.skipif(bool(hosts.lacking()), reason="hosts cannot be made here")
def test_a_run_on_hosts_is_played():
    run = ps.train(PROBLEM, ps.Config(workers=3, steps=5), engine=ps.Hosts())
    data = lab.replay(run).data
    check_messages(run, data["runs"][0], data, origin(run))


@pytest.mark.parametrize("name", EACH)
def test_bars_are_the_spans_of_the_timeline(name):
    """A bar joins successive spans of a group. Messages are the transfers, and waits have rows of their own."""
    run = played("threads", name)
    data = lab.replay(run).data
    (packed,) = data["runs"]
    waits = rows(packed["waits"], data)
    for lane, (party, columns) in enumerate(zip(packed["lanes"], packed["spans"], strict=True)):
        bars = Counter({"wait": sum(row["stop"] - row["start"] for row in waits if row["lane"] == lane)})
        for row in rows(columns, data):
            bars[data["groups"][int(row["group"])]] += row["stop"] - row["start"]
        spans = run.trace.seconds(party)
        for group in set(GROUPS) - {"transfer"}:
            expected = sum(spans.get(name, 0.0) for name in GROUPS[group])
            assert bars[group] == pytest.approx(expected, rel=0.01, abs=2e-6 * len(run.trace)), (party, group)


def test_two_runs_have_one_clock():
    a, b = played("simulated", "bsp"), played("threads", "bsp")
    data = lab.replay(a, b).data
    for run, packed in zip((a, b), data["runs"], strict=True):
        check_messages(run, packed, data, origin(a, b))
    assert data["total"] * data["tick"] >= max(a.seconds, b.seconds)
    assert lab.replay(b, a).data["total"] == data["total"]


def test_eight_steps_are_counted():
    run = played("threads", "bsp", steps=30)
    start, stop = eight_steps(Recording(run))
    begun = [span.start for span in run.trace if (span.who, span.name) == ("worker 0", "compute")]
    assert sum(start <= moment < stop for moment in begun) == 8
    assert start in begun
    assert stop in begun
    data = lab.replay(run).data
    assert data["windows"]["eight"] == [data["runs"][0]["steps"][11], data["runs"][0]["steps"][19]]
    first, last = eight_steps(Recording(run), until=begun[10] + 1e-9)
    assert (first, last) == (begun[1], begun[9])
    few = played("threads", "bsp")
    assert eight_steps(Recording(few))[1] - eight_steps(Recording(few))[0] < few.seconds


def test_two_runs_are_shown_at_first_while_both_go_on():
    slow, fast = played("simulated", "bsp"), played("simulated", "asp")
    assert fast.seconds < slow.seconds / 1.5
    start, stop = windows([Recording(slow), Recording(fast)])["eight"]
    assert start < fast.seconds / 2
    assert [start, stop] == [*Recording(slow).steps.values()][0:9:8]


def test_without_gradients_that_take_time_messages_begin_the_steps():
    config = ps.Config(workers=2, steps=10, link=LINK)
    recording = Recording(ps.train(PROBLEM, config, engine="simulated"))
    pushes = [one.start for one in recording.messages if (one.kind, one.sender) == ("push_pull", "worker 0")]
    assert [*recording.steps.values()] == pushes


def test_a_simulated_push_arrives_at_the_end_of_its_trip():
    run = played("simulated", "bsp")
    pushes = [one for one in run.messages if one.kind == "push_pull"]
    assert len(pushes) == 4 * 12
    assert max(one.end - one.start for one in pushes) < 0.003  # the slow worker's comes 20 ms later


# ---- the chain of events that ended a wait ----


def message(kind, sender, receiver, start, end, clock=0):
    return Message(kind, sender, receiver, clock, 100, start, end)


def test_the_chain_of_a_round_made_by_hand():
    """Worker 1 computes for 4 s, worker 0 for 1 s; worker 0 waits at the server."""
    spans = [Span("compute", "worker 0", 1.0, 1.0, 0), Span("compute", "worker 1", 1.0, 4.0, 0)]
    messages = [
        message("reply", "server 0", "worker 0", 0.5, 1.0),
        message("reply", "server 0", "worker 1", 0.5, 1.0),
        message("push_pull", "worker 0", "server 0", 2.0, 2.5),
        message("push_pull", "worker 1", "server 0", 5.0, 5.5),
        message("reply", "server 0", "worker 0", 6.0, 6.5, 1),
        message("reply", "server 0", "worker 1", 6.0, 6.5, 1),
    ]
    at_the_server = Wait("worker 0", 2.5, 3.5, 0, ("worker 1",))
    history = History(spans, messages)
    assert history.chains([at_the_server]) == [Chain(1.0, (3, 4))]
    as_a_client_measures_it = at_the_server._replace(start=3.0)
    assert history.at_server(as_a_client_measures_it) == at_the_server
    assert history.at_server(at_the_server) == at_the_server


def test_a_chain_goes_on_through_the_work_that_waited_itself():
    """Worker 1 began its gradient late, since its own answer came late."""
    spans = [Span("compute", "worker 1", 3.0, 1.0, 0)]
    messages = [
        message("pull", "worker 1", "server 0", 0.0, 0.5),
        message("push_pull", "worker 0", "server 0", 1.0, 1.5),
        message("reply", "server 0", "worker 1", 2.0, 3.0),
        message("push_pull", "worker 1", "server 0", 4.0, 4.5),
        message("reply", "server 0", "worker 0", 5.0, 5.5, 1),
    ]
    wait = Wait("worker 0", 1.5, 3.5, 0, ("worker 1",))
    assert History(spans, messages).chains([wait]) == [Chain(0.5, (2, 3, 4))]


def test_an_answer_that_came_in_the_middle_of_a_gradient_is_no_cause():
    """With overlap, worker 1 computed while its answer came."""
    spans = [Span("compute", "worker 1", 0.5, 5.0, 1)]
    messages = [
        message("reply", "server 0", "worker 1", 0.0, 0.2),
        message("reply", "server 0", "worker 1", 2.0, 2.5, 1),
        message("push_pull", "worker 1", "server 0", 5.5, 6.0, 1),
        message("reply", "server 0", "worker 0", 6.5, 7.0, 2),
    ]
    wait = Wait("worker 0", 1.0, 5.5, 1, ("worker 1",))
    assert History(spans, messages).chains([wait]) == [Chain(0.2, (2, 3))]


def test_the_chain_of_hops_made_by_hand():
    """Worker 2 is slow; its hop lets worker 0 send, for which worker 1 waits."""
    spans = [Span("compute", f"worker {rank}", 0.0, seconds, 0) for rank, seconds in enumerate((1.0, 1.0, 4.0))]
    messages = [
        message("hop", "worker 0", "worker 1", 1.0, 1.5),
        message("hop", "worker 1", "worker 2", 1.0, 4.0),
        message("hop", "worker 2", "worker 0", 4.0, 4.5),
        message("hop", "worker 0", "worker 1", 4.6, 5.0),
    ]
    waits = [Wait("worker 0", 1.0, 3.0, 0, ("worker 2",)), Wait("worker 1", 1.5, 3.1, 0, ("worker 0", "worker 2"))]
    assert History(spans, messages).chains(waits) == [Chain(0.0, (2,)), Chain(0.0, (2, 3))]


def test_a_wait_without_a_message_has_an_empty_chain():
    half = Message("reply", "server 0", "worker 0", 0, 9, None, 2.0)
    wait = Wait("worker 0", 0.0, 2.0, 0, ())
    assert History([], [half]).chains([wait]) == [Chain(0.0, ())]
    assert History([], [half]).at_server(wait) == wait


def test_a_chain_bears_the_error_of_several_clocks():
    """By the server's clock, the push that let the answer go came 0.1 s after it."""
    messages = [
        message("push_pull", "worker 0", "server 0", 0.0, 0.5),
        message("push_pull", "worker 1", "server 0", 4.0, 6.1),
        message("reply", "server 0", "worker 0", 6.0, 6.5, 1),
    ]
    wait = Wait("worker 0", 0.5, 5.5, 0, ("worker 1",))
    assert History([], messages).chains([wait])[0].messages == (2,)
    assert History([], messages, 0.2).chains([wait])[0].messages == (1, 2)


@pytest.mark.parametrize("engine", ["threads", "simulated"])
@pytest.mark.parametrize("name", EACH)
def test_a_chain_leads_to_the_end_of_its_wait(engine, name):
    """Each message of a chain leaves the party at which the one before arrived, after that; the last one ends the wait,
    and the work before the first reaches back to the wait's beginning or further.
    """
    recording = Recording(played(engine, name))
    for wait, (since, numbers) in zip(recording.waits, recording.chains, strict=True):
        chain = [recording.messages[number] for number in numbers]
        assert chain[-1].receiver == wait.who
        assert since <= chain[0].start
        assert since <= wait.start + 1e-9 or since <= began(recording, chain[0].sender) + 1e-9
        for before, then in pairwise(chain):
            assert before.receiver == then.sender
            assert before.end <= then.start + 1e-9
        if wait.partners and not chain[-1].sender.startswith("server"):
            assert chain[-1].sender == wait.partners[0]
        elif wait.partners and chain[-1].start > wait.start and len(chain) > 1:
            assert chain[-2].sender == wait.partners[0]


def began(recording, party):
    """When a party began its first gradient or sent its first message of a step: before that nothing is a cause."""
    computed = [span.start for span in recording.spans if (span.who, span.name) == (party, "compute")]
    sent = [one.start for one in recording.messages if one.sender == party and one.kind not in ("hello", "greeting")]
    return max(min(computed, default=0.0), min(sent))


def test_a_slow_worker_begins_the_chain_of_every_long_wait():
    for name in ("bsp", "ring"):
        recording = Recording(played("simulated", name))
        found = Counter()
        for wait, chain in zip(recording.waits, recording.chains, strict=True):
            if wait.seconds > 0.005:
                found[recording.messages[chain.messages[0]].sender] += 1
        assert set(found) == {"worker 3"}, name
        assert found.total() >= 12, name


# ---- more than can be drawn one by one ----


@cache
def crowd():
    problem = ps.SoftmaxRegression(*ps.datasets.synthetic(rows=100, features=4, classes=2))
    config = ps.Config(workers=MOST_LANES, steps=3, link=LINK)
    return ps.train(problem, config, engine=ps.Simulated(compute_s=0.01, exponential=True))


def test_a_crowd_is_a_density_with_the_same_seconds_and_bytes():
    run = crowd()
    view = lab.replay(run)
    data = view.data
    (packed,) = data["runs"]
    assert packed["folded"]
    assert MOST_LANES == 32  # as docs/training.md says
    assert len(packed["lanes"]) <= 14
    assert packed["lanes"][-2:] == ["from workers", "from servers"]
    seconds, nbytes = Counter(), Counter()
    members = [*fold(Recording(run).parties).values()]
    for lane, columns in enumerate(packed["spans"]):
        for row in rows(columns, data):
            group = data["groups"][int(row["group"])]
            if lane < len(members):
                seconds[group] += row["part"] / 1000 * (row["stop"] - row["start"]) * len(members[lane])
            else:
                nbytes[group] += row["part"]
    assert nbytes["sent"] == run.bytes_sent
    assert nbytes["answer"] == run.bytes_received
    spans = run.trace.seconds()
    for group in ("compute", "wait"):
        assert seconds[group] == pytest.approx(sum(spans.get(name, 0) for name in GROUPS[group]), rel=0.02)
    assert "lab.replay(run, seconds=(start, stop))" in view.sentence
    assert ">workers 0–5</text>" in view.still
    fewer = ps.train(PROBLEM, ps.Config(workers=MOST_LANES - 1, steps=1, link=LINK), engine="simulated")
    assert not lab.replay(fewer).data["runs"][0]["folded"]


def test_a_thousand_workers_have_few_lanes():
    lanes = fold(["server 0", *(f"worker {rank}" for rank in range(1000))])
    assert [len(parties) for parties in lanes.values()] == [1, 167, 167, 167, 167, 166, 166]
    assert [*lanes][:2] == ["server 0", "workers 0–166"]


def test_shares_are_covered_time():
    spans = [Span("compute", "worker 0", start, seconds, 0) for start, seconds in ((0.0, 1.5), (1.0, 0.25), (3.5, 0.5))]
    assert shares_of(spans, np.arange(5.0)).tolist() == pytest.approx([1.0, 0.75, 0.0, 0.5])
    assert shares_of([], np.arange(3.0)).tolist() == [0.0, 0.0]


def test_a_part_of_a_run_is_played():
    run = played("simulated", "bsp")
    middle = run.seconds / 2
    data = lab.replay(run, seconds=(middle, middle + 0.05)).data
    (packed,) = data["runs"]
    found = rows(packed["messages"], data)
    expected = [one for one in run.messages if one.end >= middle and one.start <= middle + 0.05]
    assert len(found) == len(expected) > 0
    assert data["total"] * data["tick"] == pytest.approx(0.05)
    short = lab.replay(run, seconds=(middle, middle + 1e-4)).data  # in which not every party does something
    assert short["runs"][0]["lanes"] == packed["lanes"] == ["server 0", *(f"worker {rank}" for rank in range(4))]


def test_spans_with_names_of_ones_own_are_left_out():
    run = played("simulated", "bsp")
    mine = replace(run, trace=run.trace + Trace(spans=[Span("mine", "worker 0", 0.01, 0.01, 0)]))
    assert lab.replay(mine).data == lab.replay(run).data


# ---- what is missing is shown ----


def test_a_lost_message_breaks_off():
    run = played("simulated", "bsp")
    first, second, *others = run.messages
    some = [first._replace(end=None), second._replace(start=None), *others]
    lost = replace(run, trace=traced(run, some))
    view = lab.replay(lost)
    data = view.data
    assert data["runs"][0]["messages"]["took"].count(-1) == 1
    assert data["runs"][0]["messages"]["took"].count(-2) == 1
    assert sum(data["runs"][0]["messages"]["nbytes"]) == sum(one.nbytes for one in run.messages)
    assert "Of 2 messages only one end is known: their lines break off." in view.sentence
    in_the_window = replace(run, trace=traced(run, [one._replace(end=None) for one in run.messages]))
    assert "stroke-dasharray" in lab.replay(in_the_window).still


def test_a_run_without_messages_shows_its_transfers():
    run = played("simulated", "bsp")
    old = replace(run, trace=Trace(spans=run.trace.spans))
    data = lab.replay(old).data
    groups = {data["groups"][int(group)] for columns in data["runs"][0]["spans"] for group in columns["group"]}
    assert "transfer" in groups


def test_the_trace_that_ended_early_is_said():
    run = played("simulated", "bsp")
    assert "the trace has not kept everything" not in lab.replay(run).sentence
    short = replace(run, trace=traced(run, run.messages, until=run.seconds / 2))
    assert "on, the trace has not kept everything." in lab.replay(short).sentence


def test_a_run_on_several_machines_says_how_exact_its_clocks_are():
    run = played("simulated", "bsp")
    assert "clocks" not in lab.replay(run).sentence
    assert "Its machines' clocks agree to ± 300 µs." in lab.replay(replace(run, clock_error_s=3e-4)).sentence


# ---- words, the still, and the page ----


def test_the_sentence_says_who_waits_for_whom():
    a = played("simulated", "bsp")
    b = ps.train(PROBLEM, replace(a.config, consistency=ps.ASP()), engine=SIMULATED)
    said = lab.replay(a, b).sentence
    assert said.startswith("A: BSP. 4 workers and 1 server make 12 steps in ")
    assert " B: ASP. 4 workers and 1 server make 12 steps in " in said
    longest = r"The longest of 36 waits takes .* ms: worker \d waits for worker 3 in step \d+, until .* ms\."
    assert re.search(longest, said)
    assert "No worker waits." in said
    assert f"B takes {b.seconds / a.seconds:.2f} × A's time and sends " in said


def test_runs_are_named_by_their_differences():
    run = played("simulated", "bsp")
    other = replace(run, config=replace(run.config, steps=13, push=ps.Codec(ps.Sign())))
    titles = [one["title"] for one in lab.replay(run, other).data["runs"]]
    assert titles == ["A: Codec, steps=12", "B: Codec(quantizer=Sign()), steps=13"]
    assert [one["title"] for one in lab.replay(played("threads", "ring")).data["runs"]] == ["RingAllReduce"]
    named = [replace(run, name="exact"), replace(other, name="sign")]
    assert [one["title"] for one in lab.replay(*named).data["runs"]] == ["A: exact", "B: sign"]
    assert lab.replay(run, run).data["runs"][1]["title"] == "B: BSP"


def test_the_still_shows_every_lane_and_message_of_its_window():
    run = played("simulated", "bsp")
    still = lab.replay(run).still
    for words in ("BSP", "server 0", "worker 3", "compute", "wait", "transfer from a worker"):
        assert f">{words}</text>" in still
    start, stop = windows([Recording(run)])["eight"]
    shown = [one for one in run.messages if one.end >= start and one.start <= stop]
    lines = re.findall(r'stroke="(?:#007A59|#0072B2)" stroke-width="1.2" d="(.*?)"', still)
    assert sum(path.count("L") for path in lines) == len(shown)


@pytest.mark.parametrize("name", ["bsp", pytest.param("ring", marks=pytest.mark.soak)])
def test_a_page_of_four_workers_and_200_steps_has_at_most_400_kb(name):
    run = played("threads", name, steps=200)
    assert len(lab.replay(run).html().encode()) <= 400_000


def test_to_html_writes_one_file_without_addresses(tmp_path):
    view = lab.replay(played("simulated", "bsp"))
    view.to_html(tmp_path / "run.html")
    page = (tmp_path / "run.html").read_text(encoding="utf-8")
    assert page == view.html("A run, played back")
    assert {*re.findall(r"https?://[^\"'\s]+", page)} <= {"http://www.w3.org/2000/svg"}
    state = json.loads(re.search(r'id="state">(.*?)</script>', page, re.DOTALL)[1])
    assert state["data"] == json.loads(json.dumps(view.data))
    with pytest.raises(OSError, match="There is no folder"):
        view.to_html(tmp_path / "missing" / "run.html")
    with pytest.raises(TypeError, match="to_html takes the path of a file; got 3"):
        view.to_html(3)


@pytest.mark.soak
def test_the_replay_of_the_readme_and_the_docs_is_what_a_replay_writes_today():
    for path, text in make_replay.files().items():
        assert path.read_text(encoding="utf-8") == text, f"Run {make_replay.__file__}: {path.name} is old."


def test_the_readmes_runs_wait_as_it_says():
    bsp, asp = make_replay.bsp_and_asp()
    others, slow = [f"worker {worker}" for worker in range(3)], "worker 3"
    assert Counter((wait.who, wait.step) for wait in bsp.waits) == Counter(product(others, range(bsp.clocks)))
    assert {wait.partners[0] for wait in bsp.waits} == {slow}
    assert asp.waits == []
    for run in (bsp, asp):
        took = {span.seconds: span.who for span in run.trace if span.name == "compute"}
        assert {who == slow: seconds for seconds, who in took.items()} == pytest.approx({False: 0.01, True: 0.03})


def test_the_page_says_how_many_processes_are_drawn_one_by_one():
    assert f"A run with more than {MOST_LANES} processes" in pages.text("docs/training.md")


def test_without_anywidget_a_page_is_written_all_the_same(tmp_path):
    played("simulated", "bsp").save(tmp_path / "run.npz")
    program = """import sys
sys.modules["anywidget"] = None
import minips as ps
view = ps.lab.replay(ps.Run.load("run.npz"))
view.to_html("run.html")
print(view.moves, view.sentence)"""
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    view = lab.replay(played("simulated", "bsp"))
    assert done.stdout == f"False {view.sentence}\n", done.stderr
    assert (tmp_path / "run.html").read_text(encoding="utf-8") == view.html("A run, played back")


def test_a_saved_run_is_played_as_before(tmp_path):
    run = played("threads", "bsp")
    run.save(tmp_path / "run.npz")
    again = lab.replay(ps.Run.load(tmp_path / "run.npz"))
    assert again.data == lab.replay(run).data
    assert again.sentence == lab.replay(run).sentence


def test_bad_arguments_are_sentences():
    run = played("simulated", "bsp")
    for wrong in (3, None, "run.npz", {"a": run}, [run]):
        with pytest.raises(TypeError, match=r"replay takes a Run, such as the result of ps\.train"):
            lab.replay(wrong)
    with pytest.raises(TypeError, match="replay takes a Run"):
        lab.replay(run, 3)
    with pytest.raises(ValueError, match="The run has no trace: neither spans nor messages"):
        lab.replay(replace(run, trace=Trace()))
    with pytest.raises(ValueError, match="The run has no trace"):
        lab.replay(run, replace(run, trace=Trace()))
    instant = ps.train(PROBLEM, ps.Config(workers=2, steps=2), engine="simulated")
    with pytest.raises(ValueError, match=r"Nothing takes time in this simulated run\. Give Simulated a compute_s"):
        lab.replay(instant)
    for seconds in (3, "ab", (1, 2, 3), (None, 1), (float("nan"), 1)):
        with pytest.raises((TypeError, ValueError), match=r"replay takes seconds=\(start, stop\)"):
            lab.replay(run, seconds=seconds)
    with pytest.raises(ValueError, match="with start before stop; got"):
        lab.replay(run, seconds=(2, 1))
    with pytest.raises(ValueError, match="The run has nothing to play from 50 to 60 s: it took "):
        lab.replay(run, seconds=(50, 60))


def test_packed_times_add_up_over_a_long_run():
    """Ticks are rounded each by itself, so errors do not grow along a column."""
    moments = [*accumulate([0.1234567] * 5000)]
    spans = [Span("compute", "worker 0", moment, 0.0123456, step) for step, moment in enumerate(moments)]
    run = Run(ps.Config(), {}, [], moments[-1] + 1, 1, trace=Trace(spans=spans))
    data = lab.replay(run).data
    lane = data["runs"][0]["lanes"].index("worker 0")
    found = rows(data["runs"][0]["spans"][lane], data)
    assert [row["start"] for row in found] == pytest.approx(moments, abs=1e-6)
