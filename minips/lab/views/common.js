/* What every view is drawn with. A view's own file follows this one in the same module. */

const SVG = "http://www.w3.org/2000/svg";
const SECONDS = { s: 1, ms: 1e-3, µs: 1e-6, ns: 1e-9 };
const BYTES = { GB: 1e9, MB: 1e6, kB: 1e3, B: 1 };
const ICONS = {
  play: "M2 1 L13 7 L2 13 Z",
  pause: "M2 1 H5.500 V13 H2 Z M8.500 1 H12 V13 H8.500 Z",
  "previous event": "M13 1 L4 7 L13 13 Z M1 1 H3 V13 H1 Z",
  "next event": "M1 1 L10 7 L1 13 Z M11 1 H13 V13 H11 Z",
};
const RATES = [100, 10, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000].map((n, i) => (i < 2 ? n : 1 / n));
const WATCHED_S = 10;

function svg(name, attributes, ...children) {
  return build(document.createElementNS(SVG, name), attributes, children);
}

function html(name, attributes, ...children) {
  return build(document.createElement(name), attributes, children);
}

function build(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (![false, null, undefined].includes(value)) node.setAttribute(name, value);
  }
  node.append(...children.flat(Infinity).filter((child) => ![false, null, undefined].includes(child)));
  return node;
}

function icon(name) {
  return svg(
    "svg",
    { viewBox: "0 0 14 14", width: 12, height: 12, "aria-hidden": "true" },
    svg("path", { d: ICONS[name] }),
  );
}

function inUnits(value, units) {
  if (value === null || value === undefined) return "–";
  const rounded = Number(value.toPrecision(3));
  const names = Object.keys(units);
  const fits = names.find((name) => rounded >= units[name]);
  const unit = fits ?? (rounded === 0 ? names.find((name) => units[name] === 1) : names.at(-1));
  return `${Number((rounded / units[unit]).toPrecision(3))} ${unit}`;
}

function formatSeconds(seconds) {
  return inUnits(seconds, SECONDS);
}

function formatBytes(nbytes) {
  return inUnits(nbytes, BYTES);
}

function formatRate(rate) {
  if (rate === 1) return "real time";
  return rate > 1 ? `${rate} × as fast` : `1/${Math.round(1 / rate)} of real time`;
}

/* The share of a message's way at a time: null before its start and after its end, or if a half of it is missing. */
function progress(start, end, time) {
  if (start === null || end === null || time < start || time > end) return null;
  return end > start ? (time - start) / (end - start) : 1;
}

/* The point at a share, from 0 to 1, of the length of a line through points [x, y]. */
function along(points, share) {
  const lengths = points.slice(1).map(([x, y], i) => Math.hypot(x - points[i][0], y - points[i][1]));
  let rest = share * lengths.reduce((sum, length) => sum + length, 0);
  for (const [i, length] of lengths.entries()) {
    if (rest <= length || i === lengths.length - 1) {
      const part = length ? Math.min(rest / length, 1) : 0;
      return [0, 1].map((k) => points[i][k] + part * (points[i + 1][k] - points[i][k]));
    }
    rest -= length;
  }
  return points[0];
}

/* The first mark after a time, or the last one before it, of sorted marks. */
function nextMark(marks, time) {
  return marks.find((mark) => mark > time + 1e-12) ?? null;
}

function previousMark(marks, time) {
  return marks.findLast((mark) => mark < time - 1e-12) ?? null;
}

/* The speed at which a duration is watched for about ten seconds. */
function rateFor(duration) {
  const distance = (rate) => Math.abs(Math.log(duration / rate / WATCHED_S));
  return duration > 0 ? RATES.reduce((best, rate) => (distance(rate) < distance(best) ? rate : best)) : 1;
}

/* Controls of a clock from 0 to `duration` seconds. Each change calls `draw(time)`. `marks` are the sorted times of
   events. With reduced motion, the clock steps from event to event. `set({ duration, marks })` starts again. */
