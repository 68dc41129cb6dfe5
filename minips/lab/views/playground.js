/* The playground: a pipeline whose boxes are controls, and the messages of its runs on their way. It only draws data
   and asks for what was chosen; `pipeline.py` decides which controls there are, `outcomes.py` what they have led to. */

const PUSHED = 0;
const ANSWERED = 1;
/* A dot stays for this share of the run after its arrival, so that the shortest message can be seen. */
const TAIL = 0.012;
const BAND = 56;
const ASK_MS = 200;
const DOTS = [3, 8];

/* ---- what is computed, tested without a page ---- */

/* The corners of a funnel's piece, 100 wide and BAND high, between two numbers of bytes. */
function funnelPoints(before, after, most) {
  const [left, right] = [before, after].map((size) => Math.max((size / most) * BAND, 2) / 2);
  const middle = BAND / 2;
  return [
    [0, middle - left],
    [100, middle - right],
    [100, middle + right],
    [0, middle + left],
  ];
}

/* The messages that are seen at a time: on which way, how far from 0 to 1, how large, and how faded. */
function dotsAt(moves, time, duration, most) {
  const tail = TAIL * duration;
  const found = [];
  for (let i = 0; i < moves.start.length && moves.start[i] <= time; i++) {
    const share = progress(moves.start[i], moves.end[i], Math.min(time, moves.end[i]));
    if (time > moves.end[i] + tail || share === null) continue;
    const size = DOTS[0] + (DOTS[1] - DOTS[0]) * Math.sqrt(moves.bytes[i] / most);
    found.push({ way: moves.way[i], share, size, shade: 1 - Math.max(time - moves.end[i], 0) / (tail || 1) });
  }
  return found;
}

/* What a worker does at a time, in words, and the share of a bar for computing, messages and waiting. */
function doingAt(one, time) {
  const i = one.start.findLastIndex((start) => start <= time);
  const share = i >= 0 && one.seconds[i] ? (time - one.start[i]) / one.seconds[i] : 1;
  if (i >= 0 && share <= 1)
    return one.waits[i] ? { words: `waits for ${one.waits[i]}`, shares: [0, 0, share] } : { words: "computes", shares: [share, 0, 0] };
  return i + 1 < one.start.length ? { words: "its messages travel", shares: [0, 1, 0] } : { words: "is done", shares: [0, 0, 0] };
}

/* The share of a run's pushed bytes that have left by a time. */
function sentBy(moves, time) {
  let [sent, all] = [0, 0];
  for (let i = 0; i < moves.start.length; i++) {
    if (moves.way[i] === ANSWERED) continue;
    all += moves.bytes[i];
    if (moves.start[i] <= time) sent += moves.bytes[i];
  }
  return all ? sent / all : 1;
}

/* The points of a curve up to a time, within a box of this width and height. */
function curvePoints(curve, until, duration, most, wide, high) {
  const count = curve.seconds.findLastIndex((seconds) => seconds <= until) + 1;
  const at = (i) => [(curve.seconds[i] / duration) * wide, high - (curve.losses[i] / most) * high];
  return Array.from({ length: count }, (_, i) => at(i).map((each) => each.toFixed(1)));
}

/* A path of one square for each cell of a heat map that has this level. */
function heatPath(rows, level) {
  return rows
    .flatMap((row, y) => [...row].map((digit, x) => (Number(digit) === level ? `M${x} ${y}h1v1h-1z` : "")))
    .join("");
}

/* ---- pieces of the page ---- */

/* Put children into a node, without touching those that are there already: a control keeps its focus. */
function place(node, ...children) {
  const wanted = children.flat(Infinity).filter((child) => child !== null && child !== undefined);
  const same = wanted.length === node.childNodes.length && wanted.every((child, i) => child === node.childNodes[i]);
  if (!same) node.replaceChildren(...wanted);
  return node;
}

function told(text) {
  return html("span", { class: "minips-told" }, text);
}

