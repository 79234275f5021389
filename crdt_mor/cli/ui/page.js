// The page of a table. Texts of the table enter the page only by `textContent`, or escaped in a chart.
"use strict";
const report = JSON.parse(document.getElementById("report").textContent);
const find = (selector) => document.querySelector(selector);
const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

// --- small things ---------------------------------------------------------------------------------------------------

function element(tag, text, kind) {
  const made = document.createElement(tag);
  if (text !== undefined && text !== null) made.textContent = text;
  if (kind) made.className = kind;
  return made;
}

function bytes(count) {
  let size = count, unit = 0;
  const units = ["bytes", "KiB", "MiB", "GiB", "TiB"];
  while (size >= 1024 && unit < units.length - 1) { size /= 1024; unit += 1; }
  return `${unit ? size.toFixed(1) : size} ${units[unit]}`;
}

const number = (count) => (count === null || count === undefined ? "" : count.toLocaleString("en"));
const moment = (text) => (text ? `${text.slice(0, 23).replace("T", " ").replace(/[+Z].*$/, "")} UTC` : "");
const some = (items, most) => items.slice(0, most).join(", ") + (items.length > most ? ", …" : "");
const plural = (count, word) => `${number(count)} ${word}${count === 1 ? "" : "s"}`;
const escaped = (text) => String(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");

function seconds(value) {
  if (value === null || value === undefined) return "";
  if (value < 60) return `${value.toFixed(value < 10 ? 3 : 0)} s`;
  const minutes = Math.round(value / 60);
  return minutes < 60 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

const who = (row) => (row.host ? `${row.application} (${row.pid} on ${row.host})` : row.application || "unknown");

// columns: pairs of a heading and a function from row to cell: a text, a number or an element.
function grid(place, columns, rows) {
  if (!rows.length) return;
  const table = element("table"), head = table.createTHead().insertRow(), body = table.createTBody();
  const numeric = columns.map(([, cell]) => typeof cell(rows[0]) === "number");
  columns.forEach(([name], i) => head.append(element("th", name, numeric[i] ? "number" : "")));
  for (const row of rows) {
    const line = body.insertRow();
    columns.forEach(([, cell], i) => {
      const value = cell(row);
      const made = element("td", undefined, numeric[i] ? "number" : "");
      if (value instanceof Node) made.append(value);
      else { made.textContent = typeof value === "number" ? number(value) : value; made.title = made.textContent; }
      line.append(made);
    });
  }
  find(place).replaceChildren(table);
}

function chart(place, traces, layout) {
  const axis = { gridcolor: color("line"), zerolinecolor: color("line"), automargin: true };
  const font = { color: color("ink"), family: getComputedStyle(document.body).fontFamily, size: 12 };
  return Plotly.newPlot(place, traces, {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font, bargap: 0.25, hovermode: "closest",
    margin: { l: 60, r: 20, t: 64, b: 40 }, legend: { orientation: "h", yanchor: "bottom", y: 1 },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: color("faint"), activecolor: color("ink") },
    ...layout, xaxis: { ...axis, ...layout.xaxis }, yaxis: { ...axis, ...layout.yaxis },
  }, {
    responsive: true, displaylogo: false,  // only plotly buttons without links to other sites
    modeBarButtons: [["zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "autoScale2d", "toImage"]],
  });
}

// --- sections -------------------------------------------------------------------------------------------------------

function showHead() {
  const seen = new Date(report.seen_ms).toISOString();
  find("#name").textContent = report.overview.table;
  find("#where").textContent = `${report.uri}, version ${report.overview.version}, seen ${moment(seen)}`;
  const fresh = report.live ? "Reload the page to update it." : "This page shows that moment.";
  find("#made").textContent = `crdt_mor ${report.crdt_mor}. ${fresh}`;
}

function showHealth() {
  for (const sign of report.health) {
    const card = element("div", undefined, `sign ${sign.state}`);
    card.append(element("b", sign.check), element("span", sign.text));
    if (sign.advice) card.append(element("div", sign.advice));
    find("#health .signs").append(card);
  }
}

function showOverview() {
  const o = report.overview;
  const columns = o.columns.map(({ name, type, payload }) => `${name} ${type}${payload ? ` (${payload})` : ""}`);
  const recent = o.recent_commits.commits
    ? `${number(o.recent_commits.writes)} writes in the newest ${number(o.recent_commits.commits)} commits of rows, `
      + `${number(o.recent_commits.groups)} of them groups of several writes`
    : "no commit yet";
  const facts = {
    rows: o.rows === null ? "unknown" : number(o.rows), key: some(o.key),
    "partitioned by": some(o.partition_by) || "nothing", merge: o.merge, columns: some(columns),
    files: `${plural(o.file_groups, "file group")} in ${plural(o.partitions, "partition")}: ${bytes(o.base_bytes)} of `
      + `base files, ${plural(o.logs, "log file")} of ${bytes(o.log_bytes)}`,
    "stable reads": report.stable_before === null ? "show all commits"
      : `stop before ${report.stable_before}, the begin of the oldest pending write`,
    "recent commits": recent, format: o.format, rules: o.rules.join("; ") || "none",
    properties: some(Object.entries(o.properties).map(([name, value]) => `${name}=${value}`)) || "none",
    savepoints: some(o.savepoints.map((one) => one.name)) || "none",
  };
  const list = find("#overview dl");
  for (const [name, text] of Object.entries(facts)) list.append(element("dt", name), element("dd", text));
}

const KINDS = {
  write: ["writes", "write"], group: ["groups of small writes", "group"], compaction: ["compactions", "compaction"],
  other: ["other commits", "other"], pending: ["pending writes", "pending"],
};

// A bar for each commit and each pending write.
function bars() {
  const made = report.timeline.commits.map((row) => ({
    kind: (row.writers || []).length > 1 ? "group" : row.kind in KINDS ? row.kind : "other", row, lane: row.application,
    end: Date.parse(row.completed), begin: Date.parse(row.completed) - row.duration_s * 1000,
  }));
  const open = report.timeline.pending.map((row) => ({
    kind: "pending", row, lane: row.application, end: report.seen_ms, begin: Date.parse(row.since),
  }));
  for (const bar of [...made, ...open]) bar.lane = bar.lane || "unknown";
  return [...made, ...open].sort((a, b) => a.begin - b.begin);
}

const LANES_MAX = 60;

// Each application gets as many lanes as it has simultaneous bars.
function laned(all) {
  const lanes = [];
  for (const bar of all) {
    let lane = lanes.find((one) => one.name === bar.lane && one.end <= bar.begin);
    if (!lane && lanes.length < LANES_MAX) lanes.push(lane = { name: bar.lane });
    lane = lane || lanes.find((one) => one.name === bar.lane) || lanes[lanes.length - 1];
    lane.end = Math.max(lane.end || 0, bar.end);
    bar.on = lane;
  }
  const names = [...new Set(lanes.map((lane) => lane.name))];
  lanes.sort((a, b) => names.indexOf(a.name) - names.indexOf(b.name));
  lanes.forEach((lane, place) => { lane.place = place; });
  return lanes;
}

function told(bar) {
  const { row } = bar;
  if (bar.kind === "pending") {
    const silent = row.silent_s === null ? "" : `, silent for ${seconds(row.silent_s)}`;
    return `${who(row)}, pending since ${moment(row.since)}${silent}${row.stuck ? ", stuck?" : ""}`;
  }
  const others = (row.writers || []).length - 1;
  const more = others > 0 ? ` and ${others} more writers` : "";
  const overlaps = row.overlaps.length ? `, overlaps ${some(row.overlaps, 12)}` : "";
  const said = row.message ? `: ${row.message}` : "";
  return `commit ${row.ordinal}, version ${row.version}, ${row.operation.toLowerCase()} by ${who(row)}${more}, `
    + `${number(row.rows)} rows, ${number(row.deletes)} deletes, ${seconds(row.duration_s)}, ${moment(row.completed)}`
    + `${overlaps}${said}`;
}

function showTimeline() {
  const all = bars();
  if (!all.length) { find("#commit").textContent = "There is no commit yet."; return; }
  const lanes = laned(all);
  const traces = Object.entries(KINDS).map(([kind, [name, shade]]) => {
    const own = all.filter((bar) => bar.kind === kind);
    const texts = own.map(told);
    return {
      type: "bar", orientation: "h", name, base: own.map((bar) => new Date(bar.begin).toISOString()),
      x: own.map((bar) => bar.end - bar.begin), y: own.map((bar) => bar.on.place), customdata: texts,
      hovertext: texts.map((text) => escaped(text).replace(/(.{60,90}?) /g, "$1<br>")), hoverinfo: "text",
      marker: { color: color(shade), line: { color: color("ground"), width: 1 } },
    };
  }).filter((trace) => trace.x.length);
  const made = all.filter((bar) => bar.kind !== "pending");
  const ends = [Math.min(...made.map((bar) => bar.begin)), Math.max(...made.map((bar) => bar.end))];
  const whole = Math.max(...all.map((bar) => bar.end)) - Math.min(...all.map((bar) => bar.begin));
  const span = ends[1] - ends[0];
  // A long pending write would leave no room for the commits, so the first view shows only the commits.
  const zoomed = made.length && whole > 4 * span && { range: [ends[0] - span / 20, ends[1] + span / 20] };
  const shown = (lane, i) => (i && lanes[i - 1].name === lane.name ? "" : escaped(lane.name));
  chart("chart-timeline", traces, {
    barmode: "overlay", height: Math.min(900, 130 + 26 * lanes.length), dragmode: "zoom",
    xaxis: { type: "date", ...zoomed },
    yaxis: {
      tickvals: lanes.map((lane) => lane.place), ticktext: lanes.map(shown), fixedrange: true, autorange: "reversed",
    },
  });
  find("#chart-timeline").on("plotly_click", (event) => {
    find("#commit").textContent = event.points[0].customdata;
  });
  if (zoomed) find("#commit").textContent = "A write has been pending for long: double-click to see its begin.";
  if (!report.timeline.is_all) find("#commit").textContent = "The newest commits; crdt-mor history lists all.";
}

function showGroups() {
  const rows = report.groups.shown, top = rows.slice(0, 30);
  const name = (row) => escaped(`${row.partition ? `${row.partition}/` : ""}${row.file_id.slice(0, 12)}`);
  if (top.length) {
    const trace = (title, field, shade) => ({
      type: "bar", orientation: "h", name: title, x: top.map((row) => row[field]), y: top.map((row, i) => i),
      hovertext: top.map((row) => `${name(row)}: ${title} ${bytes(row[field])}`), hoverinfo: "text",
      marker: { color: color(shade) },
    });
    const both = [trace("base file", "base_bytes", "compaction"), trace("log files", "log_bytes", "pending")];
    chart("chart-groups", both, {
      barmode: "stack", height: 120 + 20 * top.length, xaxis: { title: { text: "bytes" } },
      yaxis: { tickvals: top.map((row, i) => i), ticktext: top.map(name), autorange: "reversed", fixedrange: true },
    });
  }
  if (!rows.length) find("#groups p").textContent = "There are no file groups yet.";
  const partition = rows.some((row) => row.partition) ? [["partition", (row) => row.partition]] : [];
  grid("#table-groups", [
    ...partition, ["file group", (row) => row.file_id], ["base rows", (row) => row.base_rows],
    ["base bytes", (row) => row.base_bytes], ["logs", (row) => row.logs], ["log rows", (row) => row.log_rows],
    ["log bytes", (row) => row.log_bytes],
  ], rows);
  const left = report.groups.count - rows.length;
  if (left > 0) find("#table-groups").append(element("p", `and ${number(left)} more, with less to merge`));
}

function showConflicts() {
  const { keys, count, since, left_out: leftOut } = report.conflicts;
  const cut = count > keys.length ? `; the newest ${number(keys.length)} are listed` : "";
  const none = leftOut ? "No conflicts were found" : "No commits overlap";
  const looked = since === null ? none : `${plural(count, "such key")} in commits after version ${since}${cut}`;
  find("#conflicts .said").textContent = `${looked}${leftOut ? `; ${leftOut}` : ""}.`;
  const by = new Map(report.timeline.commits.map((row) => [row.ordinal, row.application]));
  const link = (row) => {
    if (!row.has_life || (!report.live && !report.lives.some((one) => one.text === row.text))) return "";
    const made = element("a", "why");
    made.href = "#why";
    made.onclick = () => { find("#why [name=key]").value = row.text; tell(row.text); };
    return made;
  };
  grid("#table-conflicts", [
    ["key", (row) => row.text], ["partition", (row) => row.partition], ["", link],
    ["commits by ordinal", (row) => row.commits.map((one) => `${one} ${by.get(one) || ""}`).join(", ")],
  ], keys);
}

// --- the history of a row -------------------------------------------------------------------------------------------

const SAME = "nothing; the row already contains these values";
const values = (row, names) => names.map((name) => `${name} = ${row[name] === null ? "null" : row[name]}`).join(", ");

function lineOf(line) {
  const item = element("li", undefined, line.effect);
  const alone = line.application ? ` by ${who(line)}` : "";
  const by = line.writers ? ` by one of ${some([...new Set(line.writers)])}` : alone;
  const seen = line.completed ? `, completed ${moment(line.completed)}, version ${line.version}` : "";
  const said = line.message ? `: ${line.message}` : "";
  item.append(element("strong", `${moment(line.requested)}  ${line.change}${by}${seen}${said}`));
  const facts = element("dl"), add = (name, text) => facts.append(element("dt", name), element("dd", text));
  if (line.written) add("gives", values(line.written, line.columns));
  if (line.effect === "updated") add("changes", values(line.result, line.changed));
  else add("does", line.effect !== "none" ? `the row is ${line.effect}` : line.same ? SAME : "nothing");
  add("because", line.because);
  if (line.overtaken_by.length) add("unseen", `as ${some(line.overtaken_by)} began later and completed earlier`);
  if (line.carried_by.length) add("carried", `by the compaction ${some(line.carried_by)}, which left it in log files`);
  if (line.folded_by) add("folded", `by the compaction ${line.folded_by} into a base file`);
  item.append(facts);
  return item;
}

function draw(lines) {
  const list = find("#why ol");
  list.replaceChildren();
  let partition = null, row = null;
  const end = () => {
    const shown = row ? values(row, Object.keys(row)) : "the row does not exist";
    list.append(element("li", `○ ${shown}`, "end"));
  };
  for (const line of lines) {
    if (line.partition !== partition) {
      if (partition !== null) end();
      if (line.partition) list.append(element("li", `in partition ${line.partition}`, "end"));
      partition = line.partition;
    }
    list.append(lineOf(line));
    row = line.result;
  }
  if (lines.length) end();
}

async function lifeOf(key, column, asOf) {
  if (!report.live) {
    const found = report.lives.find((one) => one.text === key);
    const error = `this page contains the history of only ${report.lives.length} keys; use crdt-mor why for others`;
    return found || { error };
  }
  const asked = new URLSearchParams({ key, column, as_of: asOf });
  return (await fetch(`why?${asked}`)).json();
}

let asked = 0;

// key: the full text; the form's field may lack characters such as line breaks.
async function tell(key) {
  const form = find("#why form"), said = find("#why .said");
  const of = form.column.value ? `, column ${form.column.value}` : "", asOf = form.as_of.value.trim();
  const at = asOf ? `, as of ${asOf}` : "";
  draw([]);
  if (!key) { said.textContent = "Enter a key first."; return; }
  said.textContent = `looking for ${key} …`;
  const turn = asked += 1;
  const answer = await lifeOf(key, form.column.value, asOf)
    .catch((error) => ({ error: `the server does not answer: ${error.message}` }));
  if (turn !== asked) return;  // a newer question replaced this one
  const none = answer.lines && !answer.lines.length ? `no retained commit wrote this key${at}: ${key}` : "";
  said.textContent = answer.error || none || `the history of ${key}${of}${at}`;
  draw(answer.lines || []);
}

function showWhy() {
  const form = find("#why form"), all = element("option", "all");
  all.value = "";
  form.column.append(all, ...report.overview.columns.map(({ name }) => element("option", name)));
  form.onsubmit = (event) => { event.preventDefault(); tell(form.key.value); };
  if (report.live) return;
  form.column.parentElement.hidden = form.as_of.parentElement.hidden = true;
  find("#why .said").textContent = report.lives.length
    ? `This page contains the history of: ${some(report.lives.map((one) => one.text))}`
    : "This page contains no row histories: add some with crdt-mor ui --html FILE --key KEY, or use crdt-mor why.";
  if (report.lives.length) { form.key.value = report.lives[0].text; tell(report.lives[0].text); }
}

// --- growth, upkeep, history ----------------------------------------------------------------------------------------

function showGrowth() {
  const points = report.growth, when = points.map((point) => point.completed);
  if (points.length < 2) { find("#growth p").textContent = "There are not yet two moments to compare."; return; }
  const range = [when[0], when[when.length - 1]], xaxis = { type: "date", range, automargin: false };
  const line = (name, field, shade, more) => ({
    type: "scatter", mode: "lines+markers", name, x: when, y: points.map((point) => point[field]),
    line: { color: color(shade) }, ...more,
  });
  chart("chart-bytes", [
    line("base files", "base_bytes", "compaction", { stackgroup: "bytes" }),
    line("log files", "log_bytes", "pending", { stackgroup: "bytes" }),
  ], { height: 280, yaxis: { title: { text: "bytes" }, rangemode: "tozero", automargin: false }, xaxis });
  chart("chart-logs", [line("log files to merge", "logs", "pending"), line("base files", "bases", "compaction")], {
    height: 240, yaxis: { title: { text: "files" }, rangemode: "tozero", automargin: false }, xaxis,
  });
}

function showUpkeep() {
  const due = report.upkeep || [];
  const said = due.length ? "crdt-mor maintain would do now:" : "Nothing is due.";
  find("#upkeep .said").textContent = report.upkeep ? said : "The due services are unknown: see above.";
  find("#upkeep ul").append(...due.map((one) => element("li", one.text)));
}

function showHistory() {
  const rows = report.timeline.commits;
  if (!rows.length) find("#history .said").textContent = "There is no commit yet.";
  grid("#table-history", [
    ["ordinal", (row) => row.ordinal], ["version", (row) => row.version], ["completed", (row) => moment(row.completed)],
    ["took", (row) => seconds(row.duration_s)], ["what", (row) => row.operation.toLowerCase()],
    ["rows", (row) => row.rows], ["deletes", (row) => row.deletes],
    ["by", (row) => `${who(row)}${(row.writers || []).length > 1 ? ` and ${row.writers.length - 1} more` : ""}`],
    ["message", (row) => row.message || ""], ["overlaps", (row) => some(row.overlaps, 12)],
  ], rows);
}

for (const show of [showHead, showHealth, showOverview, showTimeline, showGroups, showConflicts, showWhy, showGrowth,
  showUpkeep, showHistory]) show();
document.documentElement.dataset.ready = "yes";
