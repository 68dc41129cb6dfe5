/* A run's trace, played back: a lane for each process, its spans, and messages that travel between the lanes.
   Times are seconds since the first event of all runs. */

const [LABEL, ROOM, HEAD, AXIS] = [96, 172, 28, 26];
const FINE = 400;
const HEIGHTS = { compute: 14, encode: 10, transfer: 4, wait: 6, decode: 10, update: 14 };

/* ---- data ---- */

/* Undo Python's `deltas`. */
function sums(differences) {
  let sum = 0;
  return differences.map((difference) => (sum += difference));
}

function unpack(data) {
  const groups = Object.keys(data.groups);
  const groupOf = (name) => groups.find((group) => data.groups[group].includes(name));
  const runs = data.runs.map((run, number) => ({
    ...run,
    steps: sums(run.steps).map((step) => step * data.tick),
    spans: run.folded ? run.shares.map((rows) => unfold(rows, groups, data)) : run.spans.map((lane) => unpackSpans(lane, groupOf, data)),
    messages: run.folded ? [] : unpackMessages(run.messages, data),
    waits: run.folded ? [] : unpackWaits(run.waits, number, data),
  }));
  const windows = Object.entries(data.windows).map(([name, ends]) => [name, ends.map((end) => end * data.tick)]);
  return { total: data.total * data.tick, groups, windows: Object.fromEntries(windows), runs };
}

function unpackSpans(lane, groupOf, { tick }) {
  let at = 0;
  return lane.gap.map((gap, i) => {
    const start = at + gap;
    at = start + lane.took[i];
    return { start: start * tick, stop: at * tick, group: groupOf(lane.name[i]), part: 1 };
  });
}

/* Spans of a lane for many processes: in each bin, a part of them is in a group. */
function unfold(rows, groups, { total, tick }) {
  return rows[0].flatMap((_, bin) => {
    const [start, stop] = [bin, bin + 1].map((edge) => (edge * total * tick) / rows[0].length);
    return groups.map((group, i) => ({ start, stop, group, part: rows[i][bin] / 1000 })).filter(({ part }) => part);
  });
}

function unpackMessages(columns, { tick, kinds }) {
  return sums(columns.start).map((left, i) => {
    const [from, to, nbytes, took] = ["from", "to", "nbytes", "took"].map((name) => columns[name][i]);
    const [start, stop] = [left * tick, (left + Math.max(took, 0)) * tick];
    return { kind: kinds[columns.kind[i]], from, to, nbytes, start, stop, broken: { "-1": "end", "-2": "start" }[took] };
  });
}

function unpackWaits(columns, run, { tick }) {
  const steps = sums(columns.step);
  return sums(columns.start).map((start, i) => ({
    run,
    lane: columns.who[i],
    step: steps[i],
    start: start * tick,
    stop: (start + columns.took[i]) * tick,
    since: (start - columns.since[i]) * tick,
    partners: columns.partners[i],
    chain: sums(columns.chain[i]),
  }));
}

/* The times at which something happens: messages leave and arrive, waits begin and end. Of a density: steps begin. */
function events(runs) {
  const times = runs.flatMap((run) => [...run.messages, ...run.waits].flatMap(({ start, stop }) => [start, stop]));
  return [...new Set(times.length ? times : runs.flatMap((run) => run.steps))].sort((a, b) => a - b);
}

function at(rows, time) {
  return rows.filter((row) => row.start <= time && time < row.stop);
}

function inside(rows, [from, to]) {
  return rows.filter((row) => row.stop >= from && row.start <= to);
}

function longest(waits) {
  return waits.reduce((most, wait) => (most && most.stop - most.start >= wait.stop - wait.start ? most : wait), null);
}

/* The number of the step at a time. `steps` are the steps' starts and the last one's end. */
function stepAt(steps, time) {
  return Math.max(0, Math.min(steps.findLastIndex((start) => start <= time), steps.length - 2));
}

