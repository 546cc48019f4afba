"use strict";
(() => {
  const find = (id) => document.getElementById(id);
  const data = JSON.parse(find("data").textContent);
  const bytes = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0)).buffer;
  const cells = {
    true: new Uint16Array(bytes(data.cells.true)),
    answer: new Uint16Array(bytes(data.cells.answer)),
    rejections: new Uint16Array(bytes(data.cells.rejections)),
    count: new Uint32Array(bytes(data.cells.count)),
  };
  const width = data.n_classes + 1;

  // A row is accepted from the cost on whose position is its number of rejections.
  // The last line counts the labels that are none of the classes, the last column the rejections.
  function confusion(position) {
    const matrix = new Float64Array(width * width);
    for (let i = 0; i < cells.count.length; i++) {
      const column = cells.rejections[i] <= position ? cells.answer[i] : data.n_classes;
      matrix[cells.true[i] * width + column] += cells.count[i];
    }
    return matrix;
  }

  // Rounds and writes exactly as the Python side does.
  function percent(share) {
    if (Number.isNaN(share)) return data.undefined;
    if (share < 1 && share >= 0.9995) return ">99.9\u00a0%";
    const tenths = Math.floor(share * 1000 + 0.5);
    return (tenths === 0 && share > 0 ? "<0.1" : (tenths / 10).toFixed(1)) + "\u00a0%";
  }
  const whole = (count) => count.toLocaleString("en-GB");

  function write(element, text, value) {
    if (element.textContent !== text) element.textContent = text;
    if (value !== undefined) element.setAttribute("value", String(value));
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

  const classRows = [...document.querySelectorAll("#by-class tbody tr")].map((row) => ({
    bar: row.querySelector(".front"),
    figures: row.querySelectorAll("data"),
  }));
  function showClasses(matrix) {
    const answers = new Float64Array(data.n_classes);
    for (let i = 0; i < width; i++) {
      for (let j = 0; j < data.n_classes; j++) answers[j] += matrix[i * width + j];
    }
    classRows.forEach(({ bar, figures }, k) => {
      const row = matrix.subarray(k * width, (k + 1) * width);
      const rows = row.reduce((sum, count) => sum + count, 0);
      const [right, rejected] = [row[k], row[data.n_classes]];
      bar.setAttribute("width", rows ? (100 * rejected) / rows : 0);
      write(figures[0], whole(rejected), rejected);
      const shares = [rejected / rows, right / (rows - rejected), right / answers[k], right / rows];
      shares.forEach((share, i) => write(figures[i + 1], percent(share), share));
    });
  }

  const shownRows = [...document.querySelectorAll("#confusion tbody tr")].map((row) => row.querySelectorAll("td"));
  function showConfusion(matrix) {
    data.named.forEach((line, i) => {
      const row = matrix.subarray(line * width, (line + 1) * width);
      const total = row.reduce((sum, count) => sum + count, 0);
      shownRows[i].forEach((cell, j) => {
        const last = j === shownRows[i].length - 1;
        const count = row[last ? data.n_classes : data.named[j]];
        write(cell, whole(count));
        if (cell.classList.contains("right")) return;
        const share = total ? count / total : 0;
        const shade = [0, 0.01, 0.05, 0.15, 0.3].filter((edge) => share > edge).length;
        cell.className = `number shade-${shade}` + (last ? " declined" : "");
      });
    });
  }

  const slider = find("cost-slider");
  const number = find("cost-number");
  const reset = find("cost-reset");

  function show(position) {
    const state = data.states[position];
    write(find("headline"), state.headline);
    for (const [name, value, interval] of state.tiles) {
      write(find(name), value);
      write(find(`${name}-interval`), interval);
    }
    for (const [name, place] of state.markers) moveMarker(name, place);
    const matrix = confusion(position);
    showClasses(matrix);
    showConfusion(matrix);
    slider.value = String(position);
    slider.setAttribute("aria-valuetext", state.cost);
    reset.disabled = position === data.chosen;
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
    choose(data.chosen);
    slider.focus();
  });
  choose(data.chosen);
})();
