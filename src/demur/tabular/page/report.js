"use strict";
(() => {
  const find = (id) => document.getElementById(id);
  const data = JSON.parse(find("data").textContent);
  const slider = find("cost-slider");
  const number = find("cost-number");
  const reset = find("cost-reset");
  const chosen = Number(slider.value);

  function write(element, text) {
    if (element.textContent !== text) element.textContent = text;
  }

  function moveMarker(name, place) {
    const marker = find(name).querySelector(".marker");
    marker.setAttribute("visibility", place ? "visible" : "hidden");
    if (!place) return;
    const [guide, circle] = [marker.querySelector("line"), marker.querySelector("circle")];
    guide.setAttribute("x1", place[0]);
    guide.setAttribute("x2", place[0]);
    guide.setAttribute("y2", place[1]);
    circle.setAttribute("cx", place[0]);
    circle.setAttribute("cy", place[1]);
  }

  // Everything was computed when the report was made: a state for each cost of the slider.
  function show(position) {
    const state = data.states[position];
    write(find("headline"), state.headline);
    for (const [name, value, interval] of state.tiles) {
      write(find(name), value);
      write(find(`${name}-interval`), interval);
    }
    for (const [name, place] of state.markers) moveMarker(name, place);
    slider.value = String(position);
    slider.setAttribute("aria-valuetext", state.cost);
    reset.disabled = position === chosen;
  }

  function nearest(cost) {
    let best = 0;
    data.costs.forEach((other, k) => {
      if (Math.abs(other - cost) < Math.abs(data.costs[best] - cost)) best = k;
    });
    return best;
  }
  function choose(position) {
    show(position);
    number.value = data.states[position].cost;
  }

  slider.addEventListener("input", () => choose(Number(slider.value)));
  // While a number is being typed it is followed but not rewritten; leaving the field shows the cost in use.
  number.addEventListener("input", () => {
    const cost = number.valueAsNumber;
    if (cost >= 0 && cost <= data.costs[data.costs.length - 1]) show(nearest(cost));
  });
  number.addEventListener("change", () => choose(Number(slider.value)));
  reset.addEventListener("click", () => {
    choose(chosen);
    slider.focus();
  });
  choose(chosen);
})();
