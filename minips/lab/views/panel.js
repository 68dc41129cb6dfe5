/* What a form of ipywidgets lacks on its page: a description of each control, which is its box's tooltip; buttons that
   copy the code beside them; and the focus, which goes back from Stop to Run when a run ends. */

function describe(panel) {
  for (const control of panel.querySelectorAll("select, input")) {
    const words = control.parentElement.closest("[title]:not([title=null])")?.title ?? "";
    if (control.title !== words) control.title = words;
  }
  for (const fold of panel.querySelectorAll(".minips-fold")) {
    fold.setAttribute("aria-expanded", fold.matches(".mod-active"));
  }
}

async function copyCode(button) {
  const name = button.textContent;
  const code = button.closest(".minips-code").querySelector("pre");
  getSelection().selectAllChildren(code);
  try {
    await navigator.clipboard.writeText(code.textContent);
    button.textContent = "Copied";
  } catch {
    button.textContent = "Selected: copy it with Ctrl+C";
  }
  setTimeout(() => (button.textContent = name), 2000);
}

function render({ el }) {
  let panel = null;
  const changed = new MutationObserver((changes) => {
    const run = changes.map(({ target }) => target).find((one) => one.matches(".minips-run:enabled"));
    if (run && panel.contains(run) && panel.querySelector(".minips-stop:focus")) run.focus();
    describe(panel);
  });
  let frame = requestAnimationFrame(function begin() {
    panel = el.closest(".minips-panel");
    if (!panel) return (frame = requestAnimationFrame(begin));
    panel.classList.add("minips-live");
    panel.addEventListener("click", ({ target }) => target.matches(".minips-copy") && copyCode(target));
    changed.observe(panel, { childList: true, subtree: true, attributeFilter: ["title", "disabled", "class"] });
    describe(panel);
  });
  return () => {
    cancelAnimationFrame(frame);
    changed.disconnect();
  };
}
