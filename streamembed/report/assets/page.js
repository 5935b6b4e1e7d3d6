"use strict";
// One path for a page that is written once and for one that follows a run: `apply` shows a state.
// All text enters the page as text, never as markup.
(() => {
  const read = (id) => JSON.parse(document.getElementById(id).textContent);
  const settings = read("settings");
  let state = read("state");
  let models = null;
  let shown = -1; // of the kept snapshots; -1: the newest, also when others come
  const chosen = new Set(); // ids of events

  const by = (id) => document.getElementById(id);
  const whole = (n) => (n === null || n === undefined ? "–" : n.toLocaleString("en-US"));
  const brief = (n) => {
    if (n === null || n === undefined || Number.isNaN(n)) return "–";
    if (n !== 0 && (Math.abs(n) >= 1e6 || Math.abs(n) < 1e-3)) return n.toExponential(1);
    return n.toLocaleString("en-US", { maximumSignificantDigits: 4 });
  };
  const once = (height) => {
    if (height === null) return "–";
    return height < 6 ? whole(Math.round(10 ** height)) + " events" : "10^" + height.toFixed(1) + " events";
  };

  function make(tag, attributes, ...children) {
    const one = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) {
      if (name === "click") one.addEventListener("click", value);
      else if (value === true) one.setAttribute(name, "");
      else if (value !== false && value !== null) one.setAttribute(name, value);
    }
    one.append(...children.map((child) => (child instanceof Node ? child : String(child))));
    return one;
  }

  const sign = (mark) => mark.replace(/[$\\]/g, (found) => found + "\u200b"); // no formulas on axes

  // Replace only what differs, so that a reader, a focus and a scroll bar stay where they are.
  function fill(id, ...children) {
    const place = by(id);
    const fresh = document.createElement(place.tagName);
    fresh.append(...children);
    if (fresh.innerHTML !== place.innerHTML) place.replaceChildren(...fresh.childNodes);
  }

  function table(caption, heads, rows) {
    const cell = (tag, value) => {
      if (value instanceof Node) return make(tag, null, value);
      const isNumber = typeof value === "number";
      return make(tag, isNumber ? { class: "number" } : null, isNumber ? brief(value) : value ?? "–");
    };
    const numeric = heads.map((_, j) => rows.length > 0 && rows.every((row) => typeof row[j] === "number" || row[j] === null));
    const head = heads.map((name, j) => make("th", { scope: "col", class: numeric[j] ? "number" : null }, name));
    const body = rows.map((row) => make("tr", null, ...row.map((value) => cell("td", value))));
    return make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
      make("table", null, make("caption", null, caption), make("thead", null, make("tr", null, ...head)), make("tbody", null, ...body)));
  }

  // ---------------------------------------------------------------- signs of the legends

  const SHAPES = {
    x: '<path d="M3 3 11 11M11 3 3 11"/>',
    circle: '<circle cx="7" cy="7" r="5"/>',
    triangle: '<path d="M7 1.5 13 12.5H1z"/>',
    square: '<path d="M2 2h10v10H2z"/>',
    diamond: '<path d="M7 0.5 12 7 7 13.5 2 7z"/>',
    inverted_triangle: '<path d="M7 12.5 13 1.5H1z"/>',
    star: '<path d="M7 .5 8.6 5.2 13.5 5.2 9.6 8.2 11 13 7 10.1 3 13 4.4 8.2 .5 5.2 5.4 5.2z"/>',
    hex: '<path d="M7 1 12.2 4v6L7 13 1.8 10V4z"/>',
    plus: '<path d="M5.5 1h3v4.500h4.500v3h-4.500v4.500h-3v-4.500h-4.500v-3h4.500z"/>',
  };
  const DASHED = { solid: "", dashed: "6,3", dotdash: "2,3,6,3", dotted: "2,3", dashdot: "6,3,2,3" };

  function drawing(markup, width) { // only of constants of this file
    const holder = document.createElement("span");
    holder.innerHTML = `<svg width="${width}" height="14" viewBox="0 0 ${width} 14" aria-hidden="true" focusable="false">${markup}</svg>`;
    return holder.firstChild;
  }
  function shape(marker, colour, hollow) {
    const svg = drawing(SHAPES[marker] || SHAPES.circle, 14);
    svg.setAttribute("fill", hollow ? "none" : colour);
    svg.setAttribute("stroke", colour);
    svg.setAttribute("stroke-width", "1.5");
    return svg;
  }
  function stroke(colour, dash) {
    const svg = drawing(`<path d="M0 7h26" fill="none" stroke-width="2.5" stroke-dasharray="${DASHED[dash] ?? ""}"/>`, 26);
    svg.setAttribute("stroke", colour);
    return svg;
  }
  const entry = (svg, name) => make("span", null, svg, name);

  // ---------------------------------------------------------------- models

  const model = (name) => models.get_model_by_name(name);
  const missing = (values) => values.map((value) => (value === null ? NaN : value));
  const same = (a, b) => JSON.stringify(a) === JSON.stringify(b);
  const last = {};
  function put(name, data) {
    if (last[name] && same(last[name], data)) return;
    last[name] = data;
    const found = model(name);
    if (!found) return;
    const made = {};
    for (const [column, values] of Object.entries(data)) {
      made[column] = values.some((value) => value === null) ? missing(values) : values;
    }
    found.data = made;
  }

  function theme() {
    const style = getComputedStyle(document.documentElement);
    const value = (name) => style.getPropertyValue(name).trim();
    const [ground, ink, soft, line] = ["--ground", "--ink", "--soft", "--line"].map(value);
    for (const name of settings.figures) {
      const one = model(name);
      one.setv({ background_fill_color: ground, border_fill_color: ground, outline_line_color: line });
      for (const axis of [...one.below, ...one.left]) {
        axis.setv({ axis_label_text_color: ink, major_label_text_color: ink, axis_line_color: soft, major_tick_line_color: soft, minor_tick_line_color: null });
      }
      for (const part of one.center) if ("grid_line_color" in part) part.grid_line_color = line;
      for (const renderer of one.renderers) {
        if (renderer.glyph?.tags.includes("ink")) renderer.glyph.line_color = ink;
      }
    }
  }

  const told = (id, text) => {
    const one = by(id);
    one.setAttribute("role", "group");
    one.setAttribute("aria-label", text);
  };

  // ---------------------------------------------------------------- header

  function header() {
    const run = state.run;
    by("name").textContent = run.name;
    fill("says", run.says + ".");
    const tile = (name, value, more) => make("div", null, make("dt", null, name), make("dd", null, value, more ? make("small", null, more) : ""));
    const proof = run.met === true ? "met" : run.met === false ? "not met" : "–";
    const alarms = state.drift ? state.drift.alarms.length : 0;
    const drift = !state.drift ? "not monitored" : alarms ? `${alarms} alarm${alarms > 1 ? "s" : ""}` : "no alarm";
    fill("tiles",
      tile("Events learned", whole(run.accepted), run.begun ? `from event ${whole(run.begun)} on` : `to event ${whole(run.position)}`),
      tile("Rows rejected", whole(run.rejected), run.rejected ? "listed below" : "none"),
      tile("Snapshots kept", whole(run.kept.length), `of ${whole(state.history.rows)} committed`),
      tile("Newest certificate", proof, run.residual === null ? "no snapshot yet" : run.met === null ? "no tolerance was asked for" : `residual ${brief(run.residual)}`),
      tile("Drift", drift, state.drift ? `now ${state.drift.state}` : "no monitor in this run"));
    const none = state.clouds.length === 0;
    by("empty").hidden = !none;
    by("empty").textContent = "This run has no snapshot yet: its warm-up has not ended, or nothing was committed. Figures of snapshots come with the first.";
    for (const id of ["cloud", "geometry"]) by(id).hidden = none;
  }

  // ---------------------------------------------------------------- drift

  const hidden = new Set(); // channels that the reader has switched off

  function drift() {
    const found = state.drift;
    by("drift-none").hidden = found !== null;
    by("drift-some").hidden = found === null;
    if (!found) return;
    by("asked").textContent = `Timeline; asked: one false alarm in ${found.asked} events`;
    fill("drift-notes", ...found.notes.map((note) => make("p", { class: "note" }, note)));
    const legend = [];
    for (const [channel, [colour, dash]] of Object.entries(settings.palettes.lines)) {
      const line = found.channels[channel] || { x: [], y: [], memory: [] };
      put(`drift:${channel}`, { ...line, channel: line.x.map(() => channel), once: line.y.map(once) });
      if (!line.x.length) continue;
      const button = make("button", { type: "button", "aria-pressed": String(!hidden.has(channel)), "data-channel": channel,
        title: "show or hide" }, stroke(colour, dash), channel);
      legend.push(button);
    }
    fill("legend-drift", ...legend,
      entry(stroke("#D55E00", "dashed"), "alarm line"),
      entry(shape("inverted_triangle", "#D55E00"), "alarm"),
      entry(shape("diamond", "#0072B2"), "onset"),
      ...(found.stretches.length ? [make("span", null, "hatched: not watching (collecting or relearning)")] : []),
      make("span", null, "ticks at the bottom: kept snapshots"));
    for (const button of by("legend-drift").querySelectorAll("button")) {
      button.onclick = () => {
        const channel = button.dataset.channel;
        if (!hidden.delete(channel)) hidden.add(channel);
        button.setAttribute("aria-pressed", String(!hidden.has(channel)));
        showChannels();
      };
    }
    showChannels();
    const top = found.top;
    put("drift:null", { y0: [0], y1: [found.null] });
    put("drift:away", { x0: found.stretches.map((one) => one.start), x1: found.stretches.map((one) => one.end) });
    put("drift:threshold", { y: [found.threshold] });
    put("drift:alarms", { x: found.alarms.map((one) => one.position), y: found.alarms.map((one) => one.height),
      sentence: found.alarms.map((one) => one.sentence), channel: found.alarms.map((one) => one.channel), once: found.alarms.map((one) => once(one.height)) });
    put("drift:onsets", { x: found.alarms.map((one) => one.onset), y: found.alarms.map(() => top * 0.05) });
    put("drift:snapshots", { x: state.run.kept, y: state.run.kept.map(() => top * 0.015) });
    const highest = Math.max(found.threshold, ...found.alarms.map((one) => one.height), ...Object.values(found.channels).flatMap((one) => one.y.filter((y) => y !== null)));
    model("figure-drift").y_range.end = Math.min(top, highest + 1) * 1.05;
    told("figure-drift", `Drift timeline: ${Object.keys(found.channels).length} channels to event ${whole(state.run.position)}, ${found.alarms.length} alarms` +
      found.alarms.map((one) => `; at event ${whole(one.position)} in ${one.channel}, since about ${whole(one.onset)}`).join(""));
    fill("alarms", ...found.alarms.map(alarm));
    for (const button of by("alarms").querySelectorAll("button")) button.onclick = () => find(button.dataset.id);
    components(found.components);
    calibration(found);
  }

  function showChannels() {
    for (const renderer of model("figure-drift").renderers) {
      const [kind, channel] = (renderer.name || "").split(":");
      if (kind === "line" || kind === "dots") renderer.visible = !hidden.has(channel);
    }
  }

  function alarm(one) {
    const memory = one.memory ? `memory of ${whole(one.memory)} events` : "snapshots";
    const made = make("article", { class: "alarm" },
      make("h3", null, `Alarm at event ${whole(one.position)}, since about event ${whole(one.onset)}`),
      make("p", null, one.sentence || "No explanation was recorded."),
      make("p", { class: "caption" }, `Channel ${one.channel}, ${memory}; a value as high comes once in ${rare(one)} without drift.`));
    if (one.features.length) made.append(table("Features, most changed first; how far means have moved, in standard deviations of the reference", ["feature", "moved by", "p"], one.features));
    if (one.components.length) made.append(table("Components, and their share of the alarm", ["component", "share"], one.components.map(([name, share]) => [name, percent(share)])));
    if (one.events.length) {
      made.append(table("The events that speak loudest", ["id", "event", "contribution", "in the cloud"],
        one.events.map(([id, position, size]) => [id, position, size, make("button", { type: "button", "data-id": id, "aria-label": `show event ${id} in the cloud` }, "show")])));
    }
    return made;
  }

  const rare = (one) => (one.run_length ? once(Math.log10(one.run_length)) : `more than ${once(one.height)}`);
  const percent = (share) => (share === null ? "–" : (100 * share).toLocaleString("en-US", { maximumFractionDigits: 1 }) + " %");
  const HEADS = [["name", "name"], ["verdict", "verdict"], ["share", "share of the alarm"], ["channel", "channel"], ["reference_mean", "reference mean"],
    ["now_mean", "mean now"], ["reference_sd", "reference sd"], ["now_sd", "sd now"], ["ks", "KS"], ["p_adjusted", "adjusted p"]];

  function components(rows) {
    if (!rows.length) return fill("components");
    return fill("components", make("h3", null, "Components and features"), table("Each component and feature: the reference against now, the largest share first",
      HEADS.map(([, head]) => head), rows.map((row) => HEADS.map(([key]) => (key === "share" ? percent(row[key]) : row[key] ?? null)))));
  }

  function calibration(found) {
    const facts = { ...found.calibration.facts, "state now": found.state };
    fill("calibration-facts", ...Object.entries(facts).flatMap(([name, value]) => [make("dt", null, name.replaceAll("_", " ")), make("dd", null, typeof value === "number" ? brief(value) : value ?? "–")]));
    const logs = found.calibration.run_lengths.filter((one) => one > 0).map(Math.log10);
    by("figure-run-lengths").parentElement.hidden = !logs.length;
    if (!logs.length) return;
    const [low, bins] = [Math.min(...logs), 20];
    const step = (Math.max(...logs) - low) / bins || 1;
    const count = new Array(bins).fill(0);
    for (const one of logs) count[Math.min(bins - 1, Math.floor((one - low) / step))] += 1;
    put("run-lengths", { left: count.map((_, j) => low + j * step), right: count.map((_, j) => low + (j + 1) * step), count });
    put("run-lengths:asked", { x: found.ert ? [Math.log10(found.ert)] : [] });
    told("figure-run-lengths", `Histogram of ${logs.length} simulated run lengths`);
  }

  // ---------------------------------------------------------------- clouds

  const current = () => state.clouds[shown < 0 || shown >= state.clouds.length ? state.clouds.length - 1 : shown];

  function ramp(values, palette) {
    const known = values.filter((value) => value !== null);
    const [low, high] = [Math.min(...known), Math.max(...known)];
    const colour = (value) => (value === null ? "#8a8a8a" : palette[Math.round((palette.length - 1) * (high > low ? (value - low) / (high - low) : 0.5))]);
    return { colours: values.map(colour), low, high, known: known.length };
  }

  function bar(palette, low, high, name) {
    const canvas = make("canvas", { width: palette.length, height: 1, "aria-hidden": "true" });
    const context = canvas.getContext("2d");
    palette.forEach((colour, j) => { context.fillStyle = colour; context.fillRect(j, 0, 1, 1); });
    return make("span", null, `${name} ${low}`, canvas, high);
  }

  function look(j) { // of a label: a colour and a shape that no other has
    const { labels, markers } = settings.palettes;
    if (j === null || j >= state.labels.length) return ["#8a8a8a", "circle"];
    return [labels[j % labels.length], markers[(j + Math.floor(j / labels.length)) % markers.length]];
  }
  const named = (j) => (j === null ? "no label" : j < state.labels.length ? state.labels[j] : "another label");

  function cloud() {
    const clouds = state.clouds;
    if (!clouds.length) return;
    const slider = by("position");
    slider.max = clouds.length - 1;
    const index = clouds.indexOf(current());
    slider.value = index;
    const one = clouds[index];
    const where = `event ${whole(one.position)}, ${index + 1} of ${clouds.length}`;
    by("position-told").textContent = where;
    slider.setAttribute("aria-valuetext", where);
    const select = by("colour");
    const known = { label: one.label.some((j) => j !== null), coverage: one.coverage.some((c) => c !== null), time: true };
    for (const option of select.options) option.disabled = !known[option.value];
    if (!known[select.value]) select.value = "time";
    const kind = select.value;
    const looks = one.label.map(look);
    let colours = looks.map(([colour]) => colour);
    const legend = [];
    const palette = settings.palettes.numbers;
    if (kind === "label") {
      const there = [...new Set(one.label)].sort((a, b) => (a ?? 1e9) - (b ?? 1e9));
      for (const j of there) legend.push(entry(shape(look(j)[1], look(j)[0]), named(j)));
    } else {
      const made = ramp(kind === "time" ? one.at : one.coverage, palette);
      colours = made.colours;
      legend.push(kind === "time" ? bar(palette, whole(made.low), whole(made.high), "event") : bar(palette, brief(made.low), brief(made.high), "coverage by the reference"));
      if (known.label) legend.push(make("span", null, "shapes: labels"));
    }
    if (one.off.some(Boolean)) legend.push(entry(shape("circle", "#8a8a8a", true), "hollow: nothing similar in the reference"));
    const isBehind = by("show-behind").checked && one.behind.id.length > 0;
    if (isBehind) legend.push(entry(shape("x", "#8a8a8a"), "grey crosses: reference" + (one.behind.off.some(Boolean) ? ", faint where nothing similar is left" : "")));
    if (one.lost.some(Boolean)) {
      const halo = shape("circle", "#8a8a8a");
      halo.setAttribute("opacity", "0.4");
      legend.push(entry(halo, "halo: few of its neighbours are near it"));
    }
    fill("legend-cloud", ...legend);
    for (const canvas of by("legend-cloud").querySelectorAll("canvas")) { // pixels are not markup
      const context = canvas.getContext("2d");
      palette.forEach((colour, j) => { context.fillStyle = colour; context.fillRect(j, 0, 1, 1); });
    }
    const nothing = one.x.map(() => null);
    const source = model("cloud");
    put("cloud", { x: one.x, y: one.y, x2: one.x2 ?? nothing, y2: one.y2 ?? nothing, id: one.id, at: one.at, time: one.time.map((t) => t ?? "–"),
      label: one.label.map(named), coverage: one.coverage, off: one.off, colour: colours, marker: looks.map(([, marker]) => marker), fill: one.off.map((off) => (off ? 0 : 0.75)) });
    source.selected.indices = one.id.flatMap((id, i) => (chosen.has(id) ? [i] : []));
    const behind = isBehind ? one.behind : { id: [], x: [], y: [], x2: [], y2: [], off: [] };
    const blank = behind.id.map(() => null);
    put("behind", { id: behind.id, x: behind.x, y: behind.y, x2: behind.x2.length ? behind.x2 : blank, y2: behind.y2.length ? behind.y2 : blank, fill: behind.off.map((off) => (off ? 0.35 : 0.9)) });
    const lost = one.lost.flatMap((is, i) => (is ? [i] : []));
    put("halos", { x: lost.map((i) => one.x[i]), y: lost.map((i) => one.y[i]) });
    axes("cloud-main", one.axes[0]);
    if (one.axes[1]) axes("cloud-other", one.axes[1]);
    by("other").hidden = !one.axes[1];
    by("other").previousElementSibling.classList.toggle("wide", !one.axes[1]);
    by("main-title").textContent = one.pictured ? `Live map (${Math.round(100 * one.kept)} % of neighbours kept)` : "First coordinates";
    by("other-title").textContent = one.pictured ? "First two coordinates" : "First and third coordinate";
    const points = one.points === one.id.length ? `${whole(one.points)} events` : `${whole(one.id.length)} of ${whole(one.points)} events`;
    fill("cloud-caption", `What the snapshot at event ${whole(one.position)} holds: ${points}, epoch ${one.epoch}; near points are similar events` +
      (one.pictured ? ", but distances between islands of the live map mean nothing" : "") +
      (isBehind ? `. Behind them, in grey: ${state.reference}, placed by this snapshot.` : "."));
    told("figure-cloud-main", `Cloud of ${points} at event ${whole(one.position)}, coloured by ${kind}`);
    told("figure-cloud-other", `The same events in ${one.axes[1] ? one.axes[1].join(" and ") : "no other coordinates"}`);
    for (const name of ["drift", "spectrum", "certificate", "movement", "refreshes"]) put(`${name}:shown`, { x: [one.position] });
    list();
  }

  function axes(name, [x, y]) {
    const one = model(`figure-${name}`);
    const isMap = y === "";
    for (const [axis, label] of [[one.below[0], x], [one.left[0], y]]) axis.setv({ axis_label: isMap ? null : label, visible: !isMap });
  }

  function list() {
    const one = current();
    const rows = one.id.flatMap((id, i) => (chosen.has(id) ? [[id, one.at[i], named(one.label[i]), one.time[i], one.coverage[i], one.off[i] ? "yes" : "no"]] : []));
    if (!chosen.size) return fill("chosen");
    const most = 50;
    const head = rows.length > most ? `Chosen: ${whole(rows.length)} events, the first ${most} of them` : `Chosen: ${whole(rows.length)} event${rows.length === 1 ? "" : "s"}`;
    fill("chosen", table(rows.length ? head : "What was chosen is not in this snapshot", ["id", "event", "label", "time", "coverage", "off the reference"], rows.slice(0, most)),
      make("button", { type: "button", id: "forget" }, "choose none"));
    by("forget").onclick = () => { chosen.clear(); cloud(); };
    return undefined;
  }

  function find(id) { // in the shown snapshot, or in the last one that has it
    const has = (one) => one.id.includes(id);
    if (!has(current())) {
      const places = state.clouds.flatMap((one, i) => (has(one) ? [i] : []));
      if (places.length) shown = places[places.length - 1];
    }
    chosen.clear();
    chosen.add(id);
    cloud();
    by("cloud").scrollIntoView();
  }

  // ---------------------------------------------------------------- geometry

  function geometry() {
    const past = state.history;
    const x = past.position;
    if (!x.length) return;
    const epochs = (past.epoch || []).flatMap((epoch, i) => (i && epoch !== past.epoch[i - 1] ? [x[i]] : []));
    const few = epochs.length <= 12 ? epochs : []; // more would be a curtain
    by("epochs-told").textContent = "Full line: the snapshot that the cloud shows. " + (epochs.length === 0 ? "One epoch: all coordinates can be compared." :
      few.length ? "Dotted lines: a new epoch; coordinates before and after it cannot be compared." :
      "Axes began a new epoch too often to be marked (see the last figure): coordinates of different epochs cannot be compared.");
    for (const name of ["spectrum", "certificate", "movement"]) put(`${name}:epochs`, { x: few });
    const lines = Object.fromEntries(past.eigenvalues.map((values, j) => [`e${j}`, values]));
    put("spectrum", { x, ...lines });
    fill("legend-spectrum", ...past.eigenvalues.map((_, j) => entry(stroke(...settings.palettes.eigenvalues[j]), `${j + 1}.`)));
    const positive = (values) => (values || x.map(() => null)).map((value) => (value === null ? null : Math.max(value, 1e-17)));
    put("certificate", { x, residual: positive(past.residual), angle: positive(past.angle_bound),
      met: (past.met || x.map(() => null)).map((met) => (met === null ? "–" : met ? "yes" : "no")),
      marker: (past.met || x.map(() => null)).map((met) => (met === 0 ? "triangle" : "circle")) });
    put("certificate:tolerance", { y: past.tolerance === null ? [] : [past.tolerance] });
    fill("legend-certificate", entry(stroke("#0072B2", "solid"), "residual"), entry(stroke("#A49000", "dotdash"), "bound of the angle"),
      past.tolerance === null ? make("span", null, "no tolerance was asked for") : entry(stroke("#D55E00", "dashed"), `tolerance ${brief(past.tolerance)}`));
    const empty = x.map(() => null);
    put("movement", { x, displacement: past.displacement || empty, movement: past.movement || empty, epoch: past.epoch || empty });
    fill("legend-movement", entry(stroke("#0072B2", "solid"), "movement"), entry(stroke("#A49000", "dashed"), "displacement"));
    put("refreshes", { x, refreshes: past.refreshes || empty, epoch: past.epoch || empty });
    fill("legend-refreshes", entry(stroke("#0072B2", "solid"), "refreshes"), entry(stroke("#A49000", "dashed"), "epochs"));
    const range = `${whole(past.rows)} snapshots from event ${whole(x[0])} to ${whole(x[x.length - 1])}`;
    const now = (values) => brief(values[values.length - 1]);
    told("figure-spectrum", `Eigenvalues of ${range}; now ${past.eigenvalues.map(now).join(", ")}`);
    told("figure-certificate", `Residuals of ${range}; now ${past.residual ? now(past.residual) : "unknown"}`);
    told("figure-movement", `Movement and displacement of ${range}`);
    told("figure-refreshes", `Refreshes and epochs of ${range}`);
  }

  // ---------------------------------------------------------------- metrics

  function metrics() {
    by("metrics-none").hidden = settings.metrics.length > 0;
    settings.metrics.forEach((name, i) => {
      const one = state.metrics.find((metric) => metric.name === name);
      by(`heat-${i}`).hidden = !one;
      if (!one) return;
      const features = one.features.map(sign);
      const chart = model(`figure-metric-${i}`);
      if (!same(chart.x_range.factors, features)) {
        chart.x_range.factors = features;
        chart.y_range.factors = [...features].reverse();
      }
      const size = Math.max(1e-300, ...one.matrix.flat().map((value) => Math.abs(value ?? 0)));
      const cells = { row: [], column: [], value: [], colour: [], told: [], ink: [] };
      const palette = settings.palettes.signs;
      one.matrix.forEach((row, r) => row.forEach((value, c) => {
        const place = Math.round((palette.length - 1) * (0.5 - (value ?? 0) / size / 2));
        cells.row.push(features[r]);
        cells.column.push(features[c]);
        cells.value.push(value);
        cells.colour.push(palette[place]);
        cells.told.push(features.length <= 10 ? brief(value) : "");
        cells.ink.push(Math.abs(place - 5) >= 4 ? "#ffffff" : "#1d2125");
      }));
      put(`metric-${i}`, cells);
      const part = one.of > features.length ? `; the ${features.length} heaviest of ${whole(one.of)} features` : "";
      by(`heat-told-${i}`).textContent = (one.taught ? `Learned from ${one.source ?? "pairs"}` : "Nothing learned yet: where its learner starts") +
        `, rank ${one.rank}, per standard deviation of the features${part}. A large diagonal entry: this feature counts; violet is positive, brown negative.`;
      told(`figure-metric-${i}`, `Heat map of the metric ${name} over ${features.length} features`);
    });
  }

  // ---------------------------------------------------------------- the rest

  function rest() {
    const gone = state.rejected;
    fill("rejected-told", gone.total ? `${whole(gone.total)} row${gone.total > 1 ? "s were" : " was"} not learned.` : "No row was rejected.");
    fill("rejected-tables", ...(gone.total ? [table("Why", ["reason", "rows"], gone.reasons),
      make("details", null, make("summary", null, "The rows"), table(`The first ${whole(gone.rows.length)} rejected rows`, ["row", "id", "reason"], gone.rows))] : []));
    fill("notes", ...(state.notes.length ? state.notes : ["Nothing is left out: everything that is kept is drawn."]).map((note) => make("li", null, note)));
    fill("settings-table", table("How the run came about", ["setting", "value"], Object.entries(state.settings)));
  }

  function apply() {
    header();
    drift();
    cloud();
    geometry();
    metrics();
    rest();
    document.documentElement.dataset.position = state.run.position;
  }

  // ---------------------------------------------------------------- following a run

  let etag = settings.live ? settings.live.etag : null;
  let committed = null; // when the run was written last, by this browser's clock
  let trouble = "";

  function clock(time) { return new Date(time).toLocaleTimeString("en-GB"); }

  function status() {
    const line = by("live");
    line.hidden = false;
    const age = committed === null ? 0 : (Date.now() - committed) / 1000;
    const isStale = trouble !== "" || (age > settings.live.stale && state.run.state !== "finished");
    line.className = isStale ? "stale" : "fresh";
    const since = committed === null ? "" : clock(committed);
    const text = trouble !== "" ? `Stale since ${clock(answered)}: ${trouble}` :
      isStale ? `Stale since ${since}: nothing was committed for a while` :
      state.run.state === "finished" ? `Finished; last commit at ${since}` : `Following; last commit at ${since}`;
    if (line.textContent !== text) line.textContent = text;
  }

  let answered = Date.now();
  async function poll() {
    const stop = new AbortController();
    const timer = setTimeout(() => stop.abort(), 20000);
    try {
      const answer = await fetch("state.json", { cache: "no-store", signal: stop.signal, headers: etag ? { "If-None-Match": etag } : {} });
      const age = Number(answer.headers.get("X-Run-Age"));
      if (answer.ok || answer.status === 304) {
        committed = Date.now() - 1000 * age;
        answered = Date.now();
        trouble = "";
      } else trouble = (await answer.text()).slice(0, 300);
      if (answer.ok) {
        state = await answer.json();
        etag = answer.headers.get("ETag");
        apply();
      }
    } catch {
      trouble = "the server does not answer";
    } finally {
      clearTimeout(timer);
    }
    status();
    setTimeout(poll, 1000 * settings.live.every);
  }

  // ---------------------------------------------------------------- beginning

  settings.metrics.forEach((name, i) => by("heat-maps").append(
    make("figure", { id: `heat-${i}`, hidden: true }, make("h3", null, name), make("figcaption", { id: `heat-told-${i}` }), make("div", { id: `figure-metric-${i}`, class: "plot" }))));

  async function begin() {
    Bokeh.set_log_level("error");
    models = Bokeh.require("document").Document.from_json(read("figures"));
    theme();
    apply(); // before anything is painted
    const places = models.roots().map((one) => by(one.name));
    await Bokeh.embed.add_document_standalone(models, document.body, places);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", theme);
    const source = model("cloud");
    source.selected.properties.indices.change.connect(() => {
      const one = current();
      const now = source.selected.indices.map((i) => one.id[i]);
      if (now.length || one.id.some((id) => chosen.has(id))) {
        chosen.clear();
        now.forEach((id) => chosen.add(id));
      }
      list();
    });
    by("position").addEventListener("input", (event) => {
      const at = Number(event.target.value);
      shown = at === state.clouds.length - 1 ? -1 : at;
      cloud();
    });
    by("colour").addEventListener("change", cloud);
    by("show-behind").addEventListener("change", cloud);
    by("calibration").addEventListener("toggle", () => window.dispatchEvent(new Event("resize")));
    document.documentElement.dataset.ready = "yes";
    if (settings.live) {
      status();
      poll();
    }
  }
  begin();
})();