/* Eight steps, counted in the trace, from a time on. */
function eightFrom(steps, time) {
  const first = Math.max(0, Math.min(stepAt(steps, time), steps.length - 9));
  return [steps[first], steps[Math.min(first + 8, steps.length - 1)]];
}

/* The share of each group in each of `count` equal parts of a window. */
function shares(spans, [from, to], count) {
  const width = (to - from) / count;
  const found = {};
  for (const { start, stop, group, part } of spans) {
    const column = (found[group] ??= new Array(count).fill(0));
    const last = Math.min(count - 1, Math.floor((stop - from) / width));
    for (let i = Math.max(0, Math.floor((start - from) / width)); i <= last; i++) {
      const covered = Math.min(stop, from + (i + 1) * width) - Math.max(start, from + i * width);
      column[i] += (part * Math.max(0, covered)) / width;
    }
  }
  return found;
}

/* The critical path to the end of a wait: work in a lane, and messages. */
function stretches({ messages }, { since, chain }) {
  return chain.flatMap((number, i) => {
    const message = messages[number];
    const work = { lane: message.from, start: i ? messages[chain[i - 1]].stop : since, stop: message.start };
    return [work, { message, lane: message.from, to: message.to, start: message.start, stop: message.stop }];
  });
}

/* ---- words ---- */

const DOES = { compute: "computes", encode: "encodes", wait: "waits", decode: "decodes", update: "updates" };

function listed(names) {
  return names.length > 1 ? `${names.slice(0, -1).join(", ")} and ${names.at(-1)}` : names.join("");
}

function counted(number, noun) {
  return `${number} ${noun}${number === 1 ? "" : "s"}`;
}

/* What a lane does at a time, such as "waits for worker 3" or "61 % computes, 39 % waits". */
function doing(run, lane, time) {
  const partner = at(run.waits, time).find((wait) => wait.lane === lane)?.partners[0];
  const parts = at(run.spans[lane], time).sort((a, b) => b.part - a.part);
  if (run.folded) return parts.slice(0, 2).map(({ part, group }) => `${Math.round(100 * part)} % ${DOES[group]}`).join(", ");
  return partner === undefined ? (DOES[parts[0]?.group] ?? "") : `waits for ${run.lanes[partner]}`;
}

/* What happens at a time, in each run. */
function momentWords({ runs }, time) {
  const said = runs.map((run) => {
    const lanes = [...new Set(at(run.waits, time).map((wait) => wait.lane))];
    const who = lanes.length > 3 ? counted(lanes.length, "worker") : listed(lanes.map((lane) => run.lanes[lane]));
    const waiting = lanes.length ? `${who} wait${lanes.length > 1 ? "" : "s"}` : "nobody waits";
    const under = counted(at(run.messages, time).length, "message");
    const step = run.steps.length ? [`step ${stepAt(run.steps, time) + 1} of ${run.steps.length - 1}`] : [];
    return [run.title, ...step, ...(run.folded ? [] : [waiting, `${under} on the way`])].join(", ");
  });
  return `At ${formatSeconds(time)}: ${said.join("; ")}.`;
}

/* For whom a wait was, and the chain of events that ended it. */
function waitWords(run, wait) {
  const partners = wait.partners.map((partner) => run.lanes[partner]);
  const chain = stretches(run, wait).map(({ message, lane, start, stop }) => {
    const took = formatSeconds(stop - start);
    if (message) return `${message.kind} of ${formatBytes(message.nbytes)}, ${took}`;
    const found = shares(run.spans[lane].filter(({ group }) => group !== "wait"), [start, stop], 1);
    const most = Object.keys(found).sort((a, b) => found[b][0] - found[a][0])[0];
    return `${run.lanes[lane]} ${DOES[most] ?? "works"}, ${took}`;
  });
  const who = `${run.lanes[wait.lane]} waits ${formatSeconds(wait.stop - wait.start)} in step ${wait.step}`;
  const others = partners.length > 1 ? ` (and, before that, for ${listed(partners.slice(1))})` : "";
  return `${who}${partners.length ? ` for ${partners[0]}${others}` : ""}. It ended by: ${chain.join(" → ")}.`;
}