function strip() {
  return svg("svg", { class: "play-strip", viewBox: `0 0 100 ${BAND}`, preserveAspectRatio: "none", "aria-hidden": "true" });
}

/* A lane for each side, with the side's letter before it. */
function lanes(high) {
  const picture = svg("svg", { width: "100%", height: high, "aria-hidden": "true" });
  const letters = html("div", { class: "play-letters", "aria-hidden": "true" });
  return { picture, letters, high, node: html("div", { class: "play-lanes" }, letters, picture) };
}

function histogram(view) {
  const [wide, high] = [186, 52];
  const each = wide / view.bars.length;
  return svg(
    "svg",
    { width: wide, height: high + 16, role: "img", "aria-label": `histogram of ${view.what}` },
    view.bars.map((tall, i) =>
      svg("rect", { x: i * each + 0.5, width: each - 1, y: high - tall * high, height: Math.max(tall * high, tall && 1) }),
    ),
    svg("text", { x: 0, y: high + 13, class: "play-dim" }, view.ends[0]),
    svg("text", { x: wide, y: high + 13, "text-anchor": "end", class: "play-dim" }, view.ends[1]),
  );
}

function heatMap(view) {
  const [wide, high] = [view.heat[0].length, view.heat.length];
  const levels = [...Array(9).keys()].filter((level) => level !== 4 || view.bytes);
  return svg(
    "svg",
    {
      viewBox: `0 0 ${wide} ${high}`,
      width: 186,
      height: Math.max(high * 5, 8),
      preserveAspectRatio: "none",
      class: view.bytes ? "play-heat play-bytes" : "play-heat",
      role: "img",
      "aria-label": `heat map of ${view.what}`,
    },
    levels.map((level) => svg("path", { d: heatPath(view.heat, level), class: `play-level-${level}` })),
  );
}

function workerRow() {
  const fills = ["computes", "travels", "waits"].map((what) => html("span", { class: `play-part play-${what}` }));
  const [name, words] = [html("span", {}), html("span", { class: "play-dim" })];
  return { fills, name, words, node: html("div", { class: "play-worker" }, name, html("span", { class: "play-track" }, fills), words) };
}

function opened(one) {
  if (!one.box) return [];
  const pictures = Object.entries(one.views).map(([when, view]) =>
    html("figure", {}, html("figcaption", {}, html("b", {}, when), ` ${view.what}`), histogram(view), heatMap(view)),
  );
  return [
    html("h3", {}, one.box, " ", html("code", {}, one.title)),
    html("p", { class: "play-dim" }, one.help),
    html("div", { class: "play-pictures" }, pictures),
    html("p", { class: "play-dim" }, one.caption),
    html("details", {}, html("summary", {}, `Source of ${one.title.split("(")[0]}`), html("pre", { tabindex: 0 }, `# ${one.place}\n${one.source}`)),
  ];
}

function barRows(group) {
  const rows = group.rows.map((row) => {
    const fill = html("span", { class: `play-fill play-${row.side}` });
    const outline = row.outline === null ? null : html("span", { class: "play-outline", style: `width:${row.outline * 100}%` });
    const track = html("span", { class: "play-track" }, fill, outline);
    const line = html("div", { class: "play-bar" }, html("b", {}, row.side), track, html("span", { title: row.expected }, row.text));
    return { line, fill, row };
  });
  return { group, rows };
}

/* ---- the playground ---- */

