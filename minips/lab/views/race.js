/* Exchanges over a network, side by side on one clock. A dot is a message of the step. */

const BACK = ["reply", "pull"];

/* The largest radius of a dot, and that of a message: its area is its bytes. */
const LARGEST = 7;

/* At most so many switches have their names above them. */
const NAMED = 2;

function radius(nbytes, most) {
  return Math.max(2.5, LARGEST * Math.sqrt(nbytes / most));
}

/* The line that a piece travels: those of its links, one after the other. */
function route(links, numbers) {
  return numbers.flatMap((number) => {
    const [x1, y1, x2, y2] = links[number].line;
    const [from, to] = [
      { x: x1, y: y1 },
      { x: x2, y: y2 },
    ];
    return [from, to].map(({ x, y }) => [x, y]);
  });
}

/* The pieces of a side: from, to, bytes, kind, and their way. */
function pieces(side) {
  return side.pieces.map(([start, end, nbytes, kind, ...numbers]) => {
    return { start, end, nbytes, kind, way: route(side.links, numbers) };
  });
}

/* How far a side is at a time. Workers may begin the next step before the others have ended this one. */
function standing(side, time) {
  const arrived = side.pieces.filter(([, end]) => end <= time).length;
  const overlap = side.end > 1.01 * side.seconds ? `, one step every ${formatSeconds(side.seconds)}` : "";
  const done = `done after ${formatSeconds(side.end)}${overlap}`;
  const words = time >= side.end ? done : `${arrived} of ${side.pieces.length} messages have arrived`;
  return { share: side.end ? Math.min(time / side.end, 1) : 1, words };
}

/* The times at which something begins or ends, sorted and once each. */
function events(sides) {
  const times = sides.flatMap((side) => side.pieces.flatMap(([start, end]) => [start, end]));
  return [...new Set(times)].sort((a, b) => a - b);
}

function network(side, [width, height]) {
  const links = side.links.map(({ line: [x1, y1, x2, y2], width: stroke, colour, words }) =>
    svg(
      "line",
      { x1, y1, x2, y2, stroke: colour, "stroke-width": stroke, "stroke-linecap": "round" },
      svg("title", {}, words),
    ),
  );
  const named = side.nodes.filter(([, role]) => role === "switch").length <= NAMED;
  const nodes = side.nodes.map((node) => drawNode(node, named));
  const dots = svg("g", { class: "race-dots" });
  const picture = { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `the network of ${side.name}` };
  return { dots, el: svg("svg", picture, links, dots, nodes) };
}

/* A node with its number in it; `named`: a switch with its name above it. */
function drawNode([name, role, x, y], named) {
  const shapes = {
    worker: () => svg("circle", { cx: x, cy: y, r: 14 }),
    server: () => svg("rect", { x: x - 15, y: y - 15, width: 30, height: 30, rx: 4 }),
    switch: () => svg("rect", { x: x - 13, y: y - 9, width: 26, height: 18, rx: 3 }),
  };
  const middle = { x, "text-anchor": "middle" };
  const number = svg("text", { ...middle, y: y + 4 }, name.split(" ")[1] ?? "");
  const above = role === "switch" && named ? svg("text", { ...middle, y: y - 14, class: "race-name" }, name) : null;
  return svg("g", { class: `race-${role}` }, svg("title", {}, name), shapes[role](), above ?? number);
}

function bar(name, share, words, kind) {
  const filled = html("span", { class: `race-fill ${kind}`, style: `width: ${100 * Math.min(share, 1)}%` });
  return [html("span", {}, name), html("span", { class: "race-track" }, filled), html("span", {}, words)];
}

/* A side of the race: its network, its bar, and how busy its links are; `move(time)` moves its dots. */
function drawSide(side, size, most) {
  const { el: picture, dots } = network(side, size);
  const flying = pieces(side);
  const circles = flying.map(({ nbytes, kind }) =>
    svg("circle", {
      r: radius(nbytes, most),
      class: BACK.includes(kind) ? "race-back" : "race-there",
      visibility: "hidden",
    }),
  );
  dots.append(...circles);
  const state = html("span", { class: "race-state" });
  const fill = html("span", { class: "race-fill race-run" });
  const title = html("div", { class: "race-title" }, html("b", {}, side.name), state);
  const links = html(
    "div",
    { class: "race-bars" },
    side.busy.map(([name, share, words]) => bar(name, share, words, "race-busy")),
  );
  const el = html(
    "section",
    { "aria-label": side.name },
    title,
    html("div", { class: "race-track" }, fill),
    picture,
    links,
  );

  function move(time) {
    flying.forEach(({ start, end, way }, i) => {
      const share = progress(start, end, time);
      const there = share !== null && share < 1;
      circles[i].setAttribute("visibility", there ? "visible" : "hidden");
      if (!there) return;
      const [x, y] = along(way, share);
      circles[i].setAttribute("cx", x);
      circles[i].setAttribute("cy", y);
    });
    const { share, words } = standing(side, time);
    fill.style.width = `${100 * share}%`;
    state.textContent = words;
  }

  return { el, move };
}

/* The key of the picture, and the time of a step of every exchange. */
function drawSteps(steps) {
  const most = Math.max(...steps.map(([, seconds]) => seconds));
  const rows = steps.map(([name, seconds, races]) =>
    bar(name, seconds / most, formatSeconds(seconds), races ? "race-run" : "race-idle"),
  );
  return html("div", {}, html("b", {}, "time of a step"), html("div", { class: "race-bars" }, rows));
}

function drawKey() {
  const texts = ["worker", "server", "switch", "message", "answer"];
  const marks = texts.map((text) => html("span", {}, html("i", { class: `race-mark race-mark-${text}` }), text));
  const scale = html(
    "span",
    {},
    "link: wide carries more, busy for 0 ",
    html("i", { class: "race-scale" }),
    " 100 % of the step",
  );
  return html("div", { class: "race-key" }, marks, scale);
}

function render({ model, el }) {
  let sides = [];
  const draw = (time) => sides.forEach(({ move }) => move(time));
  const clock = player({ duration: 0, draw });
  const [networks, steps] = [html("div", { class: "race-sides" }), html("div", {})];
  el.classList.add("race");
  el.append(clock.el, networks, drawKey(), steps, said(model));

  return watch(model, "data", (data) => {
    if (!data.sides) return;
    const most = Math.max(1, ...data.sides.flatMap((side) => side.pieces.map(([, , nbytes]) => nbytes)));
    sides = data.sides.map((side) => drawSide(side, data.size, most));
    networks.replaceChildren(...sides.map((side) => side.el));
    steps.replaceChildren(drawSteps(data.steps));
    clock.set({ duration: data.seconds, marks: events(data.sides) });
  });
}