/* ---- the picture ---- */

function layout(runs, width) {
  let y = 0;
  const places = runs.map((run) => {
    const [top, lane] = [y + HEAD, run.lanes.length > 12 ? 18 : 28];
    y = top + lane * run.lanes.length;
    return { top, lane, lanes: run.lanes.map((_, i) => top + lane * (i + 0.5)) };
  });
  const wide = width >= 720;
  return { places, wide, left: LABEL, right: width - (wide ? ROOM : 14), bottom: y, width, height: y + AXIS };
}

function scale({ left, right }, [from, to]) {
  return (time) => left + Math.min(Math.max((time - from) / (to - from), 0), 1) * (right - left);
}

function bar(x, to, y, height) {
  const width = Math.max(to - x, 1.2).toFixed(1);
  return `M${x.toFixed(1)} ${y - height / 2}h${width}v${height}h-${width}z`;
}

function drawLane(run, spans, place, y, window, x) {
  if (run.folded || spans.length > FINE) return drawShares(shares(spans, window, FINE / 2), place.lane - 4, y, window, x);
  const drawn = Object.keys(HEIGHTS).filter((group) => group !== "transfer" || !run.messages.length);
  return drawn.map((group) => {
    const mine = spans.filter((span) => span.group === group).map(({ start, stop }) => [x(start), x(stop)]);
    const line = ([start, stop]) => (group === "wait" ? `M${start} ${y}H${stop}` : bar(start, stop, y, HEIGHTS[group]));
    return svg("path", { class: `minips-${group}`, d: mine.map(line).join("") });
  });
}

function drawShares(found, height, y, [from, to], x) {
  const base = [];
  return Object.entries(found).map(([group, column]) => {
    const width = (to - from) / column.length;
    const boxes = column.map((share, i) => {
      const [low, high] = [base[i] ?? 0, Math.min((base[i] ?? 0) + share, 1)];
      base[i] = high;
      const [left, right] = [x(from + i * width), x(from + (i + 1) * width)];
      return high - low < 0.01 ? "" : bar(left, right, y + (0.5 - (low + high) / 2) * height, (high - low) * height);
    });
    return svg("path", { class: `minips-${group} minips-share`, d: boxes.join("") });
  });
}

function look(run, message) {
  const role = run.lanes[message.from].startsWith("server") ? "minips-answer" : "minips-sent";
  return message.broken ? `${role} minips-lost` : role;
}

/* The lines of messages. If one end is not known, the line breaks off half way. */
function drawMessages(run, place, window, x) {
  const paths = {};
  const shown = inside(run.messages, window);
  for (const message of shown) {
    const [y, to] = [place.lanes[message.from], place.lanes[message.to]];
    const [start, stop, half] = [x(message.start), x(message.stop), (y + to) / 2];
    const lines = { end: `M${start} ${y}L${start + 9} ${half}m-4 -4l8 8m0 -8l-8 8`, start: `M${stop - 9} ${half}L${stop} ${to}` };
    (paths[look(run, message)] ??= []).push(lines[message.broken] ?? `M${start} ${y}L${stop} ${to}`);
  }
  const opacity = Math.min(0.85, Math.max(0.12, 120 / shown.length));
  return Object.entries(paths).map(([name, d]) => svg("path", { class: name, opacity, d: d.join("") }));
}

function drawAxis({ left, right, bottom }, [from, to], x) {
  const rough = ((to - from) * 90) / (right - left);
  const power = 10 ** Math.floor(Math.log10(rough));
  const every = [1, 2, 5, 10].map((factor) => factor * power).find((one) => one >= rough);
  const numbers = Array.from({ length: Math.floor(to / every) - Math.ceil(from / every) + 1 }, (_, i) => i + Math.ceil(from / every));
  return numbers.map((number) => [
    svg("path", { class: "minips-grid", d: `M${x(number * every)} ${HEAD - 4}V${bottom + 4}` }),
    svg("text", { x: x(number * every), y: bottom + 18, "text-anchor": "middle" }, formatSeconds(number * every)),
  ]);
}

