/* Two exchanges over one network, on one clock. */

function render({ model, el }) {
  el.classList.add("minips-view");
  const note = html("p", {});
  el.append(note, said(model));
  return watch(model, "data", (data) => (note.textContent = JSON.stringify(data)));
}
