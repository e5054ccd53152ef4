// SPDX-License-Identifier: MIT
// Draws a report (schema p2pd.report/1) from the JSON in the page. What the machine says becomes text, never markup.
"use strict";

const UNSAFE = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/g;  // control and direction characters
const report = JSON.parse(document.getElementById("report").textContent,
                          (_, value) => typeof value === "string" ? value.replace(UNSAFE, "\ufffd") : value);

// ---- elements -------------------------------------------------------------------------------------------------------

const fill = (element, inner) => {
  element.append(...inner.flat(Infinity).filter(part => part || part === 0));
  return element;
};

/** Element "tag.class class" with its content: texts, elements and lists of them; null, false and "" are left out. */
const el = (name, ...inner) => {
  const [tag, style] = name.split(".");
  const element = document.createElement(tag);
  if (style) element.className = style;
  return fill(element, inner);
};

const svg = (tag, attributes, ...inner) => {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return fill(element, inner);
};
const image = (size, label, ...inner) => svg("svg", {viewBox: `0 0 ${size}`, role: "img", "aria-label": label}, inner);

/** A sign, and its meaning for those who do not see it. */
const mark = (style, sign, meaning) => {
  const element = el("span." + style, sign);
  element.setAttribute("role", "img");
  element.setAttribute("aria-label", element.title = meaning);
  return element;
};
const heading = (scope, ...inner) => {
  const element = el("th", inner);
  element.scope = scope;
  return element;
};

const list = (name, items) => items.length > 0 && el(name, items.map(item => el("li", item)));
const folded = (title, ...inner) => el("details", el("summary", title), inner);
const table = (name, rows, head = []) =>
    rows.length > 0 && el(name, head.length > 0 && el("thead", el("tr", head.map(title => heading("col", title)))), el("tbody", rows));
const figure = (name, caption, ...inner) => el(name, el("figcaption", caption), inner);

/** Text whose commands, "p2pctl status" and "sudo p2pctl apply", stand out. */
const withCommands = text => {
  const [, command, rest] = text.match(/^(p2pctl .*?(?=  |$))?(.*)$/s);
  return [command && el("code", command), rest.split(/"((?:sudo )?p2p[^"]*)"/).map((part, i) => i % 2 ? el("code", part) : part)];
};

const utc = time => time.replace("T", " ").replace(/Z$/, "");
const digits = value => value.toFixed(value < 9.95 ? 2 : value < 999.5 ? 1 : 0);
const duration = (from, to) => {
  const s = Math.round((Date.parse(to) - Date.parse(from)) / 1000);
  if (!(s >= 0)) return "";
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
  return s < 172800 ? `${Math.floor(s / 3600)} h ${Math.floor(s % 3600 / 60)} min` : `${Math.floor(s / 86400)} days`;
};

// ---- top of the page ------------------------------------------------------------------------------------------------

const SIGNS = {good: "✓", warn: "!", bad: "✗", open: "○"};

function origin() {
  return el("p.faint", `Report of p2pd ${report.version}, ${utc(report.made)} UTC`, report.plan && `, plan ${report.plan}`,
            !report.redacted && [". ", el("strong", "Not redacted"), ": it names this machine."]);
}

function verdict() {
  const {tone, headline, text, next} = report.verdict, actions = report.actions;
  const failed = report.causes.filter(cause => cause.verdict === "fail").map(cause => cause.step);
  return [
    el("div.verdict " + tone, el("h1", el("span.sign", SIGNS[tone]), " ", headline),
       report.machine.text && el("p.machine", report.machine.text), report.machine.emulated && el("p.note", report.machine.emulated),
       (report.ran || actions.length === 0) && text && el("p", text),
       list("ol.actions", actions.map(({next, step, seen}) => [withCommands(next), " ", el("span.faint", el("code", step), " ", seen)])),
       failed.length > 1 && el("p.faint", "Failed checks: ", failed.join(", ")),
       next && el("p.next", el("b", actions.length > 0 ? "Then" : "Next"), " ", withCommands(next)),
       !report.ran && el("p.faint", "Nothing has run on this machine yet: nothing is changed, and this is a diagnosis.")),
    report.notes.map(note => el("p.note", "Not read: " + note))];
}

