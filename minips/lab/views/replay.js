/* A run's trace, played back: a lane for each process, its spans, and messages that travel between the lanes.
   Times are seconds since the first event of all runs. */

const DOES = { compute: "computes", encode: "encodes", decode: "decodes", update: "updates" };
const BARS = [...Object.keys(DOES), "wait"];
const TRAFFIC = ["sent", "answer"];
const DENSE = 900;
const ROUNDING_S = 1e-10;
const LINES = { down: "M1 2H18V12H1zM4 12l4 -10M10 12l4 -10", kill: "M4 2l10 10m0 -10l-10 10" };

/* ---- data ---- */

/* Rows with times, from Python's columns. Of lost messages, `took` says which end is not known. */
function rows({ gap, took, ...others }, tick) {
  let end = 0;
  return gap.map((distance, i) => {
    const start = end + distance;
    end = start + Math.max(took[i], 0);
    const row = { start: start * tick, stop: end * tick, lost: Math.max(-took[i], 0) };
    for (const name of Object.keys(others)) row[name] = others[name][i];
    return row;
  });
}

function unpack({ tick, total, groups, kinds, windows, longest: [which, number], runs }) {
  const busy = (row, group, part = 1) => ({ ...row, group, part });
  const unpacked = runs.map((run, place) => {
    const isServer = run.lanes.map((name) => name.startsWith("server"));
    const look = (message) => (isServer[message.from] ? "answer" : "sent");
    const messages = rows(run.messages, tick).map((one) => ({ ...one, kind: kinds[one.kind], look: look(one) }));
    const waits = rows(run.waits, tick).map((one) => ({ ...one, run: place, since: one.start - one.since * tick }));
    const spans = run.spans.map(({ full = 1, ...columns }, lane) => {
      const own = messages.filter(({ from, to }) => !isServer[lane] && [from, to].includes(lane));
      const waited = waits.filter((wait) => wait.lane === lane);
      return [
        ...rows(columns, tick).map((one) => busy(one, groups[one.group], (one.part ?? 1) / full)),
        ...waited.map((one) => busy(one, "wait")),
        ...own.map((one) => busy(one, "transfer")),
      ];
    });
    const [down, kills] = [rows(run.down, tick), run.kills && rows(run.kills, tick)];
    return { ...run, messages, waits, spans, down, kills, steps: run.steps.map((step) => step * tick) };
  });
  const seconds = Object.entries(windows).map(([name, ends]) => [name, ends.map((end) => end * tick)]);
  const most = Math.max(1, ...runs.map((run) => run.most));
  const chosen = unpacked[which]?.waits[number];
  return { total: total * tick, windows: Object.fromEntries(seconds), runs: unpacked, most, longest: chosen };
}

function at(some, time) {
  return some.filter((row) => row.start <= time && time < row.stop);
}

function inside(some, [from, to]) {
  return some.filter((row) => row.stop >= from && row.start <= to);
}

function longest(waits) {
  return waits.reduce((most, wait) => (most && most.stop - most.start >= wait.stop - wait.start ? most : wait), null);
}

/* The times at which something happens: messages leave and arrive, waits begin and end. Of a density: steps begin. */
function marksOf(runs) {
  const times = runs.flatMap((run) => [...run.messages, ...run.waits].flatMap(({ start, stop }) => [start, stop]));
  return [...new Set(times.length ? times : runs.flatMap((run) => run.steps))].sort((a, b) => a - b);
}

/* The place of a time among steps, which are their starts and the end of the last one. */
function stepAt(steps, time) {
  const place = steps.findLastIndex((start) => start <= time);
  return Math.max(0, Math.min(place, steps.length - 2));
}

/* Eight steps, counted in the trace, from a time on. */
function eightFrom(steps, time) {
  const first = Math.max(0, Math.min(stepAt(steps, time), steps.length - 9));
  return [steps[first], steps[Math.min(first + 8, steps.length - 1)]];
}

