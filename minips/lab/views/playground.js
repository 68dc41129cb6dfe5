/* The playground: a pipeline whose boxes are controls, and the messages of its runs on their way. It draws data, and asks
   for what was chosen; Python decides which controls there are, and what a choice leads to. */

const ANSWERED = 1;
/* A dot stays for this share of the run after its arrival, so that the shortest message can be seen. */
const TAIL = 0.012;
const DOTS = [3, 8];
const BAND = 56;
const ASK_MS = 200;
const HELP =
  "Under a box: the bytes after its stage, and its time in the median step (–: not measured). A click on a box opens it.";

/* ---- what is computed, tested without a page ---- */

/* The messages that are seen at a time: on which way, how far from 0 to 1, how large, and how faded. */
function dotsAt(moves, time, duration, most) {
  const tail = TAIL * duration;
  const found = [];
  for (let i = 0; i < moves.start.length && moves.start[i] <= time; i++) {
    if (time > moves.end[i] + tail) continue;
    const share = progress(moves.start[i], moves.end[i], Math.min(time, moves.end[i]));
    const size = DOTS[0] + (DOTS[1] - DOTS[0]) * Math.sqrt(moves.bytes[i] / most);
    found.push({ way: moves.way[i], share, size, shade: 1 - Math.max(time - moves.end[i], 0) / (tail || 1) });
  }
  return found;
}

/* What a worker does at a time, in words, and the shares of its bar for computing, messages and waiting. */
function doingAt(one, time) {
  const i = one.start.findLastIndex((start) => start <= time);
  const share = i >= 0 && one.seconds[i] ? (time - one.start[i]) / one.seconds[i] : 2;
  if (share <= 1 && one.waits[i]) return { words: `waits for ${one.waits[i]}`, shares: [0, 0, share] };
  if (share <= 1) return { words: "computes", shares: [share, 0, 0] };
  const more = i + 1 < one.start.length;
  return more ? { words: "its messages travel", shares: [0, 1, 0] } : { words: "is done", shares: [0, 0, 0] };
}

/* The share of a run's bytes to the server, or to other workers, that have left by a time. */
function sentBy(moves, time) {
  let [sent, all] = [0, 0];
  for (let i = 0; i < moves.start.length; i++) {
    if (moves.way[i] === ANSWERED) continue;
    all += moves.bytes[i];
    if (moves.start[i] <= time) sent += moves.bytes[i];
  }
  return all ? sent / all : 1;
}

/* ---- pieces of the page ---- */

/* Put children into a node, without touching those that are there already: a control keeps its focus. */
function place(node, ...children) {
  const wanted = children.flat(Infinity).filter((child) => child !== null);
  const same = wanted.length === node.childNodes.length && wanted.every((child, i) => child === node.childNodes[i]);
  if (!same) node.replaceChildren(...wanted);
  return node;
}

function element(name, className, ...children) {
  return html(name, { class: className }, ...children);
}

function strip() {
  const look = { class: "play-strip", viewBox: `0 0 100 ${BAND}`, preserveAspectRatio: "none", "aria-hidden": "true" };
  return svg("svg", look);
}

/* A lane for each side, with the side's letter before it. */
function lanes(high) {
  const picture = svg("svg", { width: "100%", height: high, "aria-hidden": "true" });
  const letters = element("div", "play-letters");
  return { picture, letters, high, node: element("div", "play-lanes", letters, picture) };
}

function workerRow() {
  const fills = ["computes", "travels", "waits"].map((what) => element("span", `play-${what}`));
  const [name, words] = [element("span", ""), element("span", "play-dim")];
  return { fills, name, words, node: element("div", "play-worker", name, element("span", "play-track", fills), words) };
}