function render({ model, el }) {
  const kept = new Map();
  let data = null;
  let turn = null;
  let bars = [];
  const keep = (key, make) => {
    if (!kept.has(key)) kept.set(key, make());
    return kept.get(key);
  };
  const wish = (what, more) => ask(model, { do: what, ...more });
  const button = (name, act) => html("button", { type: "button", onclick: act }, name);

  const clock = player({ duration: 1, draw: (time) => data && move(time) });
  const setting = html("select", { "aria-label": "setting", onchange: () => wish("choose", { setting: setting.value }) });
  const compare = button("", () => wish("compare", { on: data.sides.length < 2 }));
  const real = button("", () => wish(data.busy ? "stop" : "run"));
  const measure = button("Calibrate", () => wish("calibrate"));
  measure.title = "Measure the stages on this machine, and predict the time of a step";
  const asCode = button("Copy as code", () => copy(asCode, data.code));
  const asLine = button("Copy as one line", () => copy(asLine, data.line));
  const busy = html("span", { class: "play-busy play-dim" });
  const error = html("p", { class: "play-error", role: "alert" });
  const copied = html("textarea", { "aria-label": "text to copy", readonly: true, rows: 3, hidden: true });
  const tabs = html("div", { class: "play-tabs", role: "group", "aria-label": "side" });
  const flow = html("div", { class: "play-flow" });
  const link = lanes(BAND);
  const back = lanes(40);
  const backWords = html("div", { class: "play-back-words" });
  const backRow = html("div", { class: "play-back-row" }, backWords, back.node);
  const doing = html("div", { class: "play-doing" });
  const chart = svg("svg", { width: 330, height: 176, role: "img", "aria-label": "training loss against seconds" });
  const totals = html("div", { class: "play-totals" });
  const inside = html("section", { class: "play-inside", "aria-label": "the open box" });
  const dots = html("span", {});
  const swatch = (what, words) => html("span", { class: "play-key" }, html("i", { class: `play-${what}` }), words);
  const keys = [swatch("computes", "computing, parameters"), swatch("travels", "messages"), swatch("waits", "waiting for others")];
  const note = html("p", { class: "play-note play-dim" }, keys, dots);
  el.classList.add("minips-view", "minips-playground");
  el.setAttribute("role", "group");
  el.append(
    html("div", { class: "play-tools" }, html("label", {}, "Show ", setting), compare, real, measure, asCode, asLine, busy),
    error,
    copied,
    clock.el,
    tabs,
    flow,
    backRow,
    doing,
    said(model),
    html("div", { class: "play-under" }, html("div", { class: "play-loss" }, html("b", {}, "training loss"), chart), totals, inside),
    note,
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
    made.show(one);
    return made.node;
  }

  function select(one) {
    const node = html(
      "select",
      { onchange: () => wish("change", { path: one.path, to: node.value }) },
      one.options.map((name) => html("option", { value: name }, name)),
    );
    const show = ({ value, label, help }) => {
      Object.assign(node, { value, title: help });
      node.setAttribute("aria-label", label);
    };
    return { node, show };
  }

  function slider(one) {
    let held = false;
    let asked = 0;
    const send = () => wish("change", { path: one.path, to: input.valueAsNumber });
    const say = () => {
      text.textContent = one.stops[input.valueAsNumber];
      input.setAttribute("aria-valuetext", text.textContent);
    };
    const input = html("input", {
      type: "range",
      min: 0,
      max: one.stops.length - 1,
      oninput: () => {
        held = true;
        say();
        if (performance.now() - asked < ASK_MS) return;
        asked = performance.now();
        send();
      },
      onchange: () => {
        held = false;
        send();
      },
    });
    const text = html("output", {});
    const node = html("label", { class: "play-slider" }, html("span", {}, one.name), text, input);
    const show = ({ at, label, help }) => {
      if (!held) input.value = at;
      node.title = help;
      input.setAttribute("aria-label", label);
      say();
    };
    return { node, show };
  }

  function box(one, middle = null) {
    const made = keep(`box ${one.name}`, () => {
      const open = html("button", { type: "button", class: "play-name", onclick: () => wish("open", { box: one.name }) });
      const controls = html("div", { class: "play-controls" });
      const text = html("span", { class: "play-size" });
      const head = html("div", {}, open, controls);
      const node = html("div", { class: `play-box play-${one.name}` }, head, middle ?? strip(), text);
      node.addEventListener("click", (event) => {
        if (!event.target.closest("select, input, button, label")) open.click();
      });
      return { node, open, controls, text };
    });
    const title = one.name === "workers" ? data.ends.left : one.name;
    place(made.controls, one.controls.map(control));
    made.open.replaceChildren(title, ...(one.differs ? [told(" differs"), html("span", { "aria-hidden": "true" }, " ≠")] : []));
    made.open.setAttribute("aria-pressed", data.opened.box === one.name);
    made.node.classList.toggle("play-open", data.opened.box === one.name);
    made.text.textContent = one.text;
    return made.node;
  }

  function show(changed) {
    data = changed;
    el.setAttribute("aria-label", data.name);
    place(setting, ["", ...data.settings].map((name) => keep(`setting ${name}`, () => html("option", { value: name }, name || "your own"))));
    setting.value = data.setting;
    compare.textContent = data.sides.length < 2 ? "+ compare" : "− compare";
    real.textContent = data.busy ? "Stop" : "Run for real";
    busy.textContent = data.busy;
    error.textContent = data.error;
    error.hidden = !data.error;
    showTabs();
    showFlow();
    place(backWords, html("span", {}, data.ends.back ? `${data.words.back ?? ""}, ${data.ends.back}` : "No way back: each worker has the mean."), data.back.map(control));
    inside.replaceChildren(...opened(data.opened));
    bars = data.bars.map(barRows);
    place(totals, ...bars.map(({ group, rows }) => [html("b", {}, group.title), rows.map(({ line }) => line)]), html("span", { class: "play-dim" }, "dashed: expected"));
    dots.textContent = ` ${data.moves[data.shown]?.note ?? ""} A click on a box opens it.`;
    const fresh = turn !== data.turn;
    const first = turn === null;
    turn = data.turn;
    if (!fresh) return move(clock.time());
    const starts = data.sides.flatMap((side) => data.moves[side]?.start ?? []);
    clock.set({ duration: data.duration || 1, marks: [...new Set(starts)].sort((a, b) => a - b) });
    if (!first && !matchMedia("(prefers-reduced-motion: reduce)").matches) clock.play();
  }

  function showTabs() {
    tabs.hidden = data.sides.length < 2;
    const tab = (side) => keep(`tab ${side}`, () => button(side, () => wish("show", { side })));
    for (const side of data.sides) {
      tab(side).className = `play-tab play-${side}`;
      tab(side).setAttribute("aria-pressed", side === data.shown);
      tab(side).setAttribute("aria-label", `change ${side}`);
    }
    place(tabs, keep("tabs", () => html("span", {}, "The boxes show ")), data.sides.map(tab));
  }

  function showFlow() {
    const boxes = Object.fromEntries(data.boxes.map((one) => [one.name, one]));
    const server = keep("server", () => ({ title: html("span", { class: "play-title" }), node: html("div", { class: "play-server" }) }));
    server.title.textContent = data.ends.right;
    const encoding = ["workers", "memory", "quantizer", "serializer", "compressor"];
    const served = ["exchange", "aggregator", "optimizer", "consistency"].map((name) => box(boxes[name], keep(`none ${name}`, () => html("span", {}))));
    place(server.node, server.title, served);
    place(flow, encoding.map((name) => box(boxes[name])), box(boxes.transport, link.node), server.node);
    const most = Math.max(...Object.values(data.funnel).flatMap((sizes) => Object.values(sizes)), 1);
    for (const [i, name] of encoding.entries()) {
      const pieces = data.sides.map((side) => {
        const sizes = data.funnel[side];
        const [a, b, c, d] = funnelPoints(sizes[encoding[Math.max(i - 1, 0)]] ?? 0, sizes[name] ?? 0, most);
        return side === data.shown
          ? svg("path", { d: `M${a}L${b}L${c}L${d}Z`, class: "play-band" })
          : svg("path", { d: `M${a}L${b}M${c}L${d}`, class: "play-other" });
      });
      keep(`box ${name}`).node.querySelector(".play-strip").replaceChildren(...pieces);
    }
  }

  /* Everything that changes with time. At time 0 the whole run is shown. */
  function move(time) {
    const until = time || data.duration;
    const runs = data.sides.filter((side) => data.moves[side]);
    const most = Math.max(...runs.flatMap((side) => data.moves[side].bytes), 1);
    const seen = runs.map((side) => (time ? dotsAt(data.moves[side], time, data.duration, most) : []));
    drawLane(link, runs, seen, false);
    drawLane(back, runs, seen, true);
    drawDoing(runs, time);
    drawChart(until);
    for (const { group, rows } of bars) {
      for (const { fill, row } of rows) {
        const moves = data.moves[row.side];
        const part = group === bars[0].group && moves && !data.busy ? sentBy(moves, until) : 1;
        fill.style.width = `${row.share * part * 100}%`;
      }
    }
  }

  function drawLane({ picture, letters, high }, runs, seen, isBack) {
    const y = (i) => ((i + 1) * high) / (runs.length + 1);
    const name = isBack ? "play-pull" : "play-push";
    const parts = runs.map((side, i) => [
      svg("line", { x1: 8, x2: "99%", y1: y(i), y2: y(i), class: `play-lane ${name}` }),
      isBack && data.ends.back ? svg("path", { d: `M0 ${y(i)}l12 -7v14z`, class: name }) : null,
      seen[i]
        .filter(({ way }) => (way === ANSWERED) === isBack)
        .map(({ share, size, shade }) => {
          const x = `${3 + 94 * (isBack ? 1 - share : share)}%`;
          return svg("circle", { cx: x, cy: y(i), r: size, opacity: shade.toFixed(2), class: name });
        }),
    ]);
    picture.replaceChildren(...parts.flat(2).filter(Boolean));
    place(letters, runs.length > 1 ? runs.map((side) => keep(`letter ${side} ${isBack}`, () => html("b", { class: `play-${side}` }, side))) : []);
  }

  function drawDoing(runs, time) {
    const columns = runs.map((side) => {
      const rows = data.activity[side].map((one) => {
        const row = keep(`doing ${side} ${one.who}`, workerRow);
        const { words, shares } = time ? doingAt(one, time) : { words: one.words, shares: one.shares };
        row.fills.forEach((fill, i) => (fill.style.width = `${shares[i] * 100}%`));
        row.name.textContent = one.who;
        row.words.textContent = words;
        return row.node;
      });
      const letter = keep(`who ${side}`, () => html("b", { class: `play-${side}` }, side));
      return place(keep(`doing ${side}`, () => html("div", {})), runs.length > 1 ? letter : null, rows);
    });
    place(doing, columns);
  }

  function drawChart(until) {
    const [wide, high, left, top] = [280, 130, 40, 8];
    const all = [...data.pale, ...data.curves].filter((curve) => curve.losses.length);
    const most = Math.max(...all.flatMap((curve) => curve.losses), 1e-9);
    const last = Math.max(data.duration, 1e-9);
    const line = (curve, to, name) => svg("polyline", { points: curvePoints(curve, to, last, most, wide, high).join(" "), class: name });
    chart.replaceChildren(
      svg("text", { x: left - 4, y: top + 8, "text-anchor": "end", class: "play-dim" }, Number(most.toPrecision(2))),
      svg("text", { x: left - 4, y: top + high, "text-anchor": "end", class: "play-dim" }, "0"),
      svg("text", { x: left + wide, y: top + high + 18, "text-anchor": "end", class: "play-dim" }, formatSeconds(last)),
      svg("text", { x: left, y: top + high + 18, class: "play-dim" }, data.pale.length ? "seconds; earlier runs are pale" : "seconds"),
      svg(
        "g",
        { transform: `translate(${left} ${top})`, fill: "none" },
        svg("path", { d: `M0 0V${high}H${wide}`, class: "play-axis" }),
        data.pale.map((curve) => line(curve, last, "play-pale")),
        data.curves.map((curve) => line(curve, until, `play-curve play-${curve.side}`)),
      ),
    );
  }

  return watch(model, "data", (fresh) => fresh.boxes && show(fresh));
}
