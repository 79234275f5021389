// The sections of the page.

// --- head -------------------------------------------------------------------------------------------------------

function showHead() {
  const seen = new Date(report.seen_ms).toISOString();
  find("#name").textContent = report.overview.table;
  find("#where").textContent = `${report.uri}, version ${report.overview.version}, seen ${moment(seen)}`;
  const fresh = report.live ? "Reload the page to update it." : "This page shows that moment.";
  find("#made").textContent = `crdt_mor ${report.crdt_mor}. ${fresh}`;
}

const STATES = { wrong: ["✖", "Problem"], note: ["▲", "Note"], fine: ["✔", "Fine"] };

function showHealth() {
  for (const sign of report.health) {
    const [icon, word] = STATES[sign.state];
    const card = element("div", undefined, `sign ${sign.state}`), state = element("span", undefined, "state");
    const mark = element("span", `${icon}\ufe0e `);  // a text, not an emoji
    mark.ariaHidden = "true";
    state.append(mark, word);
    card.append(state, element("b", sign.check), element("span", sign.text));
    if (sign.advice) card.append(element("div", sign.advice));
    find("#health .signs").append(card);
  }
}

function showOverview() {
  const o = report.overview;
  const recent = o.recent_commits.commits
    ? `${number(o.recent_commits.writes)} writes in the newest ${number(o.recent_commits.commits)} commits of rows, `
      + `${number(o.recent_commits.groups)} of them groups of several writes`
    : "no commit yet";
  const facts = {
    rows: o.rows === null ? "unknown" : number(o.rows), key: some(o.key),
    "partitioned by": some(o.partition_by) || "nothing", merge: o.merge, columns: number(o.columns.length),
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

function showColumns() {
  const { key, columns, partition_by: parts } = report.overview, field = find("#columns form").text;
  const part = ({ name }) => [["key", key], ["partition", parts]].filter(([, names]) => names.includes(name))
    .map(([word]) => word).join(", ");
  const heads = [["column", (row) => row.name], ["type", (row) => row.type], ["part of", part],
    ["merge", (row) => row.payload || ""], ["comment", (row) => row.comment || ""]];
  const filled = heads.filter(([, cell], i) => i < 2 || columns.some((row) => cell(row)));
  const list = () => {
    const text = field.value.trim().toLowerCase();
    const found = columns.filter((row) => filled.some(([, cell]) => cell(row).toLowerCase().includes(text)));
    const of = text ? `${number(found.length)} of ` : "";
    find("#columns .said").textContent = `${of}${plural(columns.length, "column")}`;
    grid("#table-columns", "Columns", filled, found);
  };
  field.oninput = list;
  find("#columns form").onsubmit = (event) => event.preventDefault();
  list();
}

function showGroups() {
  const rows = report.groups.shown, top = rows.slice(0, 30);
  const full = (row) => `${row.partition ? `${row.partition}/` : ""}${row.file_id}`;
  const name = (row) => `${row.partition ? `${short(row.partition)}/` : ""}${escaped(row.file_id.slice(0, 12))}`;
  if (top.length) {
    const trace = (title, field, shade, shape) => ({
      type: "bar", orientation: "h", name: title, x: top.map((row) => row[field]), y: top.map((row, i) => i),
      hovertext: top.map((row) => `${escaped(full(row))}: ${title} ${bytes(row[field])}`), hoverinfo: "text",
      marker: patterned(shade, shape),
    });
    const both = [trace("base file", "base_bytes", "compaction", ""), trace("log files", "log_bytes", "pending", "/")];
    const label = `Bytes of base and log files of ${plural(top.length, "file group")}. The table below lists them.`;
    chart("chart-groups", label, both, {
      barmode: "stack", height: 120 + 20 * top.length, xaxis: { title: { text: "bytes" } },
      yaxis: { tickvals: top.map((row, i) => i), ticktext: top.map(name), autorange: "reversed", fixedrange: true },
    });
  }
  if (!rows.length) find("#groups p").textContent = "There are no file groups yet.";
  const partition = rows.some((row) => row.partition) ? [["partition", (row) => row.partition]] : [];
  grid("#table-groups", "File groups", [
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
  const life = (row) => {
    if (!row.has_life || (!report.live && !report.lives.some((one) => one.text === row.text))) return "";
    return link("why", `why ${row.text}`, () => {
      find("#why [name=key]").value = row.text;
      tell(row.text);
      goTo("#why");
    });
  };
  grid("#table-conflicts", "Conflicts", [
    ["key", (row) => row.text], ["partition", (row) => row.partition], ["life", life],
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
    ...more, line: { color: color(shade), ...(more && more.line) },
  });
  const dashed = { line: { dash: "dot" } };
  const last = points[points.length - 1];
  const from = `${plural(points.length, "moment")} from ${moment(range[0])} to ${moment(range[1])}`;
  const inTable = "The table below lists them.";
  chart("chart-bytes", `Bytes at ${from}, at last ${bytes(last.base_bytes)} of base files and ${bytes(last.log_bytes)} `
    + `of log files. ${inTable}`, [
    line("base files", "base_bytes", "compaction", { stackgroup: "bytes" }),
    line("log files", "log_bytes", "pending", { stackgroup: "bytes", ...dashed }),
  ], { height: 280, yaxis: { title: { text: "bytes" }, rangemode: "tozero", automargin: false }, xaxis });
  const files = `${plural(last.bases, "base file")} and ${plural(last.logs, "log file")}`;
  chart("chart-logs", `Files at ${from}, at last ${files}. ${inTable}`, [
    line("log files to merge", "logs", "pending", dashed), line("base files", "bases", "compaction"),
  ], {
    height: 240, yaxis: { title: { text: "files" }, rangemode: "tozero", automargin: false }, xaxis,
  });
  grid("#table-growth", "Growth", [
    ["version", (row) => row.version], ["completed", (row) => moment(row.completed)],
    ["base files", (row) => row.bases], ["base bytes", (row) => row.base_bytes], ["log files", (row) => row.logs],
    ["log bytes", (row) => row.log_bytes],
  ], [...points].reverse());
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
  const ordinal = (row) => link(number(row.ordinal), `commit ${row.ordinal}`, () => {
    showCommit(row);
    goTo("#commit");
  });
  grid("#table-history", "History", [
    ["ordinal", ordinal], ["version", (row) => row.version], ["completed", (row) => moment(row.completed)],
    ["took", (row) => seconds(row.duration_s)], ["what", (row) => row.operation.toLowerCase()],
    ["rows", (row) => row.rows], ["deletes", (row) => row.deletes],
    ["by", (row) => `${who(row)}${(row.writers || []).length > 1 ? ` and ${row.writers.length - 1} more` : ""}`],
    ["message", (row) => row.message || ""], ["overlaps", (row) => some(row.overlaps, 12)],
  ], rows);
}

for (const show of [showHead, showHealth, showOverview, showColumns, showTimeline, showCommits, showCompare, showGroups,
  showConflicts, showWhy, showGrowth, showUpkeep, showHistory]) show();
document.documentElement.dataset.ready = "yes";
