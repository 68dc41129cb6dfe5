import assert from "node:assert/strict";
import { test } from "node:test";

const { along, nextMark, previousMark, progress, rateFor, standIn, watch } = await import(
  `${process.env.MINIPS_VIEWS}/race.mjs`
);

test("a message has a place between its start and its end only", () => {
  assert.deepEqual(
    [0, 1, 2, 3, 4].map((time) => progress(1, 3, time)),
    [null, 0, 0.5, 1, null],
  );
  assert.equal(progress(1, 1, 1), 1);
  assert.equal(progress(null, 3, 2), null);
  assert.equal(progress(1, null, 2), null);
});

test("a dot moves along all of a line at one speed", () => {
  const corner = [
    [0, 0],
    [10, 0],
    [10, 30],
  ];
  assert.deepEqual(
    [0, 0.125, 0.25, 0.5, 1].map((share) => along(corner, share)),
    [
      [0, 0],
      [5, 0],
      [10, 0],
      [10, 10],
      [10, 30],
    ],
  );
  assert.deepEqual(
    along(
      [
        [2, 3],
        [2, 3],
      ],
      0.5,
    ),
    [2, 3],
  );
});

test("the next and the previous event are those beside the time", () => {
  assert.deepEqual([nextMark([1, 2, 3], 2), previousMark([1, 2, 3], 2)], [3, 1]);
  assert.deepEqual([nextMark([1, 2, 3], 3), previousMark([1, 2, 3], 1)], [null, null]);
});

test("a run is watched for about ten seconds", () => {
  for (const duration of [2e-2, 0.28, 1, 9, 900]) {
    const seconds = duration / rateFor(duration);
    assert.ok(seconds > 3 && seconds < 33, `${duration} s are watched for ${seconds} s`);
  }
  assert.equal(rateFor(0), 1);
});

test("a page without a kernel hears of changes until it no longer listens", () => {
  const model = standIn({ data: 1 });
  const heard = [];
  const end = watch(model, "data", (value) => heard.push(value));
  model.set("data", 2);
  end();
  model.set("data", 3);
  assert.deepEqual(heard, [1, 2]);
});