function numbers() {
  return report.proof && el("dl.numbers", report.numbers.map(({label, value, note}) =>
      el("div", el("dt", label), el("dd", value), note && el("dd.faint", note))));
}

// ---- measurements ---------------------------------------------------------------------------------------------------

const STEPS = 7, FASTEST_US = 0.5, SLOWEST_US = 32;  // of the scale of colours; latencies use a logarithmic one
const cell = (grid, from, to) => grid?.[from]?.[to] ?? null;
const gradeMark = grade => grade === "fail" ? mark("", "✗", "failed") : grade === "warn" && mark("", "!", "slower than it should be");

/** Table [from][to] of `size` GPUs; `draw` makes the td of a pair. */
function grid(size, style, draw) {
  const gpus = [...Array(size).keys()], corner = el("td.corner", el("span", "from ↓ to →"));
  return el(`table.heat${size > 4 ? " many" : ""}${style}`, el("thead", el("tr", corner, gpus.map(to => heading("col", to)))),
            el("tbody", gpus.map(from => el("tr", heading("row", from), gpus.map(to => from === to ? el("td.self") : draw(from, to))))));
}

/** Map of one figure: rows send, columns receive; one scale of colours in every report, and a number in every cell. */
function heatMap(title, {unit, limits}, cells, grades, most) {
  const time = unit === "µs";
  const colour = (value, limit) => {
    const share = time ? Math.log(SLOWEST_US / Math.max(value, FASTEST_US)) / Math.log(SLOWEST_US / FASTEST_US) : value / (limit ?? most);
    return "h" + Math.min(Math.max(Math.floor(share * STEPS), 0), STEPS - 1);
  };
  return figure("figure.map", [title, " ", el("small", unit + (time || limits ? "" : ", colours up to the fastest"))],
                grid(cells.length, "", (from, to) => {
    const value = cell(cells, from, to), limit = cell(limits, from, to);
    if (value === null) return el("td.none", "–");
    return el("td." + colour(value, limit), el("b", digits(value), gradeMark(cell(grades, from, to))),
              limit && [el("small", `${(100 * value / limit).toFixed(0)} %`), el("small.of", `of ${digits(limit)}`)]);
  }));
}

function beforeAndAfter(matrix, grades) {
  const {title, unit, before, after, before_by: by} = matrix;
  const most = Math.max(...[before, after].flat(2).filter(Number.isFinite));
  return [before && heatMap(`${title}: before${by && ", " + by}`, matrix, before, null, most),
          after && heatMap(title + (before ? ": after" : ""), matrix, after, unit === "µs" ? null : grades, most)];
}

function maps({matrices, grades, bytes}) {
  const drawn = these => these.map(matrix => beforeAndAfter(matrix, matrix.id === "copy" ? grades : null));
  const isMain = ({id}) => id === "copy" || id === "latency";
  const scale = el("span.scale", [...Array(STEPS).keys()].map(step => el("i.h" + step)));
  scale.setAttribute("role", "img");
  scale.setAttribute("aria-label", "pale to strong");
  return [
    el("p.faint", "Rows send, columns receive."),
    el("p.legend", el("span", "slow ", scale, ` fast: 0 to 100 % of what the path leaves for data; latency ${SLOWEST_US} to ${FASTEST_US} µs`),
       el("span", "! slower than it should be, ✗ failed")),
    el("div.maps two", drawn(matrices.filter(isMain))),
    el("div.maps", figure("figure.map", "Bytes that arrived", grid(bytes.length, "", (from, to) => {
         const word = cell(bytes, from, to);
         if (!word || word === "not expected") return el("td.none", "–");
         return word === "ok" ? el("td.ok", "✓") : el("td.wrong", "✗ ", el("small", word));
       })), drawn(matrices.filter(matrix => !isMain(matrix))))];
}