function player({ duration, marks = [], draw, rate = rateFor(duration) }) {
  const steps = globalThis.matchMedia?.("(prefers-reduced-motion: reduce)").matches ?? false;
  let [time, frame, last] = [0, null, 0];

  const toggle = html("button", {
    type: "button",
    class: "minips-go",
    title: "play or pause",
    onclick: () => (frame ? pause() : play()),
  });
  const slider = html("input", { type: "range", min: 0, max: 1, step: "any", "aria-label": "time", title: "time" });
  const clock = html("span", { class: "minips-clock" });
  const speed = html(
    "select",
    { "aria-label": "speed", title: "speed" },
    RATES.map((one) => html("option", { value: one }, formatRate(one))),
  );
  const step = (name, jump) =>
    html("button", { type: "button", title: name, "aria-label": name, onclick: jump }, icon(name));
  const controls = [step("previous event", back), toggle, step("next event", on), slider, clock, speed];
  const el = html("div", { class: "minips-player", role: "group", "aria-label": "playback" }, controls);

  slider.addEventListener("input", () => pause(seek(slider.valueAsNumber * duration)));
  speed.addEventListener("change", () => (rate = Number(speed.value)));
  el.addEventListener("keydown", (event) => {
    const keys = { ArrowLeft: back, ArrowRight: on, ...(event.target === slider && { " ": () => toggle.click() }) };
    if (event.target === speed || !keys[event.key]) return;
    event.preventDefault();
    keys[event.key]();
  });

  function seek(to) {
    time = Math.min(Math.max(to, 0), duration);
    slider.value = duration ? time / duration : 0;
    clock.textContent = `${formatSeconds(time)} of ${formatSeconds(duration)}`;
    slider.setAttribute("aria-valuetext", clock.textContent);
    draw(time);
  }

  function back() {
    pause();
    seek(previousMark(marks, time) ?? 0);
  }

  function on() {
    pause();
    seek(nextMark(marks, time) ?? duration);
  }

  function play() {
    if (time >= duration) seek(0);
    if (steps) return on();
    last = performance.now();
    frame = requestAnimationFrame(move);
    label();
  }

  function pause() {
    cancelAnimationFrame(frame);
    frame = null;
    label();
  }

  function move(now) {
    if (!el.isConnected || time >= duration) return pause();
    frame = requestAnimationFrame(move);
    seek(time + Math.min(Math.max(now - last, 0) / 1000, 0.1) * rate);
    last = now;
  }

  function label() {
    toggle.replaceChildren(icon(frame ? "pause" : "play"), frame ? "Pause" : steps ? "Step" : "Play");
  }

  function set(change) {
    pause();
    if ("duration" in change && change.duration !== duration) rate = rateFor(change.duration);
    ({ duration = duration, marks = marks } = change);
    speed.value = String(rate);
    seek(0);
  }

  /* Play at the speed that suits the watching of `seconds`. */
  function pace(seconds) {
    rate = rateFor(seconds);
    speed.value = String(rate);
  }

  set({});
  return { el, seek, play, pause, set, pace, time: () => time, playing: () => frame !== null };
}

/* Draw a view in a new element, in place of the still that the cell shows for readers without a kernel. */
function show({ model, el }) {
  const inner = html("div", { class: "minips-view" });
  const covered = html("style", {}, `.minips-still[data-view="${model.get("mark")}"] { display: none }`);
  el.append(covered, inner);
  return render({ model, el: inner });
}

/* Call `react` with a trait's value, now and at each change; returns a function that ends it. */
function watch(model, name, react) {
  const changed = () => react(model.get(name));
  model.on(`change:${name}`, changed);
  changed();
  return () => model.off(`change:${name}`, changed);
}

/* The sentence, which a screen reader says when it changes. */
function said(model) {
  const line = html("p", { class: "minips-said", role: "status", "aria-live": "polite" });
  watch(model, "sentence", (text) => (line.textContent = text));
  return line;
}

/* Ask Python for something; it answers with other data. */
function ask(model, question) {
  const number = (model.get("asked")?.number ?? 0) + 1;
  model.set("asked", { ...question, number });
  model.save_changes();
}

/* A model for a page without a kernel. */
function standIn(state) {
  const listeners = {};
  return {
    get: (name) => state[name],
    set: (name, value) => {
      state[name] = value;
      for (const react of listeners[`change:${name}`] ?? []) react();
    },
    on: (event, react) => (listeners[event] ??= new Set()).add(react),
    off: (event, react) => listeners[event]?.delete(react),
    save_changes: () => {},
  };
}
