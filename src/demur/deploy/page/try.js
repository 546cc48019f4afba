"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const element = (id) => document.getElementById(id);
  const fields = [...document.querySelectorAll(".field")];
  const [form, panel, headline, detail] = [element("form"), document.querySelector("aside"), element("headline"), element("detail")];
  const [slider, number] = [element("cost-slider"), element("cost-number")];
  const start = [headline.textContent, detail.textContent];
  let cost = data.cost;
  let shownExample = -1;
  let latest = 0;
  let timer = 0;

  const percent = (share) => {
    const tenths = Math.floor(share * 1000 + 0.5);
    if (tenths === 1000 && share < 1) return ">99.9\u00a0%";
    return `${tenths === 0 && share > 0 ? "<0.1" : (tenths / 10).toFixed(1)}\u00a0%`;
  };

  const valueOf = (field) => {
    const input = field.querySelector("input, select, textarea");
    const text = input.value;
    if (field.dataset.kind === "date") {
      const clock = field.querySelector("input[type=time]").value;
      if (text === "") return null;
      if (field.hasAttribute("data-zoned")) return `${text}T${clock || "00:00"}Z`;
      return clock === "" ? text : `${text}T${clock}`;
    }
    if (input.selectedOptions && input.selectedOptions[0] && input.selectedOptions[0].hasAttribute("data-missing")) return null;
    if (input.tagName === "SELECT" && field.dataset.kind === "category") return text;
    if (text === "") return null;
    if (field.dataset.kind === "number") return Number(text);
    return field.dataset.kind === "boolean" ? text === "true" : text;
  };

  const question = () => {
    const row = Object.fromEntries(fields.map((field, k) => [data.names[k], valueOf(field)]));
    const asked = data.cost_adjustable ? { row, cost } : { row };
    if (data.has_proba) asked.proba = true;
    if (data.why) asked.why = true;
    return JSON.stringify(asked);
  };

  // A typical row of one class after the other; it is made of medians, and is no row of the training data.
  const fillIn = () => {
    shownExample = (shownExample + 1) % data.examples.length;
    const row = data.examples[shownExample];
    fields.forEach((field, k) => {
      const [input, clock] = field.querySelectorAll("input, select, textarea");
      const value = row[data.names[k]];
      if (field.dataset.kind === "date") {
        input.value = value === null ? "" : value.slice(0, 10);
        clock.value = value === null ? "" : value.slice(11, 19);
      } else if (field.dataset.kind === "number") {
        input.value = value === null ? "" : String(Number(value.toPrecision(6)));
      } else {
        input.value = value === null ? "" : field.dataset.kind === "time" ? value.slice(0, 8) : String(value);
      }
    });
    ask();
  };

  const entry = (tag, text) => {
    const made = document.createElement(tag);
    made.textContent = text;
    return made;
  };

  const showNearest = (found) => {
    const nearest = Object.entries(found.proba || {}).sort((one, other) => other[1] - one[1]).slice(0, 3);
    element("nearest").replaceChildren(...nearest.flatMap(([name, share]) => [entry("dt", name), entry("dd", percent(share))]));
    const words = (found.because || []).map((one) => entry("li", `${one.column}: ${one.note.replaceAll("%", "\u00a0%")}`));
    if (found.because && !words.length) words.push(entry("li", "No single column explains it."));
    element("because").replaceChildren(...words);
  };

  const show = (title, words, answered = false) => {
    showNearest({});
    headline.textContent = title;
    detail.textContent = words;
    panel.classList.toggle("answered", answered);
  };

  const tell = (found, decidedFor) => {
    const [first, second] = [String(found.first_choice), String(found.second_choice)];
    const sure = data.has_proba ? `${percent(found.confidence)} sure` : `score ${Number(found.confidence.toPrecision(4))}`;
    const needed = data.cost_adjustable ? ` At cost ${decidedFor} an answer needs more than ${percent(1 - decidedFor)} confidence.` : "";
    if (found.decision) {
      const spent = `Spent ${Number(found.spent.toPrecision(4))}. Likeliest class: ${percent(found.confidence)} sure.`;
      const words = found.reason ? `${spent} ${found.reason}.` : spent;
      show(found.decision === "ask" ? `Ask ${found.service}` : String(found.answer), words, found.decision === "answer");
    } else if (found.rejected && found.ask) {
      show(`Ask ${found.ask}`, `Expected cost ${Number(found.expected_cost.toPrecision(3))}. The model's first choice: ${first}, ${sure}. Second choice: ${second}.`);
    } else if (found.reason && found.reason.startsWith("novel")) {
      const columns = found.reason.slice("novel: ".length);
      const why = columns ? ` Unusual values: ${columns}.` : "";
      show("No answer: unlike the training rows", `First choice: ${first}. Second choice: ${second}.${why}`);
    } else if (found.rejected) {
      show("No answer: the model declines", `First choice: ${first}, ${sure}. Second choice: ${second}.${needed}`);
    } else {
      show(String(found.prediction), `${sure[0].toUpperCase()}${sure.slice(1)}. Second choice: ${second}.${needed}`, true);
    }
    showNearest(found);
  };

  const ask = async () => {
    const [turn, asked, decidedFor] = [++latest, question(), cost];
    writeCommand(asked);
    const unreadable = fields.find((field) => [...field.querySelectorAll("input")].some((input) => input.validity.badInput));
    if (unreadable) return show("No decision", `The value of ${unreadable.querySelector("label").textContent.trim()} cannot be read.`);
    if (fields.every((field) => valueOf(field) === null)) return show(...start);
    try {
      const response = await fetch("decide", { method: "POST", headers: { "Content-Type": "application/json" }, body: asked });
      const answer = await response.json();
      if (turn !== latest) return undefined;
      return response.ok ? tell(answer.decisions[0], decidedFor) : show("No decision", answer.error);
    } catch {
      return turn === latest ? show("No connection", "The service does not answer; is it still running?") : undefined;
    }
  };

  const writeCommand = (asked) => {
    const quoted = asked.replaceAll("'", "'\\''");
    const address = new URL("decide", location.href).href;
    element("command").textContent = `curl ${address} -H 'Content-Type: application/json' \\\n  -d '${quoted}'`;
  };

  const askSoon = () => {
    clearTimeout(timer);
    timer = setTimeout(ask, 120);
  };

  const moveCost = (from, to) => () => {
    const wanted = Number(from.value);
    if (from.value === "" || !(wanted >= 0 && wanted < 1)) return;
    cost = wanted;
    to.value = String(wanted);
    askSoon();
  };

  if (slider) {
    slider.addEventListener("input", moveCost(slider, number));
    number.addEventListener("input", moveCost(number, slider));
    number.addEventListener("change", () => { number.value = String(cost); });
  }
  if (element("example")) element("example").addEventListener("click", fillIn);
  form.addEventListener("input", askSoon);
  form.addEventListener("reset", () => setTimeout(ask, 0));
  form.addEventListener("submit", (event) => { event.preventDefault(); ask(); });
  ask();
})();