/* The share of each group in each of `count` equal parts of a window. */
function shares(spans, [from, to], count) {
  const [found, width] = [{}, (to - from) / count];
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

/* The critical path to the end of a wait: work in a lane, then a message, and so on. */
function stretches({ messages }, { since, chain }) {
  return chain.flatMap((number, i) => {
    const [message, start] = [messages[number], i ? messages[chain[i - 1]].stop : since];
    return [{ from: message.from, to: message.from, start, stop: message.start }, message];
  });
}

/* ---- words ---- */

/* "worker 0, worker 1" or "5 workers". */
function parties(run, lanes) {
  const names = [...new Set(lanes)].sort((a, b) => a - b).map((lane) => run.lanes[lane]);
  const kind = names.some((name) => name.startsWith("server")) ? "processes" : "workers";
  return names.length > 4 ? `${names.length} ${kind}` : names.join(", ");
}

/* What a lane does at a time, such as "waits for worker 3" or, of many processes, "61 % compute". */
function doing(run, lane, time) {
  const wait = at(run.waits, time).find((one) => one.lane === lane);
  const [most] = at(run.spans[lane], time).sort((a, b) => b.part - a.part);
  if (at(run.down, time).some((one) => one.lane === lane)) return "is down";
  if (run.folded) return most && !TRAFFIC.includes(most.group) ? `${Math.round(100 * most.part)} % ${most.group}` : "";
  return wait ? `waits${forWhom(run, wait)}` : (DOES[most?.group] ?? "");
}

function forWhom(run, { partners: [decides] }) {
  return decides === undefined ? "" : ` for ${run.lanes[decides]}`;
}

/* What happens in a run at a time. */
function momentWords(run, time) {
  const waits = at(run.waits, time);
  const waiting = [...new Set(waits.map((wait) => forWhom(run, wait)))].map((whom) => {
    const lanes = waits.filter((wait) => forWhom(run, wait) === whom).map((wait) => wait.lane);
    return `waiting${whom}: ${parties(run, lanes)}`;
  });
  const travelling = at(run.messages, time).length;
  const step = run.steps.length && `${run.worker} is in step ${run.first + stepAt(run.steps, time)}`;
  if (time >= run.steps.at(-1)) return "the run has ended";
  const dead = at(run.down, time).map(({ lane }) => lane);
  const down = dead.length && `down: ${parties(run, dead)}`;
  const parts = [step, down, ...waiting, travelling && `messages on their way: ${travelling}`].filter(Boolean);
  return parts.join("; ") || "nothing is recorded here";
}

/* For whom a wait was, and the chain of events that ended it. */
function waitWords(run, wait) {
  const worked = stretches(run, wait).filter(({ kind, start, stop }) => kind || stop - start > ROUNDING_S);
  const chain = worked.map(({ kind, nbytes, from, start, stop }) => {
    const took = formatSeconds(stop - start);
    if (kind) return `${kind.replace("_", " and ")} of ${formatBytes(nbytes)}, ${took}`;
    const found = Object.entries(shares(run.spans[from], [start, stop], 1));
    const [most] = found.filter(([group, [share]]) => DOES[group] && share > 0).sort((a, b) => b[1][0] - a[1][0]);
    return `${run.lanes[from]} ${most ? DOES[most[0]] : "works"}, ${took}`;
  });
  const others = wait.partners.length > 1 ? ` (also for ${parties(run, wait.partners.slice(1))})` : "";
  const waited = `${run.lanes[wait.lane]} waits ${formatSeconds(wait.stop - wait.start)} in step ${wait.step}`;
  return `${waited}${forWhom(run, wait)}${others}. ${chain.length ? `What ended it: ${chain.join(" → ")}.` : ""}`;
}

/* ---- the picture ---- */

/* Where everything is: the y of each run and lane, and the x of each time. */
function layout(runs, [from, to], width) {
  let bottom = 0;
  const places = runs.map((run) => {
    const [top, lane] = [bottom + 28, run.lanes.length > 12 ? 18 : 28];
    bottom = top + lane * run.lanes.length;
    return { top, lane, lanes: run.lanes.map((_, i) => top + lane * (i + 0.5)) };
  });
  const left = 24 + 7 * Math.max(...runs.flatMap((run) => run.lanes.map((name) => name.length)));
  const right = width - (width >= 720 ? 150 : 14);
  const x = (time) => left + Math.min(Math.max((time - from) / (to - from), 0), 1) * (right - left);
  return { places, bottom, left, right, x, width, height: bottom + 26 };
}

function write(x, y, words, attributes) {
  return svg("text", { x, y: y + 4, ...attributes }, words);
}

/* The bars of spans, as thick lines. Those of messages show the transfers. */
function drawSpans(spans, y, x) {
  return BARS.map((group) => {
    const mine = spans.filter((span) => span.group === group);
    const lines = mine.map(({ start, stop }) => `M${x(start)} ${y}H${Math.max(x(stop), x(start) + 1.5)}`);
    return svg("path", { class: `minips-bar minips-${group}`, d: lines.join("") });
  });
}

/* Spans that are too many to tell apart, as stacked shares of time. */
function drawShares(spans, y, height, [from, to], x) {
  const base = new Array(DENSE / 3).fill(y + height / 2);
  const width = (to - from) / base.length;
  const thick = x(from + width) - x(from) + 0.3;
  return Object.entries(shares(spans, [from, to], base.length)).map(([group, column]) => {
    const lines = column.map((share, i) => {
      const [low, high] = [base[i], Math.max(base[i] - share * height, y - height / 2)];
      base[i] = high;
      return low - high > 0.2 ? `M${x(from + (i + 0.5) * width)} ${low}V${high}` : "";
    });
    return svg("path", { class: `minips-${group}`, "stroke-width": thick, d: lines.join("") });
  });
}

/* The lines of messages. One that was never seen to arrive, or to leave, breaks off half way. */
function drawMessages(messages, { lanes }, x) {
  const paths = {};
  for (const message of messages) {
    const [y, to, start, stop] = [lanes[message.from], lanes[message.to], x(message.start), x(message.stop)];
    const half = (y + to) / 2;
    const broken = [`M${start} ${y}L${start + 9} ${half}m-4 -4l8 8m0 -8l-8 8`, `M${stop - 9} ${half}L${stop} ${to}`];
    const name = `minips-${message.look}${message.lost ? " minips-lost" : ""}`;
    (paths[name] ??= []).push([`M${start} ${y}L${stop} ${to}`, ...broken][message.lost]);
  }
  const opacity = Math.min(0.85, Math.max(0.2, 150 / messages.length));
  return Object.entries(paths).map(([name, d]) => svg("path", { class: name, opacity, d: d.join("") }));
}

/* Hatched stretches, with a name where there is room for it. */
function drawDown(down, { lanes }, { x }) {
  return down.map(({ lane, start, stop }) => {
    const [y, left, right] = [lanes[lane], x(start), x(stop)];
    const [middle, room] = [(left + right) / 2, right - left > 60 ? 20 : -6];
    const places = Array.from({ length: Math.max(0, Math.floor((right - left) / 6)) }, (_, i) => left + 6 * i);
    const lines = places.filter((one) => Math.abs(one + 3 - middle) > room).map((one) => `M${one} ${y + 8}l6 -16`);
    const d = `M${left} ${y - 8}H${right}V${y + 8}H${left}z${lines.join("")}`;
    const name = room > 0 && write(middle, y, "down", { "text-anchor": "middle" });
    return [svg("path", { class: "minips-down", d }), name];
  });
}

/* The kills that are planned, as crosses. */
function drawKills(kills, { lanes }, { x }) {
  const crosses = kills.map(({ lane, start }) => `M${x(start) - 6} ${lanes[lane] - 6}l12 12m0 -12l-12 12`);
  return ["minips-kill minips-under", "minips-kill"].map((name) => svg("path", { class: name, d: crosses.join("") }));
}

/* The lane of the first run that a click puts a kill on, and its time; null outside of the lanes. */
function killAt({ data, plan, window: [from, to] }, x, y) {
  const [run] = data.runs;
  const [{ lane: height, lanes }] = plan.places;
  const lane = lanes.findIndex((middle) => Math.abs(middle - y) <= height / 2);
  if (!run.kills || lane < 0 || x < plan.left || x > plan.right) return null;
  const second = (to - from) / (plan.right - plan.left);
  return { who: run.lanes[lane], at: from + (x - plan.left) * second, near: 8 * second };
}

function drawAxis({ left, right, width, bottom, x }, [from, to]) {
  const rough = ((to - from) * 90) / (right - left);
  const power = 10 ** Math.floor(Math.log10(rough));
  const every = [1, 2, 5, 10].map((factor) => factor * power).find((one) => one >= rough);
  const first = Math.ceil(from / every);
  const times = Array.from({ length: Math.floor(to / every) - first + 1 }, (_, i) => (first + i) * every);
  return times.map((time) => [
    svg("path", { class: "minips-grid", d: `M${x(time)} 24V${bottom + 4}` }),
    write(x(time), bottom + 14, formatSeconds(time), { "text-anchor": x(time) + 24 > width ? "end" : "middle" }),
  ]);
}

/* All that stays while a window is played. */
function drawWindow({ data, window, plan }) {
  const runs = data.runs.map((run, i) => {
    const place = plan.places[i];
    const spans = run.spans.map((lane) => inside(lane, window));
    const dense = run.folded || spans.some((lane) => lane.length > DENSE);
    const lanes = place.lanes.map((y, lane) => [
      write(plan.left - 10, y, run.lanes[lane], { "text-anchor": "end" }),
      svg("path", { class: "minips-grid", d: `M${plan.left} ${y}H${plan.right}` }),
      dense ? drawShares(spans[lane], y, place.lane - 4, window, plan.x) : drawSpans(spans[lane], y, plan.x),
    ]);
    const title = write(0, place.top - 13, run.title, { class: "minips-title" });
    const down = drawDown(inside(run.down, window), place, plan);
    const kills = run.kills && drawKills(inside(run.kills, window), place, plan);
    return [title, lanes, !dense && drawMessages(inside(run.messages, window), place, plan.x), down, kills];
  });
  return [drawAxis(plan, window), runs];
}

/* A wait, and the chain that ended it as a line through the lanes. */
function drawChain({ data, plan: { places, x } }, wait) {
  if (!wait) return [];
  const { lanes } = places[wait.run];
  const lines = stretches(data.runs[wait.run], wait).map(
    ({ from, to, start, stop }) => `M${x(start)} ${lanes[from]}L${x(stop)} ${lanes[to]}`,
  );
  const [left, y] = [x(wait.start), lanes[wait.lane] - 8];
  const width = Math.max(x(wait.stop) - left, 3);
  const path = (name) => svg("path", { class: name, d: lines.join("") });
  const box = svg("rect", { class: "minips-chosen", x: left, y, width, height: 16, rx: 3 });
  return [box, path("minips-chain minips-under"), path("minips-chain")];
}

/* All that changes with the time: its line, the dots, and what each lane does. */
function drawTime({ data, window, plan, time }) {
  const [x, height] = [plan.x(time), plan.bottom - 18];
  const runs = data.runs.map((run, i) => {
    const { lanes } = plan.places[i];
    const dots = at(run.messages, time).map((message) => {
      const share = progress(message.start, message.stop, time);
      const cy = lanes[message.from] + share * (lanes[message.to] - lanes[message.from]);
      const r = 3 + 4 * Math.sqrt(message.nbytes / data.most);
      return svg("circle", { class: `minips-${message.look}`, cx: x, cy, r });
    });
    const words = plan.width >= 720 && lanes.map((y, lane) => write(plan.right + 12, y, doing(run, lane, time)));
    return [dots, words];
  });
  const later = { class: "minips-later", x, y: 22, width: plan.right - x, height };
  return [time > window[0] && svg("rect", later), svg("path", { class: "minips-now", d: `M${x} 22v${height}` }), runs];
}

function drawLegend({ runs }) {
  const has = (group) => runs.some((run) => run.spans.some((lane) => lane.some((span) => span.group === group)));
  const lines = { "transfer from a worker": "sent", "from a server": "answer", "what ended a wait": "chain" };
  if (runs.some((run) => run.messages.some((message) => message.lost))) lines.lost = "sent minips-lost";
  if (runs.some((run) => run.down.length)) lines.down = "down";
  if (runs[0].kills?.length) lines["a kill"] = "kill";
  const bars = BARS.filter(has).map((group) => [group, `bar minips-${group}`]);
  return [...bars, ...Object.entries(lines)].map(([name, type]) => {
    const line = svg("path", { class: `minips-${type}`, d: LINES[type] ?? "M0 7H15" });
    return html("span", {}, svg("svg", { width: 20, height: 14, "aria-hidden": "true" }, line), name);
  });
}

/* ---- the page ---- */

function fill(node, children) {
  node.replaceChildren();
  build(node, {}, [children]);
}

function render({ model, el }) {
  const layers = [1, 2, 3].map(() => svg("g", {}));
  const picture = svg("svg", { class: "minips-lanes", role: "img", onclick: choose }, layers);
  const lines = ["legend", "moment", "why"].map((name) => html("p", { class: `minips-${name}` }));
  const state = { data: unpack(model.get("data")), chosen: null };
  const waits = () => state.data.runs.flatMap((run) => run.waits);
  const clock = player({ duration: state.data.total, draw: (time) => draw(time) });
  const buttons = Object.entries({
    "the longest wait": () => turn(state.data.windows.wait, state.data.longest),
    "next wait": nextWait,
    "eight steps": () => turn(eightFrom(state.data.runs[0].steps, state.time)),
    "all of it": () => turn(state.data.windows.all),
    closer: () => zoom(0.5),
    wider: () => zoom(2),
  }).map(([name, onclick]) => html("button", { type: "button", onclick }, name));
  el.classList.add("minips-replay");
  clock.el.append(html("div", { class: "minips-windows", role: "group", "aria-label": "what is shown" }, buttons));
  el.append(clock.el, picture, ...lines, said(model));

  function draw(time) {
    state.time = time;
    if (!state.plan) return;
    const [from, to] = state.window;
    if (time < from || time > to) frame(within(time, time + to - from));
    const wait = state.chosen ?? (clock.playing() ? null : longest(at(waits(), time)));
    fill(layers[1], drawChain(state, wait));
    fill(layers[2], drawTime(state));
    for (const line of lines.slice(1)) line.setAttribute("aria-live", clock.playing() ? "off" : "polite");
    const names = state.data.runs.length > 1 ? ["A: ", "B: "] : [""];
    lines[1].textContent = state.data.runs.map((run, i) => `${names[i]}${momentWords(run, time)}.`).join(" ");
    lines[2].textContent = wait ? waitWords(state.data.runs[wait.run], wait) : "";
  }

  function frame(window) {
    state.window = window;
    state.plan = layout(state.data.runs, window, Math.max(el.clientWidth - 16, 240));
    const { width, height } = state.plan;
    build(picture, { width, height, "aria-label": state.data.runs.map((run) => run.title).join(", ") }, []);
    fill(layers[0], drawWindow(state));
  }

  /* The nearest window of the same length that is in the run. */
  function within(from, to) {
    const over = Math.min(from, 0) || Math.max(to - state.data.total, 0);
    return [Math.max(from - over, 0), Math.min(to - over, state.data.total)];
  }

  /* Show a window, and the chain of a wait. */
  function turn(window, chosen = null) {
    clock.pause();
    clock.pace(window[1] - window[0]);
    state.chosen = chosen;
    frame(window);
    clock.seek(state.time < window[0] || state.time > window[1] ? window[0] : state.time);
  }

  function nextWait() {
    const all = waits().sort((a, b) => a.start - b.start);
    const place = state.chosen ? all.indexOf(state.chosen) + 1 : all.findIndex((wait) => wait.stop > state.time);
    state.chosen = all[place] ?? all[0];
    clock.pause();
    clock.seek(state.chosen.start);
  }

  function zoom(factor) {
    const half = (factor * (state.window[1] - state.window[0])) / 2;
    turn(within(state.time - half, state.time + half), state.chosen);
  }

  /* Go to the time under the pointer, and choose the wait there. */
  function choose(event) {
    const { left: over, top } = picture.getBoundingClientRect();
    const [{ left, right, places }, [from, to]] = [state.plan, state.window];
    const time = from + ((event.clientX - over - left) / (right - left)) * (to - from);
    if (time < from || time > to) return;
    const kill = killAt(state, event.clientX - over, event.clientY - top);
    if (kill) return ask(model, kill);
    const far = (wait) => Math.abs(places[wait.run].lanes[wait.lane] - event.clientY + top);
    state.chosen = at(waits(), time).find((wait) => far(wait) <= places[wait.run].lane / 2) ?? null;
    clock.pause();
    clock.seek(time);
    clock.el.querySelector("input").focus(); // for the keys
  }

  const ended = watch(model, "data", (data) => {
    const [{ total: before, runs: seen }, { window, time }] = [state.data, state];
    Object.assign(state, { data: unpack(data), plan: null });
    const { total, runs, windows } = state.data;
    clock.set({ duration: total, marks: marksOf(runs) });
    if (window && before === total && seen.length === runs.length) {
      frame(window); // only its kills have changed
      return clock.seek(time);
    }
    buttons[0].hidden = buttons[1].hidden = !windows.wait;
    buttons[2].hidden = !runs[0].steps.length;
    fill(lines[0], drawLegend(state.data));
    turn(windows.eight ?? windows.all);
  });
  const resized = new ResizeObserver(() => [frame(state.window), draw(state.time)]);
  resized.observe(el);
  return () => [ended(), resized.disconnect(), clock.pause()];
}