/* All that stays while a window is played. */
function drawWindow({ data, window, plan }) {
  const x = scale(plan, window);
  const runs = data.runs.map((run, i) => {
    const place = plan.places[i];
    const lanes = run.lanes.map((name, lane) => [
      svg("text", { x: LABEL - 10, y: place.lanes[lane] + 4, "text-anchor": "end" }, name),
      svg("path", { class: "minips-grid", d: `M${plan.left} ${place.lanes[lane]}H${plan.right}` }),
      drawLane(run, inside(run.spans[lane], window), place, place.lanes[lane], window, x),
    ]);
    const title = svg("text", { x: 0, y: place.top - 9, class: "minips-title" }, run.title);
    return [title, lanes, drawMessages(run, place, window, x)];
  });
  return [drawAxis(plan, window, x), runs];
}

/* The chain that ended a wait, as a line through the lanes. */
function drawChain({ data, window, plan }, wait) {
  if (!wait) return null;
  const [run, { lanes }, x] = [data.runs[wait.run], plan.places[wait.run], scale(plan, window)];
  const path = stretches(run, wait).map((one) => `M${x(one.start)} ${lanes[one.lane]}L${x(one.stop)} ${lanes[one.to ?? one.lane]}`);
  const [left, width] = [x(wait.start), Math.max(x(wait.stop) - x(wait.start), 3)];
  return [
    svg("rect", { class: "minips-chosen", x: left, y: lanes[wait.lane] - 8, width, height: 16, rx: 3 }),
    ["minips-chain minips-under", "minips-chain"].map((name) => svg("path", { class: name, d: path.join("") })),
  ];
}

/* All that changes with the time: the clock's line, the dots, and what each lane does. */
function drawTime({ data, window, plan, time }) {
  const now = scale(plan, window)(time);
  const most = Math.max(...data.runs.flatMap((run) => run.messages.map((message) => message.nbytes)), 1);
  const runs = data.runs.map((run, i) => {
    const { lanes } = plan.places[i];
    const dots = at(run.messages, time).map((message) => {
      const share = progress(message.start, message.stop, time);
      const [cx, cy] = along([message.from, message.to].map((lane) => [now, lanes[lane]]), share);
      return svg("circle", { class: look(run, message), cx, cy, r: 3 + 4 * Math.sqrt(message.nbytes / most) });
    });
    const words = plan.wide && lanes.map((y, lane) => svg("text", { x: plan.right + 12, y: y + 4 }, doing(run, lane, time)));
    return [dots, words];
  });
  const [top, height] = [HEAD - 6, plan.bottom - HEAD + 10];
  return [
    time > window[0] && svg("rect", { class: "minips-later", x: now, y: top, width: plan.right - now, height }),
    svg("path", { class: "minips-now", d: `M${now} ${top}v${height}` }),
    runs,
  ];
}

function drawLegend({ runs, groups }) {
  const mark = (name, type, d) =>
    html("span", {}, svg("svg", { width: 20, height: 14, "aria-hidden": "true" }, svg("path", { class: `minips-${type}`, d })), name);
  const broken = runs.some((run) => run.messages.some((message) => message.broken));
  return [
    groups.map((group) => !["transfer", "wait"].includes(group) && mark(group, group, bar(0, 15, 7, HEIGHTS[group]))),
    mark("wait", "wait", "M0 7H15"),
    mark("message of a worker", "sent", "M0 12L15 2"),
    mark("of a server", "answer", "M0 2L15 12"),
    broken && mark("lost", "sent minips-lost", "M0 2L9 7m-3 -3l6 6m0 -6l-6 6"),
    mark("chain that ended a wait", "chain", "M0 7H15"),
  ];
}

/* ---- the page ---- */

