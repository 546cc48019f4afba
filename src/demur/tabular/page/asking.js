"use strict";
(() => {
  const find = (id) => document.getElementById(id);
  const data = JSON.parse(find("data").textContent);
  const bytes = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0)).buffer;
  const sure = new Float64Array(bytes(data.sure));
  const expected = data.expected.map((text) => new Float64Array(bytes(text)));
  const modelRight = new Uint8Array(bytes(data.model_right));
  const expertRight = data.expert_right.map((text) => new Uint8Array(bytes(text)));
  const GAP = 255;
  const n = sure.length;

  // Rounds and writes exactly as the Python side does.
  function tenths(value) {
    const rounded = Math.floor(value * 1000 + 0.5);
    return rounded === 0 && value > 0 ? "<0.1" : (rounded / 10).toFixed(1);
  }
  function percent(share) {
    if (Number.isNaN(share)) return data.undefined;
    if (share < 1 && Math.floor(share * 1000 + 0.5) === 1000) return ">99.9\u00a0%";
    return tenths(share) + "\u00a0%";
  }
  const whole = (count) => count.toLocaleString("en-GB");
  const fill = (template, words) => template.replace(/\{(\w+)\}/g, (_, name) => words[name]);

  // Decides as DeferOption does: the cheapest action, ties ask, and of equal experts the first by name.
  function decided(prices) {
    const asked = data.names.map(() => ({ rows: 0, right: 0, answers: 0 }));
    const own = { rows: 0, right: 0 };
    const wrong = [0, ...data.names.map(() => 0)];
    for (let i = 0; i < n; i++) {
      let best = -1;
      let worth = -Infinity;
      for (const e of data.by_name) {
        const found = expected[e][i] - prices[e];
        if (found > worth) [best, worth] = [e, found];
      }
      if (sure[i] - worth > 0) {
        own.rows += 1;
        own.right += modelRight[i];
        continue;
      }
      const seen = expertRight[best][i];
      asked[best].rows += 1;
      if (seen !== GAP) {
        asked[best].answers += 1;
        asked[best].right += seen;
      }
      wrong[best + 1] += seen === GAP ? 1 - expected[best][i] : 1 - seen;
    }
    wrong[0] = own.rows - own.right;
    const mistakes = wrong.reduce((sum, one) => sum + one, 0);
    const spent = asked.reduce((sum, one, e) => sum + prices[e] * one.rows, 0);
    return { asked, own, risk: (mistakes + spent) / n, accuracy: 1 - mistakes / n };
  }

  function compared(found, prices) {
    const others = [[data.sentences.nobody, data.nobody]];
    data.names.forEach((name, e) => {
      if (data.errors[e] !== null) others.push([fill(data.sentences.always, { name }), data.errors[e] + prices[e]]);
    });
    const [alternative, better] = others.reduce((best, one) => (one[1] < best[1] ? one : best));
    if (alternative === data.sentences.nobody && found.own.rows === n) return "";
    const kind = tenths(found.risk) === tenths(better) ? "same" : found.risk < better ? "less" : "more";
    return fill(data.sentences[kind], { better: tenths(better), alternative });
  }

  function headline(found, prices) {
    const shares = data.names
      .map((name, e) => [fill(data.sentences.share, { name, load: percent(found.asked[e].rows / n) }), found.asked[e].rows])
      .filter(([, rows]) => rows > 0)
      .map(([words]) => words);
    const who = shares.length > 1 ? `${shares.slice(0, -1).join(", ")} and ${shares.at(-1)}` : shares.join("");
    const kind = shares.length === 0 ? "asks_nobody" : found.own.rows > 0 ? "asks" : "asks_always";
    return fill(data.sentences.result, {
      asks: fill(data.sentences[kind], { own: percent(found.own.rows / n), who }),
      right: percent(found.accuracy),
      risk: tenths(found.risk),
      compared: compared(found, prices),
    });
  }

  function write(element, text, value) {
    if (element.textContent !== text) element.textContent = text;
    if (value !== undefined) element.setAttribute("value", String(value));
  }

  // What the page says at its own prices is kept, intervals included, and shown again when the prices are back.
  const live = [...document.querySelectorAll("[data-live]")];
  const original = live.map((element) => [element.textContent, element.getAttribute("value")]);
  const bars = [...document.querySelectorAll("#experts .front")];
  const widths = bars.map((bar) => bar.getAttribute("width"));
  const marker = find("deferral").querySelector(".marker");
  const places = [...marker.children].map((part) => part.cloneNode());

  function restore() {
    live.forEach((element, k) => write(element, original[k][0], original[k][1] ?? undefined));
    bars.forEach((bar, k) => bar.setAttribute("width", widths[k]));
    marker.replaceChildren(...places.map((part) => part.cloneNode()));
    find("moved").hidden = true;
  }

  function moveMarker(share, wrong) {
    const place = (value, [high, start, end]) => start + ((end - start) * value) / high;
    const [guide, circle] = [marker.querySelector("line"), marker.querySelector("circle")];
    const [x, y] = [place(share, data.axes.x), place(Math.min(wrong, data.axes.y[0]), data.axes.y)];
    for (const [name, value] of [["x1", x], ["x2", x], ["y2", y]]) guide.setAttribute(name, value);
    circle.setAttribute("cx", x);
    circle.setAttribute("cy", y);
  }

  function show(prices) {
    const found = decided(prices);
    live.forEach((element) => element.hasAttribute("data-interval") && write(element, ""));
    write(find("headline"), headline(found, prices));
    write(find("system-risk"), tenths(found.risk), found.risk);
    write(find("system-accuracy"), percent(found.accuracy), found.accuracy);
    const share = found.own.rows / n;
    write(find("coverage"), percent(share), share);
    [{ ...found.own, answers: found.own.rows }, ...found.asked].forEach((one, k) => {
      const row = find(`who-${k}`);
      const [count, load, good, always] = row.querySelectorAll("data");
      write(count, whole(one.rows), one.rows);
      write(load, percent(one.rows / n), one.rows / n);
      const rate = one.answers ? one.right / one.answers : NaN;
      write(good, percent(rate), rate);
      const error = k ? data.errors[k - 1] : data.nobody;
      const cost = error === null ? NaN : error + (k ? prices[k - 1] : 0);
      write(always, Number.isNaN(cost) ? data.undefined : tenths(cost), cost);
      bars[k].setAttribute("width", (100 * one.rows) / n);
    });
    moveMarker(1 - share, 1 - found.accuracy);
    find("moved").hidden = false;
  }

  const rows = data.names.map((_, e) => ({ slider: find(`price-${e}`), number: find(`price-${e}-number`) }));
  const reset = find("price-reset");
  const prices = [...data.prices];
  function update() {
    const back = prices.every((price, e) => price === data.prices[e]);
    reset.disabled = back;
    if (back) restore();
    else show(prices);
  }
  rows.forEach(({ slider, number }, e) => {
    slider.addEventListener("input", () => {
      prices[e] = Number(slider.value);
      number.value = slider.value;
      update();
    });
    // While a number is being typed it is followed but not rewritten; leaving the field shows the price in use.
    number.addEventListener("input", () => {
      if (!(number.valueAsNumber >= 0)) return;
      prices[e] = number.valueAsNumber;
      slider.value = String(prices[e]);
      update();
    });
    number.addEventListener("change", () => { number.value = String(prices[e]); });
  });
  reset.addEventListener("click", () => {
    rows.forEach(({ slider, number }, e) => {
      prices[e] = data.prices[e];
      slider.value = number.value = data.price_words[e];
    });
    update();
    rows[0].slider.focus();
  });
  reset.disabled = true;
})();
