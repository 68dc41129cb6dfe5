import assert from "node:assert/strict";
import { test } from "node:test";

const { doingAt, dotsAt, sentBy } = await import(`${process.env.MINIPS_VIEWS}/playground.mjs`);

const moves = { start: [0, 1, 3], end: [2, 1, 5], bytes: [400, 100, 400], way: [0, 1, 0] };
const worker = { start: [0, 2, 6], seconds: [1, 2, 1], waits: ["", "worker 3", ""] };

test("a dot is on its way between the start and the end of its message", () => {
  const seen = (time) => dotsAt(moves, time, 5, 400).map(({ way, share }) => [way, share]);
  assert.deepEqual(seen(0), [[0, 0]]);
  assert.deepEqual(seen(0.5), [[0, 0.25]]);
  assert.deepEqual(seen(2.5), []);
  assert.deepEqual(seen(4), [[0, 0.5]]);
});

test("a message that takes no time is seen for a moment, and fades", () => {
  const shade = (time) => dotsAt(moves, time, 5, 400).find(({ way }) => way === 1)?.shade;
  assert.equal(shade(1), 1);
  assert.ok(shade(1.03) > 0.4 && shade(1.03) < 0.6);
  assert.equal(shade(1.1), undefined);
});

test("a dot with more bytes is larger, and none is larger than the largest", () => {
  const [large, small] = dotsAt(moves, 1, 5, 400).map(({ size }) => size);
  assert.deepEqual([large, small], [8, 5.5]);
});

test("a worker computes, waits, sends and is done", () => {
  assert.deepEqual(doingAt(worker, 0.25), { words: "computes", shares: [0.25, 0, 0] });
  assert.deepEqual(doingAt(worker, 1.5), { words: "its messages travel", shares: [0, 1, 0] });
  assert.deepEqual(doingAt(worker, 3), { words: "waits for worker 3", shares: [0, 0, 0.5] });
  assert.deepEqual(doingAt(worker, 8), { words: "is done", shares: [0, 0, 0] });
});

test("bytes are filled in as messages leave, without the answers", () => {
  assert.deepEqual(
    [0, 2.9, 3].map((time) => sentBy(moves, time)),
    [0.5, 0.5, 1],
  );
  assert.equal(sentBy({ start: [], bytes: [], way: [] }, 1), 1);
});
