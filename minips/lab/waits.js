// A line below the running cell while a call lasts. It is not an output, so the notebook keeps nothing of it.

// The first line of a cell's code if the code is folded, or else null.
function foldedLine(cell) {
  return cell.querySelector(".jp-InputPlaceholder .jp-PlaceholderText")?.textContent ?? null;
}

function codeOf(cell) {
  return [...cell.querySelectorAll(".cm-line")].map((line) => line.textContent).join("\n");
}

function isRunning(cell) {
  return cell.querySelector(".jp-InputPrompt")?.textContent.includes("*") ?? false;
}

// Of the cells that run or wait for their turn, the one with this code, or else the first. A folded cell has no prompt.
function cellOf(code) {
  const cells = [...document.querySelectorAll(".jp-CodeCell")];
  const running = cells.filter(isRunning);
  const folded = cells.find((cell) => foldedLine(cell) === code.split("\n")[0]);
  return running.find((cell) => codeOf(cell) === code) ?? folded ?? running[0];
}

function initialize({ model }) {
  const cell = cellOf(model.get("code"));
  const line = document.createElement("div");
  line.className = "minips-wait";
  line.innerHTML = '<progress aria-label="progress"></progress><div><span role="status"></span><span></span></div>';
  const [bar, phase, rest] = line.querySelectorAll("progress, span");
  const draw = () => {
    const [now, more, share] = model.get("wait");
    if (phase.textContent !== now) phase.textContent = now; // a screen reader says it once
    rest.textContent = more;
    if (share === null) bar.removeAttribute("value");
    else bar.value = share;
  };
  model.on("change:wait", draw);
  draw();
  cell?.append(line);
  const timer = setInterval(() => cell && (isRunning(cell) || foldedLine(cell) !== null || line.remove()), 500);
  return () => {
    clearInterval(timer);
    line.remove();
  };
}

export default { initialize };
