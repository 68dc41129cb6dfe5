import assert from "node:assert/strict";
import { test } from "node:test";

const {
  at,
  doing,
  eightFrom,
  killAt,
  layout,
  longest,
  marksOf,
  momentWords,
  parties,
  rows,
  shares,
  stepAt,
  stretches,
  unpack,
} = await import(`${process.env.MINIPS_VIEWS}/replay.mjs`);
const { waitWords } = await import(`${process.env.MINIPS_VIEWS}/replay.mjs`);

/* A round in ticks of one second: worker 1 computes for 4 s, and worker 0, which took 1 s, waits for it. */
const ROUND = {
  tick: 1,
  total: 10,
  groups: ["compute", "encode", "transfer", "wait", "decode", "update", "sent", "answer"],
  kinds: ["push_pull", "reply"],
  windows: { all: [0, 10], wait: [1, 8] },
  longest: [0, 0],
  runs: [
    {
      title: "BSP",
      folded: false,
      most: 200,
      worker: "worker 0",
      first: 5,
      steps: [1, 9, 10],
      lanes: ["server 0", "worker 0", "worker 1"],
      spans: [
        { gap: [6], took: [1], group: "5" },
        { gap: [1], took: [1], group: "0" },
        { gap: [1], took: [4], group: "0" },
      ],
      messages: {
        gap: [2, 2, 1, 1],
        took: [1, 1, 1, -1],
        kind: [0, 0, 1, 1],
        from: [1, 2, 0, 0],
        to: [0, 0, 1, 2],
        nbytes: [200, 200, 100, 100],
      },
      waits: { gap: [3], took: [4], lane: [1], step: [5], partners: [[2]], since: [2], chain: [[1, 2]] },
      down: { gap: [8], took: [1], lane: [2] },
    },
  ],
};
const data = unpack(ROUND);
const [run] = data.runs;

test("rows follow each other at their distances", () => {
  assert.deepEqual(rows({ gap: [1, 0, -2], took: [2, -1, 4], name: "abc" }, 0.5), [
    { start: 0.5, stop: 1.5, lost: 0, name: "a" },
    { start: 1.5, stop: 1.5, lost: 1, name: "b" },
    { start: 0.5, stop: 2.5, lost: 0, name: "c" },
  ]);
  assert.deepEqual(rows({ gap: [], took: [] }, 1), []);
});

test("messages and waits have their lanes, times and bytes", () => {
  const found = run.messages.map(({ kind, look, start, stop, lost }) => [kind, look, start, stop, lost]);
  assert.deepEqual(found, [
    ["push_pull", "sent", 2, 3, 0],
    ["push_pull", "sent", 5, 6, 0],
    ["reply", "answer", 7, 8, 0],
    ["reply", "answer", 9, 9, 1],
  ]);
  assert.deepEqual([run.waits[0].start, run.waits[0].stop, run.waits[0].since], [3, 7, 1]);
  assert.equal(data.longest, run.waits[0]);
  assert.equal(longest([...run.waits, { start: 0, stop: 1 }]), run.waits[0]);
  assert.equal(longest([]), null);
  assert.deepEqual(marksOf([run]), [2, 3, 5, 6, 7, 8, 9]);
});

test("a lane has its spans, its waits and the messages on their way", () => {
  const names = run.spans.map((lane) => lane.map(({ group }) => group));
  assert.deepEqual(names, [
    ["update"],
    ["compute", "wait", "transfer", "transfer"],
    ["compute", "transfer", "transfer"],
  ]);
});

test("the chain leads from the slow worker's gradient to the answer", () => {
  const found = stretches(run, run.waits[0]).map(({ from, to, start, stop }) => [from, to, start, stop]);
  assert.deepEqual(found, [
    [2, 2, 1, 5],
    [2, 0, 5, 6],
    [0, 0, 6, 7],
    [0, 1, 7, 8],
  ]);
  assert.equal(
    waitWords(run, run.waits[0]),
    "worker 0 waits 4 s in step 5 for worker 1. What ended it: worker 1 computes, 4 s → " +
      "push and pull of 200 B, 1 s → server 0 updates, 1 s → reply of 100 B, 1 s.",
  );
});

test("work that takes no time is left out of the chain's words", () => {
  const late = { ...run.waits[0], since: run.messages[1].start - 1e-14, chain: [1] };
  assert.ok(waitWords(run, late).endsWith("What ended it: push and pull of 200 B, 1 s."));
});

