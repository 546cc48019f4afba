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
  const height = data.row_of.length;

  // A row is accepted from the cost on whose position is its number of rejections.
  function confusion(position) {
    const matrix = new Float64Array(width * height);
    for (let i = 0; i < cells.count.length; i++) {
      const column = cells.rejections[i] <= position ? cells.answer[i] : data.n_classes;
      matrix[cells.true[i] * width + column] += cells.count[i];
    }
    return matrix;
  }

  // Rounds and writes exactly as the Python side does.
  function tenths(value) {
    const rounded = Math.floor(value * 1000 + 0.5);
    return rounded === 0 && value > 0 ? "<0.1" : (rounded / 10).toFixed(1);
  }
  function percent(share) {
    if (Number.isNaN(share)) return data.sentences.undefined;
    if (share < 1 && Math.floor(share * 1000 + 0.5) === 1000) return ">99.9\u00a0%";
    return tenths(share) + "\u00a0%";
  }
  const whole = (count) => count.toLocaleString("en-GB");
  const unbroken = (text) => text.replaceAll(" %", "\u00a0%");
  const fill = (template, words) => template.replace(/\{(\w+)\}/g, (_, name) => words[name]);

  function write(element, text, value) {
    if (element.textContent !== text) element.textContent = text;
    if (value !== undefined) element.setAttribute("value", String(value));
  }

  // The same parts in the same order as evaluation_words.py.
  function shares(found) {
    const kind =
      found.answered === 0 ? "none"
      : found.answered === found.rows ? "all"
      : found.coverage < data.few ? "few"
      : found.coverage > data.most ? "most"
      : "some";
    return fill(data.sentences[kind], {
      coverage: percent(found.coverage),
      accuracy: percent(found.accuracy),
      rejected: percent((found.rows - found.answered) / found.rows),
    });
  }
  function compared(found, cost) {
    const alternative = found.everything <= cost ? "answered" : "declined";
    const better = Math.min(found.everything, cost);
    if (alternative === "answered" ? found.answered === found.rows : found.answered === 0) return "";
    const looksEqual = tenths(found.risk) === tenths(better);
    const kind = looksEqual ? "same" : found.risk < better ? "less" : "more";
    return fill(data.sentences[kind], { better: tenths(better), alternative: data.sentences[alternative] });
  }
  function headline(found, position) {
    return fill(data.sentences.priced, {
      cost: data.cost_words[position],
      shares: shares(found),
      risk: tenths(found.risk),
      compared: compared(found, data.costs[position]),
    });
  }

  function moveMarker(name, x, y) {
    const axes = data.axes[name];
    const place = (value, [high, start, end]) => start + ((end - start) * value) / high;
    const marker = find(name).querySelector(".marker");
    const shown = y <= axes.y[0]; // false where there is no answer, and so no share of wrong ones
    marker.setAttribute("visibility", shown ? "visible" : "hidden");
    if (!shown) return;
    const [left, top] = [place(x, axes.x), place(y, axes.y)];
    const [guide, circle] = [marker.querySelector("line"), marker.querySelector("circle")];
    guide.setAttribute("x1", left);
    guide.setAttribute("x2", left);
    guide.setAttribute("y2", top);
    circle.setAttribute("cx", left);
    circle.setAttribute("cy", top);
  }

  const classRows = [...document.querySelectorAll("#by-class tbody tr")].map((row) => ({
    bar: row.querySelector(".front"),
    figures: row.querySelectorAll("data"),
  }));
  function showClasses(matrix) {
    const answers = new Float64Array(data.n_classes);
    for (let i = 0; i < height; i++) {
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
    const columns = shownRows[0].length;
    const counts = shownRows.map(() => new Float64Array(columns));
    for (let i = 0; i < height; i++) {
      for (let j = 0; j < width; j++) {
        counts[data.row_of[i]][j < data.n_classes ? data.row_of[j] : columns - 1] += matrix[i * width + j];
      }
    }
    counts.forEach((row, i) => {
      const total = row.reduce((sum, count) => sum + count, 0);
      row.forEach((count, j) => {
        const cell = shownRows[i][j];
        write(cell, whole(count));
        if (cell.classList.contains("right")) return;
        const share = total ? count / total : 0;
        const shade = [0, 0.01, 0.05, 0.15, 0.3].filter((edge) => share > edge).length;
        cell.className = `number shade-${shade}` + (j === columns - 1 ? " declined" : "");
      });
    });
  }

  function figures(matrix, cost) {
    const found = { rows: 0, answered: 0, right: 0 };
    for (let i = 0; i < height; i++) {
      for (let j = 0; j < width; j++) {
        const count = matrix[i * width + j];
        found.rows += count;
        if (j < data.n_classes) found.answered += count;
        if (i === j) found.right += i < data.n_classes ? count : 0;
      }
    }
    const wrong = found.answered - found.right;
    found.risk = (wrong + cost * (found.rows - found.answered)) / found.rows;
    found.coverage = found.answered / found.rows;
    found.accuracy = found.answered ? found.right / found.answered : NaN;
    found.everything = data.n_wrong_if_all / found.rows;
    return found;
  }

  const slider = find("cost-slider");
  const number = find("cost-number");
  const reset = find("cost-reset");

  function show(position) {
    const matrix = confusion(position);
    const found = figures(matrix, data.costs[position]);
    write(find("headline"), unbroken(headline(found, position)));
    write(find("risk"), tenths(found.risk), found.risk);
    write(find("coverage"), percent(found.coverage), found.coverage);
    write(find("accuracy"), percent(found.accuracy), found.accuracy);
    for (const name of ["risk", "coverage", "accuracy"]) {
      write(find(`${name}-interval`), unbroken(data.intervals[name][position]));
    }
    moveMarker("risk-coverage", found.coverage, 1 - found.accuracy);
    moveMarker("cost-curve", data.costs[position], found.risk);
    showClasses(matrix);
    showConfusion(matrix);
    slider.value = String(position);
    slider.setAttribute("aria-valuetext", data.cost_words[position]);
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
    number.value = data.cost_words[position];
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