/** Two GPUs are sentences: "26.1 GB/s each way", "26.1 GB/s from GPU 0 to GPU 1, 21.4 back". */
function bothWays(cells, {id, unit}) {
  const [there, back] = [cell(cells, 0, 1), cell(cells, 1, 0)].map(value => value === null ? null : digits(value));
  if (there === null && back === null) return "";
  if (there === back) return `${there} ${unit}${id === "both" ? "" : " each way"}`;
  return `${there ?? "unknown"} ${unit} from GPU 0 to GPU 1, ${back ?? "unknown"} back`;
}

function sentences({matrices, grades, bytes}) {
  const told = word => word === "ok" ? "right" : word || "not tested";
  const [there, back] = [told(cell(bytes, 0, 1)), told(cell(bytes, 1, 0))];
  const sentence = matrix => {
    const {id, title, after, before_by: by} = matrix, before = bothWays(matrix.before, matrix);
    const value = cell(after, 0, 1), limit = cell(matrix.limits, 0, 1);
    const signs = id === "copy" ? [[0, 1], [1, 0]].map(([from, to]) => [gradeMark(cell(grades, from, to)), from, to]) : [];
    return [title, ": ", after && [el("b", bothWays(after, matrix)),
            value && limit && `, ${(100 * value / limit).toFixed(0)} % of the ${digits(limit)} that the path leaves for data`,
            signs.map(([sign, from, to]) => sign && [", ", sign, ` GPU ${from} to ${to}`])],
            after && before && "; ", before && `${before} before${by && ", " + by}`, "."];
  };
  return list("ul.figures", [...matrices.map(sentence),
      there === back ? `Bytes both ways: ${there}.` : `Bytes from GPU 0 to GPU 1: ${there}; back: ${back}.`]);
}

function measured() {
  const {proof, before} = report;
  return proof && [
    el("p", proof.summary), el("p.faint", `Measured ${utc(proof.time)} UTC.`),
    proof.again && el("p.faint", `Measured again ${utc(proof.again.time)} UTC: ${proof.again.summary}`),
    !before.measured && el("p.faint", "Before: " + before.why),
    proof.addresses.length > 2 ? maps(proof) : sentences(proof)];
}

function remarks() {
  const {remarks = [], gain_lines: gain = [], kernel_log: log = []} = report.proof ?? {};
  const sign = {fail: ["bad", "✗", "failed"], warn: ["warn", "!", "slower than it should be"]};
  return [list("ul.marks", remarks.map(({grade, text}) => [mark(...sign[grade] ?? ["faint", "–", "not judged"]), " ", text])),
          list("ul", gain.map(withCommands)),
          log.length > 0 && [el("p", "Kernel log since the measurement began:"), el("pre", log.join("\n"))]];
}

function advice() {
  return list("ul", (report.proof?.advice ?? []).map(line => {
    const [, name, rest] = line.match(/^(.*?)(: .*)$/s) ?? [];
    return name ? [el("b", name), el("span", rest)] : line;
  }));
}

/** Rate and temperature over the hours of a soak. */
function soak() {
  if (!report.soak) return null;
  const {minutes, ended, checked_bytes: bytes, wrong, points} = report.soak, width = 640, height = 120;
  const graph = (column, what, unit, style) => {
    const values = points.map(point => point[column]).filter(Number.isFinite), most = Math.max(...values), end = points.at(-1)[0];
    if (!(most > 0)) return null;
    const words = `${what}: ${Math.min(...values).toFixed(1)} to ${most.toFixed(1)} ${unit}`;
    const dots = points.filter(point => Number.isFinite(point[column])).map(point =>
        `${(end > 0 ? point[0] / end * width : 0).toFixed(1)},${(height * (1 - Math.max(point[column], 0) / most)).toFixed(1)}`);
    return figure("figure.graph", words, image(`${width} ${height}`, words, svg("polyline", {class: style, points: dots.join(" ")})));
  };
  const bad = ended === "hung" ? "no answer" : wrong > 0 || ended === "wrong" ? "wrong" : "";
  return [el("p", bad ? mark("bad", "✗", bad) : mark("good", "✓", "right"),
             ` ${minutes.toFixed(1)} minutes, ended: ${ended}; ${(bytes / 2 ** 40).toFixed(2)} TiB checked, ${wrong} wrong`),
          graph(1, "Slowest copy", "GB/s", "rate"), graph(2, "Hottest GPU", "°C", "heat")];
}