test("the words say what happens at a time", () => {
  assert.deepEqual(
    [doing(run, 1, 1.5), doing(run, 1, 4), doing(run, 2, 4), doing(run, 0, 6.5), doing(run, 0, 1)],
    ["computes", "waits for worker 1", "computes", "updates", ""],
  );
  assert.equal(
    momentWords(run, 5.5),
    "worker 0 is in step 5; waiting for worker 1: worker 0; messages on their way: 1",
  );
  assert.equal(momentWords(run, 10), "the run has ended");
  assert.equal(momentWords({ ...run, steps: [], waits: [], messages: [] }, 5), "nothing is recorded here");
  assert.equal(parties(run, [2, 1, 1]), "worker 0, worker 1");
  assert.equal(parties({ lanes: ["a", "b", "c", "d", "e"] }, [0, 1, 2, 3, 4]), "5 workers");
});

test("a party that is down does nothing, and the words say so", () => {
  assert.deepEqual([doing(run, 2, 8.5), doing(run, 2, 9), doing(run, 1, 8.5)], ["is down", "", ""]);
  assert.equal(momentWords({ ...run, messages: [] }, 8.5), "worker 0 is in step 5; down: worker 1");
  assert.equal(parties({ lanes: ["server 0", "a", "b", "c", "d"] }, [0, 1, 2, 3, 4]), "5 processes");
});

test("a click on a lane of the first run is a kill there, where kills can be put", () => {
  const ready = { ...run, kills: [] };
  const plan = layout([ready, run], [0, 10], 1000);
  const state = { data: { runs: [ready, run] }, plan, window: [0, 10] };
  const [x, y] = [plan.x(4), plan.places[0].lanes[1] + 3];
  const found = killAt(state, x, y);
  assert.equal(found.who, "worker 0");
  assert.ok(Math.abs(found.at - 4) < 1e-9 && Math.abs(plan.x(found.near) - plan.x(0) - 8) < 1e-9);
  const nothing = [killAt(state, plan.left - 1, y), killAt(state, x, plan.places[1].lanes[1])];
  assert.deepEqual([...nothing, killAt({ ...state, data: { runs: [run] } }, x, y)], [null, null, null]);
});

test("eight steps are counted, wherever the clock is", () => {
  const steps = Array.from({ length: 21 }, (_, i) => i * i);
  assert.deepEqual(eightFrom(steps, 26), [25, 169]);
  assert.deepEqual(eightFrom(steps, -1), [0, 64]);
  assert.deepEqual(eightFrom(steps, 400), [144, 400]);
  assert.deepEqual(eightFrom([2, 3, 5], 4), [2, 5]);
  assert.deepEqual([stepAt(steps, 26), stepAt(steps, 1e9), stepAt(steps, -1)], [5, 19, 0]);
});

test("shares are the covered part of each bin", () => {
  const spans = [
    { start: 0, stop: 1.5, group: "wait", part: 1 },
    { start: 1, stop: 3, group: "compute", part: 0.5 },
  ];
  assert.deepEqual(shares(spans, [0, 4], 4), { wait: [1, 0.5, 0, 0], compute: [0, 0.5, 0.5, 0] });
  assert.deepEqual(shares(spans, [1, 2], 1), { wait: [0.5], compute: [0.5] });
  assert.deepEqual(shares([], [0, 1], 2), {});
});

test("a row lasts from its start to just before its end", () => {
  const some = [{ start: 1, stop: 2 }];
  assert.deepEqual([at(some, 0.9), at(some, 1), at(some, 2)], [[], some, []]);
});

test("two runs stand below one another on one axis", () => {
  const plan = layout([run, run], [2, 4], 1000);
  const [a, b] = plan.places;
  assert.ok(a.lanes[2] < b.top && b.lanes[2] < plan.bottom && plan.bottom < plan.height);
  assert.deepEqual([plan.x(2), plan.x(4), plan.x(3)], [plan.left, plan.right, (plan.left + plan.right) / 2]);
  assert.deepEqual([plan.x(-1), plan.x(9)], [plan.left, plan.right]);
});

test("a density has parts of lanes", () => {
  const lane = { gap: [0, 0], took: [5, 5], group: "03", part: [250, 1000], full: 1000 };
  const none = { gap: [], took: [] };
  const folded = {
    ...ROUND.runs[0],
    folded: true,
    lanes: ["workers 0–99"],
    spans: [lane],
    messages: none,
    waits: none,
    down: none,
  };
  const [crowd] = unpack({ ...ROUND, runs: [folded] }).runs;
  assert.equal(doing(crowd, 0, 1), "25 % compute");
  assert.equal(doing(crowd, 0, 6), "100 % wait");
  assert.deepEqual(marksOf([crowd]), [1, 9, 10]);
});
