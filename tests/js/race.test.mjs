import assert from "node:assert/strict";
import { test } from "node:test";

const { along, events, pieces, radius, standing } = await import(`${process.env.MINIPS_VIEWS}/race.mjs`);

const side = {
  seconds: 4,
  end: 4,
  links: [{ line: [0, 0, 10, 0] }, { line: [10, 2, 10, 22] }],
  pieces: [
    [0, 2, 100, "push_pull", 0, 1],
    [2, 4, 400, "reply", 1],
  ],
};

test("a piece travels over all links of its way", () => {
  const [first, second] = pieces(side);
  assert.deepEqual(along(first.way, 0), [0, 0]);
  assert.deepEqual(along(first.way, 1), [10, 22]);
  assert.deepEqual(along(second.way, 0.5), [10, 12]);
  assert.equal(second.kind, "reply");
});

test("a side says how many messages have arrived, and when it is done", () => {
  assert.equal(standing(side, 1).words, "0 of 2 messages have arrived");
  assert.equal(standing(side, 2).words, "1 of 2 messages have arrived");
  assert.equal(standing(side, 2).share, 0.5);
  assert.equal(standing(side, 9).words, "done after 4 s");
  assert.equal(standing(side, 9).share, 1);
  assert.equal(standing({ ...side, seconds: 3 }, 4).words, "done after 4 s, one step every 3 s");
  assert.equal(standing({ seconds: 0, end: 0, pieces: [] }, 0).share, 1);
});

test("the clock stops at each begin and end once", () => {
  assert.deepEqual(events([side, { pieces: [[0, 1, 5, "hop"]] }]), [0, 1, 2, 4]);
});

test("the area of a dot is its bytes, and small ones are seen", () => {
  assert.equal(radius(400, 400), 7);
  assert.equal(radius(200, 400) ** 2, radius(400, 400) ** 2 / 2);
  assert.ok(radius(1, 4e6) >= 2.5);
});