// ---- changes, checks, timeline --------------------------------------------------------------------------------------

/** List of changes; `state` tells how far each is. */
const changeList = (changes, state) => {
  const codes = (label, texts) => texts.length > 0 && el("p", label, texts.map(text => [" ", el("code", text)]));
  return list("ol.changes", changes.map(change => [
      el("b", change.step), " ", el("small", state(change)), change.summary && el("p", change.summary),
      codes("Files", change.files), codes("Packages", change.packages),
      change.cost && el("p", el("span.warn", "Security"), " ", change.cost)]));
};
const planned = () => changeList(report.planned, change => change.reboot ? "takes effect with a reboot" : "");

function changes() {
  if (report.changes.length === 0) return report.ran && el("p", "Nothing on this machine is changed.");
  const done = change => change.status === "reverted" ? "undone"
      : change.status === "pending-reboot" ? "with the next reboot" : change.reboot ? "done, in effect since a reboot" : "done";
  return [
    changeList(report.changes, done),
    report.changes.some(change => change.status !== "reverted") &&
        el("p", withCommands('Undo all of it: "sudo p2pctl revert"'), ". Files get back the content that they had; packages that p2pd removed are ",
           "installed again from its backup, without network.")];
}

const VERDICTS = {pass: ["good", "✓", "passed"], fail: ["bad", "✗", "failed"], not_applicable: ["faint", "–", "does not apply"],
                  "": ["faint", "·", "not checked"]};
const verdictMark = word => mark(...VERDICTS[word] ?? ["warn", "?", "not known"]);

const MOST_EVIDENCE = 8;

/** Table of what a check saw; the rest of many rows is folded. */
function evidence(all) {
  const rows = all.map(({source, value}) => el("tr", el("th.where", source), el("td", value)));
  const most = rows.length > MOST_EVIDENCE + 1 ? MOST_EVIDENCE : rows.length, more = rows.length - most;
  return [table("table.evidence", rows.slice(0, most)), more > 0 && folded(`${more} more`, table("table.evidence", rows.slice(most)))];
}

function checks() {
  const failed = report.causes.map(cause => el("div.cause",
      el("h3", verdictMark(cause.verdict), " ", cause.summary || "not checked"),
      el("p.faint", el("code", cause.step), " ", cause.title), cause.why && el("p", cause.why), cause.obstacle && el("p.note", cause.obstacle),
      evidence(cause.evidence),
      cause.next && el("p.next", el("b", "Next"), " ", withCommands(cause.next))));
  const shown = report.causes.map(({step}) => step), others = report.steps.filter(({id}) => !shown.includes(id));
  const kind = ({verdict}) => ["pass", "not_applicable"].includes(verdict) ? 0 : verdict === "" ? 2 : 1;
  const row = step => el("tr", el("td", verdictMark(step.verdict)), el("th.where", step.id),
                         el("td", step.title, step.summary && [el("br"), el("span.faint", step.summary)]));
  return [failed.length > 0 ? el("div.failed", failed) : el("p", "Nothing that the plan checks is in the way."),
          ["passed or not applicable", "failed, not in the way", "not checked"].map((name, number) => {
            const steps = others.filter(step => kind(step) === number);
            return steps.length > 0 && folded(`${steps.length} ${name}`, table("table.checks", steps.map(row)));
          })];
}

const MOST_EVENTS = 200, MOST_RUNS = 20;

/** Events of one boot and run; `last` is the event before them. */
function boot(events, last) {
  const [{boot: number, run, time}, end] = [events[0], events.at(-1)], gap = last?.run === run && duration(last.time, time);
  const took = duration(time, end.time);
  const row = (event, before) => {
    const took = before && duration(before.time, event.time);
    return el("tr", el("td.time", Date.parse(event.time) ? event.time.slice(11, 19) : event.time), el("td.time", took && "+" + took),
              el("td", el("b", event.what), event.step && [" ", el("code", event.step)], event.text && el("span.faint", " " + event.text)));
  };
  return [el("h3", `Boot ${number}, run ${run}`, took && `: ${took}, from ${utc(time)} UTC`,
             gap && `, ${gap} after the last event of boot ${last.boot}`),
          table("table.events", events.map((event, i) => row(event, events[i - 1])))];
}