/* A tensor before and after the open box, and the box's source. */
function opened(one) {
  const pictures = Object.entries(one.views ?? {}).map(([when, view]) => {
    const figure = element("figure", "", html("figcaption", {}, html("b", {}, when), ` ${view.what}`));
    figure.insertAdjacentHTML("beforeend", view.histogram + view.heat);
    return figure;
  });
  const source = html("pre", { tabindex: 0 }, `# ${one.place}\n${one.source}`);
  return [
    html("h3", {}, one.box, " ", html("code", {}, one.title)),
    element("p", "play-dim", one.help),
    element("p", "", one.caption),
    element("div", "play-pictures", pictures),
    html("details", {}, html("summary", {}, "Source"), source),
  ];
}

function bar(row) {
  const fill = element("span", `play-fill play-${row.side}`);
  const width = `width:${row.outline * 100}%`;
  const outline = row.outline === null ? null : html("span", { class: "play-outline", style: width });
  const text = html("span", { title: row.expected }, row.text);
  return {
    row,
    fill,
    line: element("div", "play-bar", html("b", {}, row.side), element("span", "play-track", fill, outline), text),
  };
}

/* ---- the playground ---- */

function render({ model, el }) {
  const kept = new Map();
  let data = null;
  let turn = null;
  let inBox = "";
  let most = 1;
  let bars = [];
  const keep = (key, make) => kept.get(key) ?? kept.set(key, make()).get(key);
  const wish = (what, more) => ask(model, { do: what, ...more });
  const button = (name, act, title) => html("button", { type: "button", onclick: act, title }, name);

  const clock = player({ duration: 1, draw: (time) => data && move(time) });
  const choose = () => wish("choose", { setting: setting.value });
  const setting = html("select", { "aria-label": "setting", onchange: choose });
  const compare = button("", () => wish("compare", { on: data.sides.length < 2 }), "two configs on the same axes");
  const real = button("", () => wish(data.busy ? "stop" : "run"), "train in processes, or end what is under way");
  const measure = button("Calibrate", () => wish("calibrate"), "measure the stages here, and predict a step's time");
  const asCode = button("Copy as code", () => copy(asCode, data.code), "a program that trains this");
  const asLine = button(
    "Copy as one line",
    () => copy(asLine, data.line),
    "a text for lab.playground and lab.Workbench",
  );
  const busy = element("span", "play-busy play-dim");
  const error = html("p", { class: "play-error", role: "alert" });
  const copied = html("textarea", { "aria-label": "text to copy", readonly: true, rows: 3, hidden: true });
  const tabs = html("div", { class: "play-tabs", role: "group", "aria-label": "side" });
  const flow = element("div", "play-flow");
  const server = element("div", "play-server");
  const link = lanes(BAND);
  const back = lanes(40);
  const backWords = element("div", "play-back-words");
  const doing = element("div", "play-doing");
  const chart = svg("svg", { width: 330, height: 170, role: "img", "aria-label": "training loss against seconds" });
  const totals = element("div", "play-totals");
  const inside = html("section", { class: "play-inside", "aria-label": "the open box" });
  const dots = element("span", "");
  const key = (what, words) => element("span", "play-key", element("i", `play-${what}`), words);
  const keys = [
    key("computes", "computing, parameters"),
    key("travels", "messages"),
    key("waits", "waiting for others"),
  ];
  const shown = html("label", {}, "Show ", setting);
  el.classList.add("minips-view", "minips-playground");
  el.setAttribute("role", "group");
  el.append(
    element("div", "play-tools", shown, compare, tabs, real, measure, asCode, asLine, busy),
    error,
    copied,
    clock.el,
    flow,
    backWords,
    back.node,
    doing,
    said(model),
    element("div", "play-under", element("div", "play-loss", html("b", {}, "training loss"), chart), totals, inside),
    element("p", "play-note play-dim", keys, dots),
  );

  async function copy(from, text) {
    const name = from.textContent;
    try {
      await navigator.clipboard.writeText(text);
      from.textContent = "Copied";
      setTimeout(() => (from.textContent = name), 1500);
    } catch {
      Object.assign(copied, { hidden: false, value: text });
      copied.select();
    }
  }

  function control(one) {
    const choices = one.options ?? one.stops;
    const made = keep(`${one.path}|${choices.join()}`, () => (one.options ? select(one) : slider(one)));
    made.update(one);
    return made.node;
  }

  function select(one) {
    const options = one.options.map((name) => html("option", { value: name }, name));
    const node = html("select", { onchange: () => wish("change", { path: one.path, to: node.value }) }, options);
    const update = ({ value, label, help }) => {
      Object.assign(node, { value, title: help });
      node.setAttribute("aria-label", label);
    };
    return { node, update };
  }

  /* While a slider is dragged it asks now and then, and does not follow the answers. */
  function slider(one) {
    let held = false;
    let asked = 0;
    const text = html("span", { "aria-hidden": "true" });
    const input = html("input", { type: "range", min: 0, max: one.stops.length - 1 });
    const node = html("label", { class: "play-slider" }, html("span", {}, one.name), input, text);
    const send = () => wish("change", { path: one.path, to: input.valueAsNumber });
    const say = () => {
      text.textContent = one.stops[input.valueAsNumber];
      input.setAttribute("aria-valuetext", text.textContent);
    };
    input.addEventListener("input", () => {
      held = true;
      say();
      if (performance.now() - asked < ASK_MS) return;
      asked = performance.now();
      send();
    });
    input.addEventListener("change", () => {
      held = false;
      send();
    });
    const update = ({ at, label, help }) => {
      if (!held) input.value = at;
      node.title = help;
      input.setAttribute("aria-label", label);
      say();
    };
    return { node, update };
  }

  function box(one, makeMiddle) {
    const made = keep(`box ${one.name}`, () => {
      const open = button("", () => wish("open", { box: one.name }), `open ${one.name}`);
      open.className = "play-name";
      const controls = element("div", "play-controls");
      const text = element("span", "play-size");
      const middle = makeMiddle();
      const node = element("div", `play-box play-${one.name}`, element("div", "", open, controls), middle, text);
      node.addEventListener("click", (event) => {
        if (!event.target.closest("select, input, button, label")) open.click();
      });
      return { node, open, controls, text, middle };
    });
    const isOpen = data.opened.box === one.name;
    place(made.controls, one.controls.map(control));
    made.open.textContent = one.title;
    made.open.setAttribute("aria-pressed", isOpen);
    made.node.classList.toggle("play-open", isOpen);
    made.text.textContent = one.text;
    if (data.strips[one.name]) made.middle.innerHTML = data.strips[one.name];
    return made.node;
  }

  function redraw(changed) {
    data = changed;
    el.setAttribute("aria-label", data.name);
    const option = (name) => keep(`setting ${name}`, () => html("option", { value: name }, name || "your own"));
    place(setting, ["", ...data.settings].map(option));
    setting.value = data.setting;
    compare.textContent = data.sides.length < 2 ? "+ compare" : "− compare";
    real.textContent = data.busy ? "Stop" : "Run for real";
    busy.textContent = data.busy;
    error.textContent = data.error;
    error.hidden = !data.error;
    showTabs();
    showFlow();
    if (inBox !== JSON.stringify(data.opened)) inside.replaceChildren(...opened(data.opened));
    inBox = JSON.stringify(data.opened);
    chart.innerHTML = data.chart;
    bars = data.bars.map((group) => group.rows.map(bar));
    const groups = data.bars.map(({ title }, i) => [html("b", {}, title), bars[i].map(({ line }) => line)]);
    place(totals, groups, element("span", "play-dim", "dashed: expected"));
    dots.textContent = `${data.moves[data.shown]?.note ?? ""} ${HELP}`;
    most = Math.max(1, ...data.sides.flatMap((side) => data.moves[side]?.bytes ?? []));
    setClock();
  }

  /* A new run plays from its beginning; other data are drawn at the time that is shown. A page without a kernel, in
     which nobody has run a cell, waits for a click. */
  function setClock() {
    const [before, now] = [turn, data.turn];
    turn = now;
    if (before === now) return move(clock.time());
    const starts = data.sides.flatMap((side) => data.moves[side]?.start ?? []);
    clock.set({ duration: data.duration || 1, marks: [...new Set(starts)].sort((a, b) => a - b) });
    const asked = before !== null || (model.get("mark") && data.duration > 0);
    const plays = asked && !matchMedia("(prefers-reduced-motion: reduce)").matches;
    clock.seek(plays ? 0 : data.duration);
    if (plays) clock.play();
  }

  function showTabs() {
    tabs.hidden = data.sides.length < 2;
    const tab = (side) => keep(`tab ${side}`, () => button(side, () => wish("show", { side }), `change ${side}`));
    for (const side of data.sides) {
      tab(side).className = `play-${side}`;
      tab(side).setAttribute("aria-pressed", side === data.shown);
    }
    const words = keep("tabs", () => html("span", {}, "boxes of "));
    place(tabs, words, data.sides.map(tab));
  }

  function showFlow() {
    const made = { transport: () => link.node };
    const [sent, served] = [false, true].map((at) =>
      data.boxes.filter((one) => one.served === at).map((one) => box(one, made[one.name] ?? strip)),
    );
    const title = keep("server", () => element("span", "play-title"));
    title.textContent = data.ends.right;
    place(server, title, served);
    place(flow, sent, server);
    const words = keep("back", () => html("span", {}));
    words.textContent = data.words.back;
    place(backWords, words, data.back.map(control));
  }

  /* Everything that changes with time. At its end the whole run is shown. */
  function move(time) {
    const over = time >= data.duration;
    const runs = data.sides.filter((side) => data.moves[side]);
    const seen = runs.map((side) => (over ? [] : dotsAt(data.moves[side], time, data.duration, most)));
    drawLanes(link, runs, seen, false);
    drawLanes(back, runs, seen, true);
    drawDoing(runs, time, over);
    const window = chart.querySelector(".play-until");
    window?.setAttribute("width", (data.plot * Math.min(time, data.duration)) / (data.duration || 1));
    for (const { row, fill } of bars.flat()) {
      const filled = row.grows && !data.busy ? sentBy(data.moves[row.side], time) : 1;
      fill.style.width = `${row.share * filled * 100}%`;
    }
  }

  function drawLanes({ picture, letters, high }, runs, seen, isBack) {
    const y = (i) => ((i + 1) * high) / (runs.length + 1);
    const look = isBack ? "play-pull" : "play-push";
    const used = (side) => !isBack || data.moves[side].way.includes(ANSWERED);
    const parts = runs.map((side, i) => [
      svg("line", { x1: 8, x2: "99%", y1: y(i), y2: y(i), class: `play-lane ${used(side) ? look : ""}` }),
      svg("path", { d: isBack && used(side) ? `M0 ${y(i)}l12 -7v14z` : "", class: look }),
      seen[i]
        .filter(({ way }) => (way === ANSWERED) === isBack)
        .map(({ share, size, shade }) => {
          const cx = `${3 + 94 * (isBack ? 1 - share : share)}%`;
          return svg("circle", { cx, cy: y(i), r: size, opacity: shade.toFixed(2), class: look });
        }),
    ]);
    picture.replaceChildren(...parts.flat(2));
    const letter = (side) => keep(`letter ${side} ${isBack}`, () => element("b", `play-${side}`, side));
    place(letters, runs.length > 1 ? runs.map(letter) : []);
  }

  function drawDoing(runs, time, over) {
    const columns = runs.map((side) => {
      const rows = data.activity[side].map((one) => {
        const row = keep(`doing ${side} ${one.who}`, workerRow);
        const { words, shares } = over ? one : doingAt(one, time);
        row.fills.forEach((fill, i) => (fill.style.width = `${shares[i] * 100}%`));
        row.name.textContent = one.who;
        row.words.textContent = words;
        return row.node;
      });
      const letter = keep(`who ${side}`, () => element("b", `play-${side}`, side));
      const column = keep(`doing ${side}`, () => html("div", {}));
      return place(column, runs.length > 1 ? letter : null, rows);
    });
    place(doing, columns);
  }

  return watch(model, "data", (fresh) => fresh.boxes && redraw(fresh));
}
