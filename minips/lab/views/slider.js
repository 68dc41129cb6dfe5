/* A slider of a number. The page asks for a stop by its place, and shows what Python says, unless it has asked since. */

function render({ model, el }) {
  const { name, live } = model.get("data");
  const slider = html("input", { type: "range", min: 0, "aria-label": name });
  slider.addEventListener("input", () => {
    slider.ariaValueText = model.get("data").stops[slider.valueAsNumber];
  });
  slider.addEventListener(live ? "input" : "change", () => ask(model, { place: slider.valueAsNumber }));
  el.append(slider);
  watch(model, "data", ({ place, words, stops, answered }) => {
    if (answered < (model.get("asked").number ?? 0)) return;
    slider.max = stops.length - 1;
    slider.value = place;
    slider.ariaValueText = words;
  });
}