function timeline() {
  const left = Math.max(report.events.length - MOST_EVENTS, 0), events = report.events.slice(left), boots = [];
  for (const event of events) {
    const last = boots.at(-1)?.at(-1);
    if (last?.boot === event.boot && last.run === event.run) boots.at(-1).push(event);
    else boots.push([event]);
  }
  const runs = report.runs.slice(0, MOST_RUNS).map(run => el("tr", el("td", run.id), el("td", run.plan), el("td.time", utc(run.started)),
      el("td", duration(run.started, run.ended)), el("td", run.result || run.state), el("td", run.reboots), el("td.faint", run.reason)));
  const heads = ["Run", "Plan", "Begun", "Took", "Result", "Reboots", "Reason"], more = report.runs.length - runs.length;
  return [left > 0 && el("p.faint", `${left} earlier events are left out.`), boots.map((one, i) => boot(one, boots[i - 1]?.at(-1))),
          report.looks > 0 && el("p.faint", `Runs that changed nothing, as at every boot: ${report.looks}.`),
          runs.length > 0 && folded(`Runs: ${report.runs.length}`, table("table.runs", runs, heads),
                                    more > 0 && el("p.faint", `${more} earlier runs are left out.`))];
}

// ---- machine --------------------------------------------------------------------------------------------------------

const WIDTH = 400, ROW = 46, BOX = 34, INDENT = 26, LEVELS = 6, MOST_NODES = 200;  // of the drawing, in its own units

function linkText({link, port}) {
  const rate = link && `Gen${link.generation_most} x${link.width}${link.width < link.width_most ? ` of x${link.width_most}` : ""}`;
  return [rate, port && `port ${port}`].filter(Boolean).join(", ");
}

/** Tree of CPUs, switches and GPUs, a row each. The thickness of a line is the capacity of its link. */
function tree() {
  const rows = [];
  const place = (above, level, parent) => {  // never reaches nodes that are their own parents
    for (const node of report.topology.filter(one => one.above === above)) {
      if (rows.length >= MOST_NODES) return;
      const placed = {node, parent, x: 4 + Math.min(level, LEVELS) * INDENT, y: rows.length * ROW + ROW / 2};
      rows.push(placed);
      if (node.id) place(node.id, level + 1, placed);
    }
  };
  place("", 0, null);
  const line = ({node: {link}, parent, x, y}) => {
    if (!parent) return null;
    const rate = (link?.width ?? 0) * 2 ** (link?.generation_most ?? 0);
    return svg("path", {class: link?.width < link?.width_most ? "narrow" : "link", "stroke-width": rate >= 512 ? 7 : rate >= 256 ? 5 : rate >= 128 ? 3 : 2,
                        d: `M${parent.x + INDENT / 2} ${parent.y + BOX / 2}V${y}H${x}`});
  };
  const box = ({node, x, y}) => {
    const link = linkText(node);
    return [svg("rect", {class: node.kind, x, y: y - BOX / 2, width: WIDTH - 4 - x, height: BOX, rx: 5}),
            svg("text", {class: "name", x: x + 10, y: link ? y - 2 : y + 4}, node.title, " ", svg("tspan", {class: "faint"}, node.detail)),
            svg("text", {class: "faint", x: x + 10, y: y + 12}, link, node.redirects && svg("tspan", {class: "alarm"}, "  ACS redirects"))];
  };
  if (rows.length === 0) return null;
  const words = rows.map(({node}) => `${node.title} ${node.detail} ${linkText(node)}`).join("; ");
  const drawing = image(`${WIDTH} ${rows.length * ROW}`, "Tree of CPUs, switches and GPUs: " + words, rows.map(line), rows.map(box));
  drawing.setAttribute("class", "tree");
  return drawing;
}

