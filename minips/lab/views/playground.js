function render({ model, el }) {
  el.classList.add("minips-view");
  el.append(said(model));
}