function fill(node, children) {
  node.replaceChildren();
  build(node, {}, [children]);
}

/* A window around the time, wider by a factor. */
function zoom({ data, window, time }, factor) {
  const half = Math.min(((window[1] - window[0]) * factor) / 2, data.total / 2);
  const middle = Math.min(Math.max(time, half), data.total - half);
  return [middle - half, middle + half];
}

function render({ model, el }) {
  const [still, chain, moving] = [1, 2, 3].map(() => svg("g", {}));
  const picture = svg("svg", { class: "minips-lanes", role: "img", onclick: choose }, still, chain, moving);
  const moment = html("p", { class: "minips-moment" });
  const legend = html("p", { class: "minips-legend" });
  const state = { data: unpack(model.get("data")), chosen: null };
  const waits = () => state.data.runs.flatMap((run) => run.waits);
  const clock = player({ duration: state.data.total, draw: (time) => draw(time) });
  const button = (name, window) => html("button", { type: "button", onclick: () => turn(...window()) }, name);
  const buttons = [
    button("the longest wait", () => [state.data.windows.wait, longest(waits())]),
    button("eight steps", () => [eightFrom(state.data.runs[0].steps, state.time), null]),
    button("all of it", () => [state.data.windows.all, null]),
    button("closer", () => [zoom(state, 0.5), state.chosen]),
    button("wider", () => [zoom(state, 2), state.chosen]),
  ];
  el.classList.add("minips-replay");
  clock.el.append(html("div", { class: "minips-windows", role: "group", "aria-label": "what is shown" }, buttons));
  el.append(clock.el, picture, legend, moment, said(model));

  function draw(time) {
    state.time = time;
    if (!state.plan) return;
    const [from, to] = state.window;
    if (time < from || time > to) {
      const start = Math.max(0, Math.min(time, state.data.total - (to - from)));
      state.window = [start, start + (to - from)];
      redraw();
    }
    const playing = clock.playing();
    const wait = state.chosen ?? (playing ? null : longest(at(waits(), time)));
    fill(moving, drawTime(state));
    fill(chain, drawChain(state, wait));
    moment.setAttribute("aria-live", playing ? "off" : "polite");
    moment.textContent = `${momentWords(state.data, time)} ${wait ? waitWords(state.data.runs[wait.run], wait) : ""}`;
  }

  function redraw() {
    const width = Math.max(el.clientWidth - 16, 320);
    state.plan = layout(state.data.runs, width);
    build(picture, { width, height: state.plan.height }, []);
    fill(still, drawWindow(state));
  }

  /* Show a window and the chain of a wait. */
  function turn(window, wait) {
    Object.assign(state, { window, chosen: wait });
    clock.pace(window[1] - window[0]);
    redraw();
    clock.seek(wait || state.time < window[0] || state.time > window[1] ? window[0] : state.time);
  }

  /* Go to the time under the pointer, and choose the wait there. */
  function choose(event) {
    const box = picture.getBoundingClientRect();
    const { left, right, places } = state.plan;
    const [from, to] = state.window;
    const time = from + ((event.clientX - box.left - left) / (right - left)) * (to - from);
    if (time < from || time > to) return;
    const near = (wait) => Math.abs(places[wait.run].lanes[wait.lane] - event.clientY + box.top) <= places[wait.run].lane / 2;
    state.chosen = at(waits(), time).find(near) ?? null;
    clock.pause();
    clock.seek(time);
  }

  const ended = watch(model, "data", (data) => {
    state.data = unpack(data);
    const { total, runs, windows } = state.data;
    clock.set({ duration: total, marks: events(runs) });
    buttons[0].hidden = !windows.wait;
    buttons[1].hidden = !runs[0].steps.length;
    fill(legend, drawLegend(state.data));
    turn(windows.eight ?? windows.all, null);
  });
  const resized = new ResizeObserver(() => turn(state.window, state.chosen));
  resized.observe(el);
  return () => [ended(), resized.disconnect(), clock.pause()];
}