/** Class and limit of the path of each pair, and the arithmetic of the limits with the pairs that have it. */
function paths() {
  const pairs = report.pairs, most = 12, ways = new Map();
  if (pairs.length < 2) return null;
  const names = {nvlink: "NVLink", pcie_switch: "switch", one_socket: "socket", cross_socket: "sockets"};
  const kind = ({kind, topology}) => kind === "nvlink" || !topology ? names[kind] ?? (topology || "?") : topology;
  const limit = pair => pair.limit_gb_s > 0 ? pair.limit_gb_s.toFixed(1) : "?";
  pairs.forEach((row, from) => row.forEach((pair, to) => {
    if (from >= to || !pair) return;
    const way = (pair.limit_gb_s > 0 ? limit(pair) + " GB/s: " : "not known: ") + pair.arithmetic;
    ways.set(way, [...ways.get(way) ?? [], `${from}‑${to}`]);
  }));
  const limits = list("ul.limits", [...ways].sort().map(([way, pairs]) =>
      [way, " ", el("small", pairs.slice(0, most).join(", "), pairs.length > most && ` and ${pairs.length - most} more`)]));
  if (pairs.length === 2) return [kind(pairs[0][1]) !== "?" && el("p", `Path of GPU 0 and GPU 1: ${kind(pairs[0][1])}.`), limits];
  const draw = (from, to) => el("td", el("b", kind(pairs[from][to])), el("small", limit(pairs[from][to])));
  return [figure("figure.map", ["Paths and their limits ", el("small", "GB/s one way")], grid(pairs.length, " plain", draw)), limits];
}

function topology() {
  const drawing = tree(), pairs = paths();
  return (drawing || pairs) && el("div.sides", el("div", drawing), el("div", pairs));
}

function environment() {
  const size = mib => mib === undefined ? "?" : mib < 1024 ? `${mib} MiB` : `${(mib / 1024).toFixed(0)} GiB`;
  const gpu = ({name, address, uuid, vram_mib: vram, bar1_mib: bar1, driver}, number) => el("tr", heading("row", number),
      el("td", name, el("br"), el("span.where", address), uuid && !report.redacted && [el("br"), el("span.where", uuid)]),
      el("td", size(vram)), el("td", size(bar1)), el("td", driver || "none"));
  return [table("table.gpus", report.gpus.map(gpu), ["GPU", "Model", "VRAM", "BAR1", "Driver"]),
          table("table.environment", report.environment.map(({name, value}) => el("tr", heading("row", name), el("td", value))))];
}

// ---- page -----------------------------------------------------------------------------------------------------------

/** Sections in the order in which a person needs them: failed checks before all else. */
function sections() {
  const checked = ["checks", "Checks", "Checks", checks];
  const found = [["before-after", "Before and after", "Before and after", measured], ["remarks", "Remarks", "Remarks and gain", remarks],
                 ["soak", "Soak", "Soak", soak], ["advice", "Advice", "Advice for software", advice],
                 ["planned", "Planned", "What apply would change", planned], ["changes", "Changes", "What was changed", changes], ["timeline", "Timeline", "Timeline", timeline]];
  found.splice(report.causes.length > 0 ? 0 : found.length, 0, checked);
  found.push(["topology", "Topology", "Topology", topology], ["environment", "Environment", "Environment", environment],
             ["json", "JSON", "JSON", () => folded(`This report for programs, schema ${report.schema}`, el("pre", JSON.stringify(report, null, 1)))]);
  return found.map(([id, name, title, draw]) => ({id, name, title, content: [draw()].flat(Infinity).filter(Boolean)}))
      .filter(({content}) => content.length > 0);
}

const parts = sections(), nav = el("nav");
nav.setAttribute("aria-label", "Sections");
for (const {id, name} of parts) {
  const link = el("a", name);
  link.href = "#" + id;
  nav.append(link, "\n");
}
document.querySelector("noscript").remove();
document.body.append(el("main", el("header", origin(), verdict(), numbers()), nav, el("div.sections", parts.map(({id, title, content}) => {
  const section = el("section", el("h2", title), content);
  section.id = id;
  return section;
})), report.redacted && el("footer", el("p.faint", "Redacted: words that identify this machine or its users are removed; the manual page ",
                                        "p2pctl(1) lists them under \"report\"."))));
