"use strict";
// One path for a page that is written once and for one that follows a run: `apply` shows a state.
// All text enters the page as text, never as markup.
(() => {
  const read = (id) => JSON.parse(document.getElementById(id).textContent);
  const settings = read("settings");
  let state = read("state");
  let models = null;
  let shown = -1; // index of a stored snapshot; -1: always the newest
  const selected = new Set(); // ids of events

  const by = (id) => document.getElementById(id);
  const whole = (n) => (n === null || n === undefined ? "–" : n.toLocaleString("en-US"));
  const brief = (n) => {
    if (n === null || n === undefined || Number.isNaN(n)) return "–";
    if (Number.isInteger(n) && Math.abs(n) < 1e12) return whole(n);
    if (n !== 0 && (Math.abs(n) >= 1e6 || Math.abs(n) < 1e-3)) return n.toExponential(1);
    return n.toLocaleString("en-US", { maximumSignificantDigits: 4 });
  };
  const once = (height) => {
    if (height === null) return "–";
    const events = height < 6 ? Math.round(10 ** height) : Number((10 ** height).toPrecision(2));
    return (height < 12 ? whole(events) : "10^" + height.toFixed(0)) + " events";
  };

  function make(tag, attributes, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) {
      if (name === "click") element.addEventListener("click", value);
      else if (value === true) element.setAttribute(name, "");
      else if (value !== false && value !== null) element.setAttribute(name, value);
    }
    element.append(...children.map((child) => (child instanceof Node ? child : String(child))));
    return element;
  }

  // Columns that the run kept beside an event, and a link to it.
  const keptOf = (id) => state.kept.events[id] ?? state.kept.columns.map(() => "");
  function link(id) {
    if (!settings.link) return id;
    const value = (name) => (name === "id" ? id : keptOf(id)[state.kept.columns.indexOf(name)] ?? "");
    const href = settings.link.replace(/{([^{}]*)}/g, (_, name, at) => (at === 0 ? value(name) : encodeURIComponent(value(name))));
    return /^https?:\/\//.test(href) ? make("a", { href, target: "_blank", rel: "noreferrer" }, id) : id;
  }

  const sign = (mark) => mark.replace(/[$\\]/g, (found) => found + "\u200b"); // no formulas on axes

  // Replace only what differs, so that focus and scroll positions stay.
  function fill(id, ...children) {
    const place = by(id);
    const fresh = document.createElement(place.tagName);
    fresh.append(...children);
    if (fresh.innerHTML !== place.innerHTML) place.replaceChildren(...fresh.childNodes);
  }

  function table(caption, heads, rows) {
    const cell = (tag, value) => {
      if (value instanceof Node) return make(tag, null, value);
      return make(tag, isNumber(value) ? { class: "number" } : null, typeof value === "number" ? brief(value) : value ?? "–");
    };
    const isNumber = (value) => typeof value === "number" || (typeof value === "string" && value.endsWith(" %"));
    const numeric = heads.map((_, j) => rows.length > 0 && rows.every((row) => isNumber(row[j]) || row[j] === null));
    const head = heads.map((name, j) => make("th", { scope: "col", class: numeric[j] ? "number" : null }, name));
    const body = rows.map((row) => make("tr", null, ...row.map((value) => cell("td", value))));
    return make("div", null, make("p", { class: "caption" }, caption),
      make("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": caption },
        make("table", null, make("thead", null, make("tr", null, ...head)), make("tbody", null, ...body))));
  }

  // ---------------------------------------------------------------- symbols of the legends

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

  function drawing(markup, width) { // markup: constants of this file only
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
    const source = model(name);
    if (!source) return;
    const columns = {};
    for (const [column, values] of Object.entries(data)) {
      columns[column] = values.some((value) => value === null) ? missing(values) : values;
    }
    source.data = columns;
  }

  function theme() {
    const style = getComputedStyle(document.documentElement);
    const value = (name) => style.getPropertyValue(name).trim();
    const [background, ink, soft, line] = ["--background", "--ink", "--soft", "--line"].map(value);
    for (const name of settings.figures) {
      const figure = model(name);
      figure.setv({ background_fill_color: background, border_fill_color: background, outline_line_color: line });
      for (const axis of [...figure.below, ...figure.left]) {
        axis.setv({ axis_label_text_color: ink, major_label_text_color: ink, axis_line_color: soft, major_tick_line_color: soft, minor_tick_line_color: null });
      }
      for (const part of figure.center) if ("grid_line_color" in part) part.grid_line_color = line;
      for (const renderer of figure.renderers) {
        if (renderer.glyph?.tags.includes("ink")) renderer.glyph.line_color = ink;
      }
    }
  }

  const describe = (id, text) => {
    const element = by(id);
    element.setAttribute("role", "group");
    element.setAttribute("aria-label", text);
  };

  // ---------------------------------------------------------------- header

  function header() {
    const run = state.run;
    by("name").textContent = run.name;
    fill("description", run.description + ".");
    const tile = (name, value, more) => make("div", null, make("dt", null, name), make("dd", null, value, more ? make("small", null, more) : ""));
    const proof = run.met === true ? "met" : run.met === false ? "not met" : "–";
    const alarms = state.drift ? state.drift.alarms.length : 0;
    const drift = !state.drift ? "not monitored" : alarms ? `${alarms} alarm${alarms > 1 ? "s" : ""}` : "no alarm";
    fill("tiles",
      tile("Events learned", whole(run.accepted), run.begun ? `from event ${whole(run.begun)} on` : `to event ${whole(run.position)}`),
      tile("Rows rejected", whole(run.rejected), run.rejected ? "listed below" : "none"),
      tile("Snapshots stored", whole(run.kept.length), `of ${whole(state.history.rows)} committed`),
      tile("Newest certificate", proof, run.residual === null ? "no snapshot yet" : run.met === null ? "no tolerance is set" : `residual ${brief(run.residual)}`),
      tile("Drift", drift, state.drift ? `now ${state.drift.state}` : "no monitor in this run"));
    const none = state.scatter_plots.length === 0;
    by("empty").hidden = !none;
    by("empty").textContent = "This run has no snapshot yet: its warm-up has not ended, or nothing is committed. Figures appear with the first snapshot.";
    const empty = { drift: !state.drift, scatter: none, geometry: none, metrics: !settings.metrics.length, rejected: !state.rejected.total };
    for (const [id, isEmpty] of Object.entries(empty)) {
      by(id).hidden = isEmpty;
      document.querySelector(`nav a[href="#${id}"]`).hidden = isEmpty;
    }
    const absent = [["drift", "a drift monitor"], ["metrics", "learned metrics"], ["rejected", "rejected rows"]].filter(([id]) => empty[id]);
    fill("absent", absent.length ? `Not in this run: ${absent.map(([, name]) => name).join(", ")}.` : "");
  }

  // ---------------------------------------------------------------- figures of lines

  // Draw the lines of a figure; returns the entries of its legend by the lines' keys.
  function drawLines(name, dataOf, limit, noteOf, met) {
    const figure = settings.lines[name];
    const legend = {};
    for (const [key, line] of Object.entries(figure.lines)) {
      const { x, y } = dataOf(key) ?? { x: [], y: [] };
      const heights = figure.is_log ? y.map((value) => (value === null ? null : Math.max(value, 1e-17))) : y;
      put(`${name}:${key}`, { x, y: heights, note: y.map(noteOf), marker: y.map((_, i) => (met?.[i] === 0 ? "triangle" : line.marker)) });
      if (x.length) legend[key] = entry(stroke(line.colour, line.dash), line.name);
    }
    put(`${name}:limit`, { y: limit === null ? [] : [limit] });
    if (figure.limit) legend[""] = limit === null ? make("span", null, `no ${figure.limit} is set`) : entry(stroke("#D55E00", "dashed"), figure.is_log ? `${figure.limit} ${brief(limit)}` : figure.limit);
    return legend;
  }

  // ---------------------------------------------------------------- drift

  const hidden = new Set(); // channels that the reader hides

  function drift() {
    const monitor = state.drift;
    if (!monitor) return;
    by("asked").textContent = `Timeline; asked: one false alarm in ${monitor.asked} events`;
    fill("drift-notes", ...monitor.notes.map((note) => make("p", { class: "note" }, note)));
    const legend = drawLines("drift", (channel) => monitor.channels[channel], monitor.threshold, (y) => `once in ${once(y)}`);
    const entries = Object.entries(legend).map(([channel, item]) => (channel === "" ? item :
      make("button", { type: "button", "aria-pressed": String(!hidden.has(channel)), "data-channel": channel, title: "show or hide" }, ...item.childNodes)));
    fill("legend-drift", ...entries,
      entry(shape("inverted_triangle", "#D55E00"), "alarm"),
      entry(shape("diamond", "#0072B2"), "onset"),
      ...(monitor.unwatched.length ? [make("span", null, "hatched: not watching (collecting or relearning)")] : []),
      make("span", null, "ticks at the bottom: stored snapshots"));
    for (const button of by("legend-drift").querySelectorAll("button")) {
      button.onclick = () => {
        const channel = button.dataset.channel;
        if (!hidden.delete(channel)) hidden.add(channel);
        button.setAttribute("aria-pressed", String(!hidden.has(channel)));
        showChannels();
      };
    }
    showChannels();
    const top = monitor.top;
    put("drift:null", { y0: [0], y1: [monitor.null] });
    put("drift:unwatched", { x0: monitor.unwatched.map((item) => item.start), x1: monitor.unwatched.map((item) => item.end) });
    put("drift:alarms", { x: monitor.alarms.map((item) => item.position), y: monitor.alarms.map((item) => item.height),
      sentence: monitor.alarms.map((item) => item.sentence), channel: monitor.alarms.map((item) => item.channel), once: monitor.alarms.map((item) => once(item.height)) });
    put("drift:onsets", { x: monitor.alarms.map((item) => item.onset), y: monitor.alarms.map(() => top * 0.05) });
    put("drift:snapshots", { x: state.run.kept, y: state.run.kept.map(() => top * 0.015) });
    const highest = Math.max(monitor.threshold, ...monitor.alarms.map((item) => item.height), ...Object.values(monitor.channels).flatMap((item) => item.y.filter((y) => y !== null)));
    model("figure-drift").y_range.end = Math.min(top, highest + 1) * 1.05;
    describe("figure-drift", `Drift timeline: ${Object.keys(monitor.channels).length} channels to event ${whole(state.run.position)}, ${monitor.alarms.length} alarms` +
      monitor.alarms.map((item) => `; at event ${whole(item.position)} in ${item.channel}, since about ${whole(item.onset)}`).join(""));
    const sections = [...monitor.alarms.map((item) => [item.position, alarm(item)]),
      ...monitor.records.map((item) => [item.position, make("p", { class: "caption" }, `${item.kind}: ${item.sentence}`)])];
    fill("alarms", ...sections.sort((a, b) => a[0] - b[0]).map(([, section]) => section)); // in the order of the stream
    for (const button of by("alarms").querySelectorAll("button")) button.onclick = () => find(...(button.dataset.members ? JSON.parse(button.dataset.members) : [button.dataset.id]));
    calibration(monitor);
  }

  function showChannels() {
    for (const renderer of model("figure-drift").renderers) {
      const [kind, channel] = (renderer.name || "").split(":");
      if (kind === "line" || kind === "dots") renderer.visible = !hidden.has(channel);
    }
  }

  function alarm(item) {
    const memory = item.memory ? `memory of ${whole(item.memory)} events` : "searched in stretches";
    const article = make("article", { class: "alarm" },
      make("h3", null, `Alarm at event ${whole(item.position)}, since about event ${whole(item.onset)}`),
      make("p", null, item.sentence || "No explanation is recorded."),
      make("p", { class: "caption" }, `Channel ${item.channel}, ${memory}; a value this high occurs once in ${rare(item)} without drift.`));
    const tables = make("div", { class: "tables" });
    if (item.features.length) tables.append(table("Features, most changed first; changes of means in standard deviations of the reference", ["feature", "moved by", "p"], item.features));
    if (item.events.length) {
      tables.append(table("Most unusual events", ["id", ...state.kept.columns, "event", "contribution", "in the scatter plot"],
        item.events.map(([id, position, size]) => [link(id), ...keptOf(id), position, size, make("button", { type: "button", "data-id": id, "aria-label": `show event ${id} in the scatter plot` }, "show")])));
    }
    if (item.exemplars.length) {
      const texts = item.exemplars.flatMap((id) => [" ", link(id), ...keptOf(id).filter(Boolean).map((text) => ` ${text}`), ";"]).slice(0, -1);
      article.append(make("p", null, "Most typical:", ...texts, ". ",
        make("button", { type: "button", "data-members": JSON.stringify(item.members) }, `show its ${whole(item.members.length)} events in the scatter plot`)));
    }
    if (tables.childElementCount) article.append(tables);
    return article;
  }

  const rare = (item) => (item.run_length ? once(Math.log10(item.run_length)) : `more than ${once(item.height)}`);
  const percent = (share) => (share === null ? "–" : (100 * share).toLocaleString("en-US", { maximumFractionDigits: 1 }) + " %");
  function calibration(monitor) {
    const facts = { ...monitor.calibration.facts, "state now": monitor.state };
    fill("calibration-facts", ...Object.entries(facts).flatMap(([name, value]) => [make("dt", null, name.replaceAll("_", " ")), make("dd", null, typeof value === "number" ? brief(value) : value ?? "–")]));
    const logs = monitor.calibration.run_lengths.filter((value) => value > 0).map(Math.log10);
    by("figure-run-lengths").parentElement.hidden = !logs.length;
    if (!logs.length) return;
    const [low, bins] = [Math.min(...logs), 20];
    const step = (Math.max(...logs) - low) / bins || 1;
    const count = new Array(bins).fill(0);
    for (const value of logs) count[Math.min(bins - 1, Math.floor((value - low) / step))] += 1;
    put("run-lengths", { left: count.map((_, j) => low + j * step), right: count.map((_, j) => low + (j + 1) * step), count });
    put("run-lengths:asked", { x: monitor.ert ? [Math.log10(monitor.ert)] : [] });
    describe("figure-run-lengths", `Histogram of ${logs.length} simulated run lengths`);
  }

  // ---------------------------------------------------------------- scatter plots

  const current = () => state.scatter_plots[shown < 0 || shown >= state.scatter_plots.length ? state.scatter_plots.length - 1 : shown];

  function ramp(values, palette) {
    const present = values.filter((value) => value !== null);
    const [low, high] = [Math.min(...present), Math.max(...present)];
    const colour = (value) => (value === null ? "#8a8a8a" : palette[Math.round((palette.length - 1) * (high > low ? (value - low) / (high - low) : 0.5))]);
    return { colours: values.map(colour), low, high, known: present.length };
  }

  function bar(palette, low, high, name) {
    const canvas = make("canvas", { width: palette.length, height: 1, "aria-hidden": "true" });
    const context = canvas.getContext("2d");
    palette.forEach((colour, j) => { context.fillStyle = colour; context.fillRect(j, 0, 1, 1); });
    return make("span", null, `${name} ${low}`, canvas, high);
  }

  function labelStyle(j) { // a unique colour and shape of a label
    const { labels, markers } = settings.palettes;
    if (j === null || j >= state.labels.length) return ["#8a8a8a", "circle"];
    return [labels[j % labels.length], markers[j % markers.length]]; // 7 colours and 8 shapes: 56 pairs
  }
  function groupStyle(group) { // of ids of groups, which stay
    const { labels, markers } = settings.palettes;
    return group === null ? ["#8a8a8a", "circle"] : [labels[group % labels.length], markers[group % markers.length]];
  }
  const labelName = (j) => (j === null ? "no label" : j < state.labels.length ? state.labels[j] : "another label");

  function scatter() {
    const plots = state.scatter_plots;
    if (!plots.length) return;
    const slider = by("position");
    slider.max = plots.length - 1;
    slider.disabled = plots.length === 1;
    const index = plots.indexOf(current());
    slider.value = index;
    const plot = plots[index];
    const place = `event ${whole(plot.position)}, ${index + 1} of ${plots.length}`;
    by("position-text").textContent = place;
    slider.setAttribute("aria-valuetext", place);
    const select = by("colour");
    const available = { label: plot.label.some((j) => j !== null), time: plot.at.some((at) => at !== null), coverage: plot.coverage.some((c) => c !== null), group: plot.id.some((id) => id in state.groups.of) };
    for (const option of select.options) option.disabled = !available[option.value];
    if (!available[select.value]) select.value = ["label", "group", "time", "coverage"].find((name) => available[name]) ?? "label";
    const kind = select.value;
    let styles = plot.label.map(labelStyle);
    let colours = styles.map(([colour]) => colour);
    const legend = [];
    const palette = settings.palettes.numbers;
    if (kind === "label") {
      const there = [...new Set(plot.label)].sort((a, b) => (a ?? 1e9) - (b ?? 1e9));
      const more = `${whole(state.n_labels - state.labels.length)} more`;
      const named = [...new Set(there.map((j) => (j === null ? null : Math.min(j, state.labels.length))))];
      for (const j of named) legend.push(entry(shape(labelStyle(j)[1], labelStyle(j)[0]), j === state.labels.length ? more : labelName(j)));
    } else if (kind === "group") {
      const numbers = state.groups.rows.map(([group]) => group);
      const numberOf = plot.id.map((id) => state.groups.of[id] ?? null);
      styles = numberOf.map((group) => groupStyle(group));
      colours = styles.map(([colour]) => colour);
      for (const group of numbers.filter((group) => numberOf.includes(group))) legend.push(entry(shape(...groupStyle(group).reverse()), `group ${group}`));
      legend.push(entry(shape("circle", "#8a8a8a"), "in no group"));
    } else {
      const ramped = ramp(kind === "time" ? plot.at : plot.coverage, palette);
      colours = ramped.colours;
      legend.push(kind === "time" ? bar(palette, whole(ramped.low), whole(ramped.high), "event") : bar(palette, brief(ramped.low), brief(ramped.high), "coverage by the reference"));
      if (available.label) legend.push(make("span", null, "shapes: labels"));
    }
    if (plot.off.some(Boolean)) legend.push(entry(shape("circle", "#8a8a8a", true), "hollow: nothing similar in the reference"));
    by("show-reference").parentElement.hidden = !plot.reference.id.length;
    const isReferenceShown = by("show-reference").checked && plot.reference.id.length > 0;
    if (isReferenceShown) legend.push(entry(shape("x", "#8a8a8a"), "grey crosses: reference" + (plot.reference.off.some(Boolean) ? ", faint where nothing similar is left" : "")));
    if (plot.untrusted.some(Boolean)) {
      const halo = shape("circle", "#8a8a8a");
      halo.setAttribute("opacity", "0.4");
      legend.push(entry(halo, "halo: few of its neighbours are near it"));
    }
    fill("legend-scatter", ...legend);
    for (const canvas of by("legend-scatter").querySelectorAll("canvas")) { // pixels are not markup
      const context = canvas.getContext("2d");
      palette.forEach((colour, j) => { context.fillStyle = colour; context.fillRect(j, 0, 1, 1); });
    }
    const nulls = plot.x.map(() => null);
    const source = model("scatter");
    put("scatter", { x: plot.x, y: plot.y, x2: plot.x2 ?? nulls, y2: plot.y2 ?? nulls, id: plot.id, at: plot.at, time: plot.time.map((t) => t ?? "–"),
      label: plot.label.map(labelName), kept: plot.id.map((id) => keptOf(id).filter(Boolean).join(" · ")), coverage: plot.coverage, off: plot.off, colour: colours, marker: styles.map(([, marker]) => marker), fill: plot.off.map((off) => (off ? 0 : 0.75)) });
    source.selected.indices = plot.id.flatMap((id, i) => (selected.has(id) ? [i] : []));
    const reference = isReferenceShown ? plot.reference : { id: [], x: [], y: [], x2: [], y2: [], off: [] };
    const blank = reference.id.map(() => null);
    put("reference", { id: reference.id, x: reference.x, y: reference.y, x2: reference.x2.length ? reference.x2 : blank, y2: reference.y2.length ? reference.y2 : blank, fill: reference.off.map((off) => (off ? 0.35 : 0.9)) });
    const untrusted = plot.untrusted.flatMap((is, i) => (is ? [i] : []));
    put("halos", { x: untrusted.map((i) => plot.x[i]), y: untrusted.map((i) => plot.y[i]) });
    axes("scatter-main", plot.axes[0], plot.equal[0]);
    if (plot.axes[1]) axes("scatter-other", plot.axes[1], plot.equal[1]);
    by("other").hidden = !plot.axes[1];
    by("other").previousElementSibling.classList.toggle("wide", !plot.axes[1]);
    by("main-title").textContent = plot.pictured ? `Live map (${Math.round(100 * plot.kept)} % of neighbours kept)` : plot.axes[0].join(" and ");
    by("other-title").textContent = plot.axes[1] ? plot.axes[1].join(" and ") : "";
    const points = plot.points === plot.id.length ? `${whole(plot.points)} events` : `${whole(plot.id.length)} of ${whole(plot.points)} events`;
    fill("scatter-caption", `Snapshot at event ${whole(plot.position)}: ${points}; axes: ${plot.frame}; near points are similar events` +
      (plot.pictured ? ", but distances between separate groups of the live map have no meaning" : "") +
      (isReferenceShown ? `. Grey crosses: ${state.reference}, placed by this snapshot.` : "."));
    describe("figure-scatter-main", `Scatter plot of ${points} at event ${whole(plot.position)}, coloured by ${kind}`);
    describe("figure-scatter-other", `The same events in ${plot.axes[1] ? plot.axes[1].join(" and ") : "no other coordinates"}`);
    for (const name of Object.keys(settings.lines)) put(`${name}:shown`, { x: [plot.position] });
    list();
  }

  function axes(name, [x, y], equal) {
    const figure = model(`figure-${name}`);
    figure.match_aspect = equal;
    const isMap = y === "";
    for (const [axis, label] of [[figure.below[0], x], [figure.left[0], y]]) axis.setv({ axis_label: isMap ? null : label, visible: !isMap });
  }

  function list() {
    const plot = current();
    const rows = plot.id.flatMap((id, i) => (selected.has(id) ? [[link(id), ...keptOf(id), plot.at[i], labelName(plot.label[i]), plot.time[i], plot.coverage[i], plot.off[i] ? "yes" : "no"]] : []));
    if (!selected.size) return fill("selected");
    const most = 50;
    const head = rows.length > most ? `Selected: ${whole(rows.length)} events, the first ${most} of them` : `Selected: ${whole(rows.length)} event${rows.length === 1 ? "" : "s"}`;
    fill("selected", table(rows.length ? head : "The selected events are not in this snapshot", ["id", ...state.kept.columns, "event", "label", "time", "coverage", "off the reference"], rows.slice(0, most)),
      make("button", { type: "button", id: "clear-selection" }, "clear the selection"));
    by("clear-selection").onclick = () => { selected.clear(); scatter(); };
    return undefined;
  }

  function find(...ids) { // in the shown snapshot, or in the last plot that has one of them
    const has = (plot) => ids.some((id) => plot.id.includes(id));
    if (!has(current())) {
      const places = state.scatter_plots.flatMap((plot, i) => (has(plot) ? [i] : []));
      if (places.length) shown = places[places.length - 1];
    }
    selected.clear();
    ids.forEach((id) => selected.add(id));
    scatter();
    by("scatter").scrollIntoView();
  }

  function groups() {
    const { rows, events, position } = state.groups;
    if (!rows.length) return fill("groups");
    const typical = (ids) => make("span", null, ...ids.flatMap((id) => [link(id), ...keptOf(id).filter(Boolean).map((text) => ` ${text}`), "; "]).slice(0, -1));
    const words = { birth: "began", split: "began as a part of group", merge: "ended in group", death: "ended" };
    return fill("groups", table(`Groups of the live map at event ${whole(position)}; ids stay from picture to picture`, ["group", "events", "most typical"],
      rows.map(([group, size, exemplars]) => [String(group), size, typical(exemplars)])),
      table("Groups that began and ended", ["event", "group", "what"], events.map(([at, group, kind, other]) => [at, String(group), `${words[kind]} ${other ?? ""}`])));
  }

  // ---------------------------------------------------------------- geometry

  const GEOMETRY = Object.keys(settings.lines).filter((name) => name !== "drift");

  function geometry() {
    const past = state.history;
    const x = past.position;
    if (!x.length) return;
    const { epochs } = past;
    const few = epochs.length <= 12 ? epochs : []; // more lines would hide the figure
    by("epochs-caption").textContent = "Solid line: the snapshot in the scatter plots. " + (epochs.length === 0 ? "One epoch: all axes are kept." :
      few.length ? "Dotted lines: a new epoch, where scaling was computed again or too much changed; the caption of the scatter plots names the axes that are lost." :
      "There are too many epochs to mark (see the last figure): axes are kept within each, and the caption of the scatter plots names those that are lost.");
    const { met, epoch } = past.columns;
    const range = `${whole(past.rows)} snapshots from event ${whole(x[0])} to ${whole(x[x.length - 1])}`;
    for (const name of GEOMETRY) {
      const figure = settings.lines[name];
      const dataOf = (key) => past.columns[key] && { x, y: past.columns[key] };
      const noteOf = (_, i) => `epoch ${epoch?.[i] ?? "–"}` + (figure.limit && met?.[i] !== null ? `, ${figure.limit} ${met[i] ? "met" : "not met"}` : "");
      const legend = drawLines(name, dataOf, figure.limit ? past.tolerance : null, noteOf, figure.limit ? met : null);
      fill(`legend-${name}`, ...Object.values(legend));
      if (name !== "refreshes") put(`${name}:epochs`, { x: few });
      const now = Object.entries(figure.lines).filter(([key]) => past.columns[key]).map(([key, line]) => `${line.name} ${brief(past.columns[key].at(-1))}`);
      describe(`figure-${name}`, `${figure.title} of ${range}; now ${now.join(", ")}`);
    }
  }

  // ---------------------------------------------------------------- metrics

  function metrics() {
    settings.metrics.forEach((name, i) => {
      const metric = state.metrics.find((metric) => metric.name === name);
      by(`heat-${i}`).hidden = !metric;
      if (!metric) return;
      const features = metric.features.map(sign);
      const chart = model(`figure-metric-${i}`);
      if (!same(chart.x_range.factors, features)) {
        chart.x_range.factors = features;
        chart.y_range.factors = [...features].reverse();
      }
      const size = Math.max(1e-300, ...metric.matrix.flat().map((value) => Math.abs(value ?? 0)));
      const cells = { row: [], column: [], value: [], colour: [], text: [], ink: [] };
      const palette = settings.palettes.signs;
      metric.matrix.forEach((row, r) => row.forEach((value, c) => {
        const place = Math.round((palette.length - 1) * (0.5 - (value ?? 0) / size / 2));
        cells.row.push(features[r]);
        cells.column.push(features[c]);
        cells.value.push(value);
        cells.colour.push(palette[place]);
        cells.text.push(features.length <= 10 ? brief(value) : "");
        cells.ink.push(Math.abs(place - 5) >= 4 ? "#ffffff" : "#1d2125");
      }));
      put(`metric-${i}`, cells);
      const part = metric.of > features.length ? `; the ${features.length} of ${whole(metric.of)} features with the largest weight` : "";
      by(`heat-caption-${i}`).textContent = (metric.fitted ? `Learned from ${metric.source ?? "pairs"}` : "Nothing learned yet: the initial matrix") +
        `, rank ${metric.rank}, per standard deviation of the features${part}. A large diagonal entry: this feature counts; violet is positive, brown negative.`;
      describe(`figure-metric-${i}`, `Heat map of the metric ${name} over ${features.length} features`);
    });
  }

  // ---------------------------------------------------------------- rejected rows, notes, settings

  function lists() {
    const rejected = state.rejected;
    fill("rejected-summary", `${whole(rejected.total)} row${rejected.total > 1 ? "s were" : " was"} not learned.`);
    fill("rejected-tables", ...(rejected.total ? [table("Reasons", ["reason", "rows"], rejected.reasons),
      make("details", null, make("summary", null, "The rows"), table(`The first ${whole(rejected.rows.length)} rejected rows`, ["row", "id", "reason"], rejected.rows))] : []));
    fill("notes", ...(state.notes.length ? state.notes : ["Nothing is left out: all stored data are drawn."]).map((note) => make("li", null, note)));
    fill("settings-table", table("Parameters of the run", ["setting", "value"], Object.entries(state.settings)));
  }

  function apply() {
    header();
    drift();
    scatter();
    groups();
    geometry();
    metrics();
    lists();
    document.documentElement.dataset.position = state.run.position;
  }

  // ---------------------------------------------------------------- following a run

  let etag = settings.live ? settings.live.etag : null;
  let committed = null; // time of the last write to the run, by the browser's clock
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
      isStale ? `Stale since ${since}: no commit for a while` :
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

  // ---------------------------------------------------------------- start

  by("caption-drift").textContent = settings.lines.drift.caption;
  for (const name of GEOMETRY) by("line-figures").append(make("figure", null, make("h3", null, settings.lines[name].title),
    make("figcaption", null, settings.lines[name].caption), make("div", { id: `legend-${name}`, class: "legend" }), make("div", { id: `figure-${name}`, class: "plot" })));
  settings.metrics.forEach((name, i) => by("heat-maps").append(
    make("figure", { id: `heat-${i}`, hidden: true }, make("h3", null, name), make("figcaption", { id: `heat-caption-${i}` }), make("div", { id: `figure-metric-${i}`, class: "plot" }))));

  async function start() {
    Bokeh.set_log_level("error");
    models = Bokeh.require("document").Document.from_json(read("figures"));
    theme();
    apply(); // before the first paint
    const places = models.roots().map((root) => by(root.name));
    await Bokeh.embed.add_document_standalone(models, document.body, places);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", theme);
    const source = model("scatter");
    source.selected.properties.indices.change.connect(() => {
      const plot = current();
      const now = source.selected.indices.map((i) => plot.id[i]);
      if (now.length || plot.id.some((id) => selected.has(id))) {
        selected.clear();
        now.forEach((id) => selected.add(id));
      }
      list();
    });
    by("position").addEventListener("input", (event) => {
      const at = Number(event.target.value);
      shown = at === state.scatter_plots.length - 1 ? -1 : at;
      scatter();
    });
    by("colour").addEventListener("change", scatter);
    by("show-reference").addEventListener("change", scatter);
    by("calibration").addEventListener("toggle", () => window.dispatchEvent(new Event("resize")));
    document.documentElement.dataset.ready = "yes";
    if (settings.live) {
      status();
      poll();
    }
  }
  start();
})();
